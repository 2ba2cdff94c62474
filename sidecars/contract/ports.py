"""TCP ports of Slurm's daemons: in slurm.conf, in the pods' YAML and in what the sidecars ask.

The port of the `reconfigure` sidecar is `sidecars.contract.status.PORT`.
"""

from typing import Final

SLURMCTLD: Final = 6817
SLURMD: Final = 6818
SLURMDBD: Final = 6819
SLURMRESTD: Final = 6820
