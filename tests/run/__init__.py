"""What runs the tests: `python -m tests.run`, behind `make test`, `make check`, `make slurm` and
`make e2e`.

`stages` lists what a run consists of. `runner` runs it: some stages from the start, the others one
after the other beside them. `recorder`, a plugin of pytest, and `times` record how long everything
takes.
"""
