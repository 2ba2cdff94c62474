"""Reconciles Controllers: slurmctld, its configuration, and the operator's own connection to the
Slurm cluster.
"""
