"""Checks that run as Slurm jobs: which nodes they test, what a job's end means, and what becomes of
a node. Pure.
"""
