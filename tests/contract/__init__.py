"""Slurm's REST contract as scenarios that hold for the simulator and for a real slurmrestd alike."""
