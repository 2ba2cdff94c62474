"""Role `reconfigure`, a native sidecar of slurmctld pods: candidate → dry run → swap → reconfigure
→ last good.

It alone writes what slurmctld reads as /etc/slurm. Standard library only; knows Slurm, not
Kubernetes.
"""
