"""Folders and files of the node that a container sees. The text is pure; `prepare` creates mount
points in an image.
"""

import os
import posixpath
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sidecars.containers.errors import ContainerError

_LINKS: Final = 40
"""As many symbolic links as Linux follows in one path."""

SCRATCH: Final = "/srv"
"""ch-run hides this folder of the node, because it keeps the writable layer of the container there.
"""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the node, and where the container sees it. Both are absolute paths."""

    source: str
    target: str
    read_only: bool = False


def parse(text: str, place: str) -> tuple[Mount, ...]:
    """Return the mounts of `SOURCE[:TARGET[:ro|rw]]`, separated by commas. `place` names the
    setting in messages.

    Without a target, it is the source. Raises ContainerError.
    """
    return tuple(_one(item, place) for item in text.split(",") if item)


def _one(text: str, place: str) -> Mount:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if mode not in ("", "ro", "rw"):
        raise ContainerError(
            f"{place}: {text!r} has the options {mode!r}, but a mount is SOURCE, SOURCE:TARGET or "
            "SOURCE:TARGET:ro"
        )
    for path in (source, target or source):
        if (
            not path.startswith("/")
            or ".." in path.split("/")
            or any(ord(letter) < 32 for letter in path)
        ):
            raise ContainerError(
                f"{place}: {path!r} isn't an absolute path without `..`: write SOURCE:TARGET"
            )
    source, target = posixpath.normpath(source), posixpath.normpath(target or source)
    if target in ("/", "//"):
        raise ContainerError(
            f"{place}: {text!r} would replace the whole image: name another target"
        )
    if source == SCRATCH or source.startswith(f"{SCRATCH}/"):
        raise ContainerError(
            f"{place}: {text!r} is in {SCRATCH}, which the runtime uses itself: mount it elsewhere"
        )
    return Mount(source, target, mode == "ro")


def shows(mount: Mount, path: str) -> bool:
    """Return whether `path` of the node, or something in it, is visible by this mount."""
    return f"{path}/".startswith(f"{mount.source}/") or f"{mount.source}/".startswith(f"{path}/")


def unique(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    """Return the last mount of each target, parents first, so that none hides another."""
    last = {mount.target: mount for mount in mounts}
    return tuple(last[target] for target in sorted(last, key=lambda target: target.split("/")))


def prepare(root: str, mount: Mount) -> Mount:
    """Return the mount with its target as it is in the image at `root`, symbolic links resolved
    within it.

    Creates the mount point if it doesn't exist and the image is writable for the user. Never
    touches anything outside `root`. Raises ContainerError if something else is in its place.
    """
    is_folder = os.path.isdir(mount.source)  # noqa: PTH112 (paths stay text here)
    if not is_folder and not os.path.exists(mount.source):  # noqa: PTH110
        raise ContainerError(f"mount {mount.source}: it doesn't exist on {os.uname().nodename}")
    parts = [part for part in mount.target.split("/") if part]
    here: list[str] = []
    links = 0
    while parts:
        part = parts.pop(0)
        if part in (".", ".."):
            if part == ".." and here:
                here.pop()
            continue
        path = "/".join([root, *here, part])
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            _create(path, folder=is_folder or bool(parts))
            here.append(part)
            continue
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS:
                raise ContainerError(
                    f"mount {mount.target}: the image has too many symbolic links there"
                )
            link = os.readlink(path)  # noqa: PTH115
            if link.startswith("/"):
                here = []
            parts = [step for step in link.split("/") if step] + parts
            continue
        if stat.S_ISDIR(found.st_mode) != (is_folder or bool(parts)):
            kind = "folder" if stat.S_ISDIR(found.st_mode) else "file"
            raise ContainerError(
                f"mount {mount.source}: the image has a {kind} at {mount.target}: name another "
                "target"
            )
        here.append(part)
    return Mount(mount.source, "/" + "/".join(here), mount.read_only)


def _create(path: str, *, folder: bool) -> None:
    try:
        if folder:
            os.mkdir(path, 0o755)  # noqa: PTH102
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644))
    except FileExistsError:
        pass  # Another task was faster.
    except OSError as error:
        raise ContainerError(
            f"mount point {path}: {error.strerror}: create it in the image"
        ) from None
