"""The order in which the daemons of a Slurm cluster are started and upgraded."""
