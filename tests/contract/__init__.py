"""Slurm's REST contract as scenarios that are valid for the simulator and for a real slurmrestd
alike.
"""
