"""The libraries and tools of the NVIDIA driver, which must be those of the node's kernel and so are
not in images.

They are mounted file by file, because they lie among other libraries in slurmd's container. Devices
need nothing: a container sees /dev as the job does, and cgroups confine both.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from sidecars.containers.mounts import Mount

LIBRARY_FOLDERS: Final = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)
TOOL_FOLDERS: Final = ("/usr/local/nvidia/bin", "/usr/bin")

LIBRARIES: Final = "/usr/local/nvidia/lib64"
"""Where containers find the libraries. Images for NVIDIA's GPUs look there already."""

TOOLS: Final = "/usr/local/nvidia/bin"

_LIBRARY: Final = re.compile(
    r"lib(cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[a-z0-9-]+)\.so(\.[0-9.]+)?"
)
_TOOLS: Final = ("nvidia-smi", "nvidia-debugdump")
_GIVEN: Final = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")


def wanted(job: Mapping[str, str]) -> bool:
    """Return whether the job was given GPUs, by the environment that Slurm has set."""
    return any(job.get(name, "") not in ("", "NoDevFiles") for name in _GIVEN)


def mounts(
    libraries: Iterable[str] = LIBRARY_FOLDERS, tools: Iterable[str] = TOOL_FOLDERS
) -> tuple[Mount, ...]:
    """Return the driver's files on this node: those of the first folder that has libcuda. Without a
    driver, none are returned.
    """
    for folder in map(Path, libraries):
        if (folder / "libcuda.so.1").exists():
            names = sorted(
                file.name
                for file in folder.iterdir()
                if _LIBRARY.fullmatch(file.name) and file.exists()
            )
            found = [Mount(f"{folder}/{name}", f"{LIBRARIES}/{name}") for name in names]
            break
    else:
        return ()
    for name in _TOOLS:
        place = next(
            (f"{folder}/{name}" for folder in tools if (Path(folder) / name).exists()), None
        )
        if place:
            found.append(Mount(place, f"{TOOLS}/{name}"))
    return tuple(found)


def add_paths(variables: dict[str, str]) -> None:
    """Have programs find the files."""
    for name, folder in (("LD_LIBRARY_PATH", LIBRARIES), ("PATH", TOOLS)):
        folders = [item for item in variables.get(name, "").split(":") if item]
        if folder not in folders:
            variables[name] = ":".join([*folders, folder])
