"""The command that a container runs, and ch-run's command line. Pure, but for looks at files."""

import os
import posixpath
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from sidecars.containers.mounts import Mount

BATCH_STEP: Final = 4294967291
"""Slurm's number of the step that runs the batch script."""

_OVERLAY_SINCE: Final = (6, 6)
"""Linux versions from which on a user without privileges can have a writable layer in memory over
an image.
"""

_SHARED: Final = ("/tmp", "/dev/shm")  # noqa: S108
"""Folders that ch-run shares with every container."""


class Writable(Enum):
    """Whether the program can change the image, as an option of ch-run."""

    # Python 3.11.2 replaces an empty tuple by an object of another type.
    NO = ""
    UNTIL_THE_END = "--write-fake"
    KEPT = "--write"


def program(argument: str, job: Mapping[str, str]) -> str:
    """Return the program as the user most likely wrote it.

    srun and slurmstepd replace a name without a folder by the path that it has on the node. It must
    be found again, by the PATH of the image. A path that isn't the result of such a search stays.
    """
    name = posixpath.basename(argument)
    for folder in job.get("PATH", "").split(":"):
        # slurmstepd takes the first that is no folder, whether or not it can be executed.
        found = f"{folder}/{name}"
        if folder.startswith("/") and os.path.exists(found) and not os.path.isdir(found):  # noqa: PTH110, PTH112
            return name if found == argument else argument
    return argument


def working_folder(
    wanted: str | None, here: str, mounts: Sequence[Mount], image: str | None
) -> str:
    """Return the folder in which the container starts: what the user set, else the job's folder if
    it is mounted, else the image's.
    """
    if wanted:
        return wanted
    shared = [*(mount.target for mount in mounts if mount.source == mount.target), *_SHARED]
    if any(here == folder or here.startswith(f"{folder}/") for folder in shared):
        return here
    return image if image and image.startswith("/") else "/"


def has_overlay(release: str) -> bool:
    """Return whether a kernel of this release (`uname -r`) offers a writable layer. False if that
    is unknown.
    """
    numbers = release.split("-")[0].split(".")
    try:
        return (int(numbers[0]), int(numbers[1])) >= _OVERLAY_SINCE
    except (ValueError, IndexError):
        return False


def ch_run(
    root: str,
    *,
    mounts: Sequence[Mount],
    folder: str,
    environment: str,
    writable: Writable,
    command: Sequence[str],
) -> list[str]:
    """ch-run's command line. `environment`: a file of variables that are separated by NUL."""
    return [
        "ch-run",
        *filter(None, [writable.value]),
        "--env-no-expand",
        "--unset-env=*",
        f"--set-env0={environment}",
        *(f"--bind={mount.source}:{mount.target}" for mount in mounts),
        f"--cd={folder}",
        root,
        "--",
        *command,
    ]
