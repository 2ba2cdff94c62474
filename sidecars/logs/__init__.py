"""Role `logs`: prints the output files of the jobs on this node as JSON lines, for any log
collector of the cluster.

`shipper` decides and is pure, with `lines` (bytes to JSON lines) and `patterns` (names of output
files) below it. `edge` opens files and reads the folder in which Slurm's prolog and epilog announce
jobs; `main` is the role. It sends no request to Kubernetes or Slurm. Standard library only.
"""
