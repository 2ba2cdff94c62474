"""Distributes the keys of auth/slurm to the daemons of a Slurm cluster."""
