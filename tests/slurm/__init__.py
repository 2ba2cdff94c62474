"""Tests of the kind slurm."""
