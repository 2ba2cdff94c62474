"""The role `bridge`: Slurm schedules Kubernetes pods. It applies what `sidecars.bridge.core`
decides.

- `settings`: the command line.
- `slurm`: requests to Slurm, each with the token of the right user.
- `memory`: what is remembered from pass to pass, and lost at a restart.
- `passes`: one pass: read, decide, apply.
- `job_reading`: Slurm's jobs as they are now.
- `pod_views`: the pods as the decision looks at them.
- `effects`: the requests that apply decisions about pods and jobs.
- `owners`: the objects that have the sizes of groups.
- `node_records`: the records of Kubernetes nodes in Slurm.
- `guarded_nodes`: the workers of nodes with a slurmd, and what is written on them.
- `claimed_devices`: the ResourceClaims of pods.
- `webhook_certificate`: the certificate of the admission webhook.
- `webhook`: the role `webhook`, which runs in pods of its own.
- `metrics`: what Prometheus reads.
- `main`: puts the parts together.
"""
