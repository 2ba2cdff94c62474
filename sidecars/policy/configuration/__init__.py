"""The lint of a Slurm configuration, before it is published. Pure."""
