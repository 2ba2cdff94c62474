"""Slurm schedules Kubernetes pods: what the role `bridge` decides. Pure: records and the time in, actions out.

A pod waits behind a scheduling gate. A placeholder job (an external job, which needs no slurmd) waits for it in Slurm's
queue. When the job runs, the pod is released to the job's node.

- `manifests`: the fields of pods and nodes that decisions need.
- `tenants`: which Slurm user, accounts, partitions and QOS a namespace has.
- `shape`: what the job of a pod requests, or why it can't have one.
- `records`: what is known of pods and jobs, and the actions.
- `decide`: what to do about pods and jobs.
- `nodes`: what to do about the records of nodes in Slurm.
"""
