"""Mutants: known defects, each of which a test must find when it is put back into the code.

The YAML files in this folder are the table. `python -m tests.mutants` runs it on copies of the
repository.
"""
