"""Brings declared users and groups into the pods of a Slurm cluster."""
