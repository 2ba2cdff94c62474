"""The bridge on a real kube-apiserver and kube-scheduler, with a simulated Slurm."""
