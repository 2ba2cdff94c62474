"""`kubectl slurm`: reads a Slurm cluster on Kubernetes with the user's own rights, and explains
what it finds.

Changes nothing. Kubernetes is read with the user's kubectl, Slurm by the commands of a Slurm pod,
with `kubectl exec`. What the user may not read is named in the answer. `sidecars.explain.core`
decides. The standard library only: `plugin` packs it into one file. `gres` is not a part of this
file: the role `doctor`, which looks at GPUs in the operator's pod.
"""
