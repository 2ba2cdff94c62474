"""Reconciles RestApis: slurmrestd."""
