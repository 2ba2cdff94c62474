"""The operator: reconciles the six kinds of custom resources, worker pods and Kubernetes nodes.

`main` assembles the parts, waits for the lease, and starts a queue for each kind. `runtime` has the
parts that all kinds share, and imports none of them. Each kind has a folder, and kinds never import
each other:

- `wiring`: which change wakes which resource. Handlers only map objects to keys of the queue.
- `observe`: what a pass looks at.
- `reconcile`: one pass over one resource: observe, decide (`sidecars.policy`), apply, report.
- `effects`: the requests that apply a decision.
- `memory`: what the kind remembers from pass to pass.

`keys` distributes Slurm's keys, and `upgrade` puts starts and upgrades of daemons in Slurm's order.
Kinds use both.
"""
