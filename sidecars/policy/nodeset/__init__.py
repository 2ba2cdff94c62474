"""Decisions for one NodeSet. Pure: no client, no clock, no event loop.

`decide` is the one entry point. It folds parts, each a function of `desired`, `observed`, `memory`
and `now` that returns a `parts.Part`: `worker_pods` (which pods to create, drain and delete),
`power` (node records of power saving), `maintenance` (ScheduledUpdate's reservation), `partitions`,
`node_records` (records without a pod), and old revisions. `report` builds conditions and
status from what the parts report.

`worker_pods` takes the plan of `pods` and `replicas`. `drain` knows reasons, and when a pod may be
deleted; `lost`, pods that nobody else brings back; `failures`, back-off; `claims`, whose claims are
deleted with what. `records`, `needs`, `actions` and `memory` are what `decide` gets and returns;
`desired` reads the NodeSet's spec.

The rule behind all of it: a pod is deleted only when its Slurm node is known to be drained, or when
its slurmd never ran. While Slurm's state is unknown nothing destructive is decided. Creation never
depends on Slurm.
"""
