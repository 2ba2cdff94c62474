"""Real Slurm on real Kubernetes, used with kubectl and Helm as an administrator would."""
