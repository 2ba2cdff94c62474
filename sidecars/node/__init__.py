"""Role `node`: guards a worker pod's jobs while it is told to go, and removes its Slurm node record after that.

`machine` decides and is pure, `edge` carries out, `main` is the role. It asks Slurm nothing while nothing happens and
Kubernetes nothing at all. Standard library only.
"""
