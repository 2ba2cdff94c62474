"""The role `doctor`: looks at the GPUs of a cluster once, and reports what is wrong and what to do.
Changes nothing.

`kubectl slurm doctor` names it where Slurm lacks GPUs. It needs more than the standard library:
what the operator reads custom resources and Kubernetes with. `core` decides.
"""
