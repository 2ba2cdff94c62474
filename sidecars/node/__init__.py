"""Role `node`: protects a worker pod's jobs while the pod is deleted, and deletes its Slurm node
record after that.

`machine` decides and is pure, with its inputs and outputs in `records`; `edge` has the calls,
`main` is the role. It sends Slurm no request while nothing happens, and Kubernetes none at all.
Standard library only.
"""
