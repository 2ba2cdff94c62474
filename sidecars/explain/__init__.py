"""`kubectl slurm`: reads a Slurm cluster on Kubernetes with the user's own rights, and explains
what it finds.

Changes nothing. Kubernetes is read with the user's kubectl, Slurm by the commands of a Slurm pod,
with `kubectl exec`. What the user may not read is named in the answer. `sidecars.policy.explain`
decides. The standard library only: `plugin` packs all of it into one file.
"""
