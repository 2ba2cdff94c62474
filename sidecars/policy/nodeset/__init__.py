"""Decisions for one NodeSet. Pure: no client, no clock, no event loop.

`decide` is the one entry point. It steps through the other modules in the order in which a NodeSet lives:
`replicas` and `pods` (which pods to create, drain and delete), `drain` (reasons, and when a pod may be deleted), `lost`
(pods that nobody else brings back), `failures` (back-off), `claims`, `maintenance` (ScheduledUpdate's reservation),
`node_records` (records without a pod), `partitions`, `revisions` and `report` (conditions and status).
`records`, `needs`, `actions` and `memory` are what it gets and returns; `desired` reads the NodeSet's spec.

The rule behind all of it: a pod is deleted only when its Slurm node is known to be drained, or when its slurmd never
ran. While Slurm's state is unknown nothing destructive is decided. Creation never depends on Slurm.
"""
