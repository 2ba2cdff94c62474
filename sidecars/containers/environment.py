"""The environment of a container: that of the job, with what the image sets. Reading is apart;
composing is pure.
"""

import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sidecars.containers.errors import ContainerError

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_OF_THE_JOB: Final = re.compile(
    r"SLURM.*|PMI.*|HOME|USER|LOGNAME|TERM|TZ|(CUDA|NVIDIA|ROCR|HIP|ZE)_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
    r"|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|CONTAINER_.*"
)
"""Variables that say which job this is, whose, and which devices it has. An image can't change
them.
"""

_OF_THE_NODE: Final = frozenset({"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "SHELL"})
"""Variables about files of the node, which are others in an image."""


_OF_THE_CLIENT: Final = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER"})
"""Variables that name files of slurmd's container, which an image doesn't have."""


def own(variables: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the environment of this process (`os.environb`), which Slurm has started in place of
    the task's program.
    """
    found = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}
    return {name: value for name, value in found.items() if name not in _OF_THE_CLIENT}


def read(path: str) -> dict[str, str]:
    """Return the environment that slurmstepd wrote for this task.

    Raises ContainerError unless the file is the user's own in folders that no other user can
    change: anyone may create folders beside it, and would choose the environment of another user's
    job.
    """
    user = os.geteuid()
    try:
        folder = os.open("/", os.O_PATH | os.O_DIRECTORY)
        try:
            *parents, name = [part for part in path.split("/") if part]
            for parent in parents:
                inner = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
                _check(os.fstat(folder), user, path)
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(file, "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ContainerError(f"{path} isn't a file")
            _check(found, user, path)
            content = opened.read()
    except OSError as error:
        raise ContainerError(
            f"{path}: {error.strerror}: slurmstepd should have written the environment here"
        ) from None
    return parse(content)


def _check(found: os.stat_result, user: int, path: str) -> None:
    if found.st_uid not in (0, user):
        raise ContainerError(
            f"{path} is in a folder of user {found.st_uid}, who isn't you: an administrator must "
            "delete that folder"
        )
    others = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    if others:
        raise ContainerError(
            f"{path} can be changed by others: an administrator must look at this node"
        )


def parse(content: bytes) -> dict[str, str]:
    """Variables that are separated by NUL, as in /proc/PID/environ. What isn't NAME=VALUE is left
    out.
    """
    items = (item.partition(b"=") for item in content.split(b"\0"))
    return {
        os.fsdecode(name): os.fsdecode(value) for name, equals, value in items if name and equals
    }


def compose(
    job: Mapping[str, str], image: Sequence[str], prefer: Collection[str] = ()
) -> dict[str, str]:
    """Return the environment in the container.

    `image`: NAME=VALUE items of the image's configuration. They win over the job's, except for
    variables that describe the job and those of `prefer`, which the user wants from the job.
    """
    composed = {
        name: value for name, value in job.items() if name not in _OF_THE_NODE or name in prefer
    }
    composed.setdefault("PATH", DEFAULT_PATH)
    for item in image:
        name, equals, value = item.partition("=")
        if not name or not equals or "\0" in item:
            continue
        if name in job and (name in prefer or _OF_THE_JOB.fullmatch(name)):
            continue
        composed[name] = value
    return composed


def render(variables: Mapping[str, str]) -> bytes:
    """Separated by NUL."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
