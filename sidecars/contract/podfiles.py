"""The files that the containers of a worker pod share: an emptyDir at /run/slurm-node in register,
node and slurmd.

| file | written by | content |
|---|---|---|
| conf, extra, instance-id | register | slurmd's options --conf, --extra and --instance-id |
| shape | register | what slurmd is about to register (`sidecars.contract.shape`) |
| record | node | what happened to the record of an earlier pod of this name; slurmd may start |
| hook/stop | slurmd's preStop hook | its name and the number of slurmstepd, each second |
| released | node | name of the preStop hook that may end |

slurmd's postStart hook removes `hook/stop`.

Jobs run in slurmd's container. There the folder is read-only, except for `hook`, which jobs can't
enter. Files are replaced whole, so that a reader never sees half of one. Standard library only;
knows neither Slurm nor Kubernetes.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from sidecars.contract.environment import SLURM_NODE_DIR

FOLDER = "/run/slurm-node"

CONF = "conf"
EXTRA = "extra"
INSTANCE_ID = "instance-id"
SHAPE = "shape"
RECORD = "record"
HOOK = "hook"
STOP = f"{HOOK}/stop"
RELEASED = "released"

LOG = "log/slurmd"
"""The folder of slurmd's log, on a volume of its own. slurmd mounts only this folder of it."""

JOBS = "logs/slurmd"
"""The same for job logs, in pods with the container `logs`: where prolog and epilog announce jobs.
"""

LOGS_FOLDER = "/run/slurm-logs"
"""Where slurmd mounts that folder. `logs` and `register` mount the volume."""


def folder(environment: Mapping[str, str]) -> Path:
    """Return the shared folder: FOLDER unless the environment's SLURM_NODE_DIR names another."""
    return Path(environment.get(SLURM_NODE_DIR) or FOLDER)


def write(path: Path, text: str) -> None:
    """Replace the file at `path` with `text`, readable by every user of the pod. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o644)
    draft.replace(path)


def create_private(path: Path) -> None:
    """Create a folder that only its owner and root can enter. Raises OSError, also for one that
    others can enter.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_mode & 0o077:
        raise PermissionError(
            f"{path}: users other than its owner can enter it; delete the pod to create it again"
        )
