"""Read-only mounts. ch-run has none, so their sources become read-only in namespaces of the
container's own, in which ch-run then starts.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sidecars.containers.errors import ContainerError
from sidecars.containers.mounts import Mount

_NEW_NAMESPACES: Final = 0x10000000 | 0x00020000
"""CLONE_NEWUSER and CLONE_NEWNS (unshare(2))."""

_BIND: Final = 0x1000 | 0x4000
"""MS_BIND and MS_REC (mount(2))."""

_MOUNT_SETATTR: Final = 442
"""Number of the system call, since Linux 5.12 and on all architectures."""

_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_RDONLY: Final = 1
"""MOUNT_ATTR_RDONLY (mount_setattr(2))."""


def changes(mounts: Iterable[Mount]) -> tuple[tuple[str, bool], ...]:
    """Return the sources to change, parents first, and whether each becomes read-only: those of
    read-only mounts, and below these, those of the others.

    Raises ContainerError for a source that is mounted in both ways.
    """
    of_source: dict[str, bool] = {}
    for mount in mounts:
        if of_source.setdefault(mount.source, mount.read_only) != mount.read_only:
            raise ContainerError(
                f"mount {mount.source}: it is mounted both read-only and writable: remove one"
            )
    found: list[tuple[str, bool]] = []
    protected: tuple[str, ...] = ()
    for source in sorted(of_source, key=lambda source: source.split("/")):
        below = any(f"{source}/".startswith(f"{other}/") for other in protected)
        if of_source[source]:
            protected += (source,)
        if of_source[source] or below:
            found.append((source, of_source[source]))
    return tuple(found)


def apply(sources: Sequence[tuple[str, bool]]) -> None:
    """Move this process into namespaces of its own, in which the sources are read-only or writable.

    Without sources, nothing changes. Must be called before the process has threads. Raises
    ContainerError.
    """
    if not sources:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    _check(libc.unshare(_NEW_NAMESPACES), "namespaces for read-only mounts")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    for source, read_only in sources:
        path = os.fsencode(source)
        place = f"read-only mount of {source}" if read_only else f"writable mount of {source}"
        _check(libc.mount(path, path, None, ctypes.c_ulong(_BIND), None), place)
        attributes = struct.pack(
            "=QQQQ", _RDONLY if read_only else 0, 0 if read_only else _RDONLY, 0, 0
        )
        done = libc.syscall(
            ctypes.c_long(_MOUNT_SETATTR),
            ctypes.c_int(_AT_FDCWD),
            path,
            ctypes.c_uint(_AT_RECURSIVE),
            attributes,
            ctypes.c_size_t(len(attributes)),
        )
        _check(done, place)


def _check(result: int, what: str) -> None:
    if result == 0:
        return
    number = ctypes.get_errno()
    reason = "it needs Linux 5.12" if number == errno.ENOSYS else os.strerror(number)
    raise ContainerError(f"{what}: {reason}: mount it without `ro`")
