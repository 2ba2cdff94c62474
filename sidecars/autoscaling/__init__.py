"""How many nodes each NodeSet should have for the jobs that wait: pure, without I/O and without a
clock.

- `records`: the input and the output.
- `queue`: the pending jobs, bundled by what they request, and those that no node helps, with the
  reason.
- `order`: the jobs that count, in Slurm's order, in slices.
- `filling`: placing them, from the first one that has changed.
- `needs`, `features`: a request, read once.
- `room`: the nodes and what is free on them; where Slurm's select/cons_tres would place a job.
- `one_node`: whether a job fits on a node; `several_nodes`: which nodes it gets of many;
  `computed`: what of this was computed before.
- `demand`: the nodes that the queue could use.
- `ledger`: jobs that Slurm doesn't start although nodes are free.
- `misfits`: NodeSets whose nodes don't run the jobs for which they were added.
- `plan`: the replicas, within limits of number, speed and direction.
"""
