"""Reconciles worker pods: shows on each what Slurm reports of its node, and gives Slurm its
topology and features.
"""
