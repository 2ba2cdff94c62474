"""Why a job waits, a pod or node isn't ready, and what happens next: pure functions of what was
read.

- `records`: what was read, and the answer.
- `reasons`: Slurm's reasons of jobs; `limits`: the limits of associations and QOS.
- `objects`: Kubernetes' objects, read field by field.
- `capacity`: where a job would start, now and with changes.
- `job`, `pod`, `node`, `nodeset`, `config`: an answer for each subject; `cluster_health` for the
  whole cluster; `top` counts.

The standard library and modules that need nothing else: all of this is part of the file
`kubectl-slurm`.
"""
