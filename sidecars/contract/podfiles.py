"""The files that the containers of a worker pod share: an emptyDir at /run/slurm-node in register, node and slurmd.

| file | written by | content |
|---|---|---|
| conf, extra, instance-id | register | what slurmd starts with as --conf, --extra and --instance-id |
| record | node | what an earlier pod of this name left in Slurm and became of it; slurmd may start |
| stop | slurmd's preStop hook | number of slurmstepd processes, renewed each second; removed when slurmd starts again |
| released | node | the preStop hook may end; removed when slurmd starts again |

Files are replaced whole, so that a reader never sees half of one. Standard library only; knows neither Slurm nor
Kubernetes.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from sidecars.contract.environment import SLURM_NODE_DIR

FOLDER = "/run/slurm-node"

CONF = "conf"
EXTRA = "extra"
INSTANCE_ID = "instance-id"
RECORD = "record"
STOP = "stop"
RELEASED = "released"


def folder(environment: Mapping[str, str]) -> Path:
    """The shared folder: FOLDER unless the environment's SLURM_NODE_DIR names another."""
    return Path(environment.get(SLURM_NODE_DIR) or FOLDER)


def write(path: Path, text: str) -> None:
    """Replace the file at `path` with `text`, readable by every user of the pod. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o644)
    draft.replace(path)
