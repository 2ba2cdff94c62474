"""Checks that run as Slurm jobs: which nodes a run tests, what the end of a job means, and what
becomes of a node. Pure.

- `plan`: which nodes are tested together, and what follows from the outcomes.
- `script`: what a job runs; `outcome`: what its end means.
- `nodes`: which nodes are tested at all, and which are drained and undrained.

What a check declares and its stored result, which other programs read too, are in
`sidecars.policy.checks`.
"""
