"""What two processes must agree on: each module contains the writer and the reader of one fact,
side by side.

Standard library only; imports nothing else of this package, so that everything may import it. The
shell scripts and the YAML of charts/slurm-operator/workloads write some of these facts too. Tests
compare them with these modules.
"""
