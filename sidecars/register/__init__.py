"""Role `register`: finds out what the worker pod is and writes the registration that its slurmd starts with.

`registration` decides and is pure, `facts` reads the machine and the environment, `main` is the role. Standard library
only. It asks neither Slurm nor Kubernetes.
"""
