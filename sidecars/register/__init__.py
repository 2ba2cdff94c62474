"""Role `register`: finds out what the worker pod is and writes the registration that its slurmd
starts with.

`registration` and `gpus` decide and are pure, `facts` reads the hardware and the environment,
`nvidia` asks the driver, `main` is the role. Standard library, and nvidia-ml-py with GPUs. It sends
requests to neither Slurm nor Kubernetes.
"""
