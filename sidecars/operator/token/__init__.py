"""Reconciles Tokens: tokens of Slurm users, kept in Secrets."""
