"""A simulated Slurm: slurmrestd's contract without Slurm, with faults on demand. For tests and for
trying things out.

`SlurmModel` is the cluster; `ModelCarrier` lets a Poller talk to it within the process, `serve`
puts it behind a port. `slurm-sidecars simulate` runs it as a process of its own.
"""

from sidecars.simulate.carriers import ModelCarrier, serve
from sidecars.simulate.model import SlurmModel
from sidecars.simulate.records import Fault

__all__ = ["Fault", "ModelCarrier", "SlurmModel", "serve"]
