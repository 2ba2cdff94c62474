"""Tests of sidecars.slurm."""
