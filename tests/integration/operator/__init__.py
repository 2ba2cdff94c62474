"""The whole operator on a real kube-apiserver, with a simulated Slurm and simulated kubelets."""
