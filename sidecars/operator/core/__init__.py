"""What the operator alone decides, for more than one kind or beside what all kinds share: pure
functions over typed records.

- `claim`: whether slurmctld can use a PersistentVolumeClaim that exists.
- `gpus`: whether workers may request a part of a Kubernetes node's GPUs.
- `accounting`: what a Controller waits for before its configuration names slurmdbd.
- `keys`: which keys Slurm's daemons are given, step by step.
- `rollout`: the condition Ready, from a StatefulSet or a Deployment.
- `topology`: where workers are in the topologies of a Controller.

What one kind alone decides is in the folder `core` of that kind.
"""
