"""Reconciles Kubernetes nodes: cordons those whose worker was drained in Slurm, where the settings
ask for it.
"""
