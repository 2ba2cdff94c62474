"""The volume with the shared roots of jobs ("jails"), which the SPANK plugin slurm_jail reads.

    versions/NAME/root       what jobs see as their root
    versions/NAME/complete   JSON: source, digest and time. It exists if the version is complete
    current                  a symbolic link to versions/NAME: the version that jobs have
    mounts                   what pam_slurm_jail mounts for sessions, a path in each line
    .lock                    locked by the process that changes the volume

A version is unpacked under another name, gets `complete` last, and is then renamed. So a version is
complete or doesn't exist, whenever a process is killed.
"""

import fcntl
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sidecars.containers import cache
from sidecars.containers.errors import ContainerError
from sidecars.containers.locks import flock
from sidecars.containers.mounts import SCRATCH

ALWAYS: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",  # noqa: S108
    "/var/spool/slurmd",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
)
"""What the plugin mounts in each jail."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_COMPLETE: Final = "complete"
_ROOT: Final = "root"
_FILES: Final = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/passwd", "/etc/group")
"""Mounts that are files, also where this process doesn't have them."""


class Volume:
    """The volume at `folder`. Its folders belong to root, and no one else can write to them."""

    def __init__(self, folder: Path, owner: int = 0) -> None:
        """`owner`: user and group of the folders. Raises ContainerError if no such folder
        exists.
        """
        self._folder = folder
        self._owner = owner
        self._versions = folder / "versions"
        if not folder.is_dir():
            raise ContainerError(f"{folder}: isn't a folder: mount the volume of the jail here")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone in the block: other processes wait. What killed ones left is deleted."""
        lock = os.open(
            self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            flock(lock, fcntl.LOCK_EX, self._folder / ".lock")
            # A volume of Kubernetes may be writable for all. The plugin refuses such a jail.
            # Outside of a jail, nobody but root may reach the set-user-ID programs of its image.
            for place, mode in ((self._folder, 0o755), (self._versions, 0o700)):
                place.mkdir(exist_ok=True)
                os.chown(place, self._owner, self._owner)
                place.chmod(mode)
            for abandoned in self._versions.glob(".*"):
                cache.delete(abandoned)
            yield
        finally:
            os.close(lock)

    def fill(self, name: str, source: str, unpack: Callable[[Path], str]) -> bool:
        """Have the version `name` exist. `unpack` fills an empty folder and returns the digest of
        what it unpacked.

        A complete version is left as it is; returns whether it had to be filled. Raises
        ContainerError if it is of another source, or if `unpack` does: then nothing has changed.
        The caller holds the lock.
        """
        version = self._versions / check(name)
        if version.exists():
            known = self.facts(name)
            if known["source"] != source:
                raise ContainerError(
                    f"version {name} was filled from {known['source']}, and not from {source}: "
                    "give the other content a name of its own, or set no image, tarball or claim "
                    "to have this version again"
                )
            return False
        making = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self._versions))
        try:
            root = making / _ROOT
            root.mkdir()
            digest = unpack(root)
            if not any(root.iterdir()):
                raise ContainerError(f"{source} is empty")
            for folder in (making, root):
                os.chown(folder, self._owner, self._owner)
                folder.chmod(0o755)
            os.sync()
            _write(making / _COMPLETE, json.dumps({"source": source, "digest": digest}))
            making.rename(version)
        finally:
            if making.exists():
                cache.delete(making)
        return True

    def facts(self, name: str) -> dict[str, Any]:
        """Read `complete` of a version: `source` and `digest`. Raises ContainerError if the version
        isn't complete.
        """
        file = self._versions / name / _COMPLETE
        try:
            found = json.loads(file.read_text())
            return {"source": str(found["source"]), "digest": str(found["digest"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ContainerError(
                f"{file}: {error!r}: this version isn't complete. To fill it again, delete its "
                "folder"
            ) from None

    def prepare(self, name: str, mounts: Sequence[str]) -> None:
        """Create what is mounted over, so that workers need not write to the volume. Raises
        ContainerError.

        Then `mounts` of the volume has these paths.
        """
        root = os.open(
            self._versions / check(name) / _ROOT,
            os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
        )
        try:
            # ch-run of a job in the jail mounts its scratch space.
            for path in (*ALWAYS, SCRATCH, *mounts):
                _mount_point(root, path)
        finally:
            os.close(root)
        new = self._folder / ".mounts"
        new.unlink(missing_ok=True)
        _write(new, "\n".join(mounts))
        new.rename(self._folder / "mounts")

    def switch(self, name: str) -> str | None:
        """Have jobs that start from now on see this version. Returns the one that they saw before,
        if any.

        That one is the youngest from now on, see `prune`: jobs still run in it.
        """
        self.facts(name)
        link = self._folder / "current"
        before = self.current()
        if before is not None and before != name:
            with suppress(FileNotFoundError):
                os.utime(self._versions / before)
        new = self._folder / ".current"
        new.unlink(missing_ok=True)
        new.symlink_to(f"versions/{name}")
        new.rename(link)
        return before

    def current(self) -> str | None:
        """Return the version that jobs see."""
        try:
            return (self._folder / "current").readlink().name
        except OSError:
            return None

    def prune(self, keep: int, protected: Collection[str]) -> list[str]:
        """Delete versions beyond `keep`, never the current one or `protected` ones. Returns their
        names.

        Those that jobs saw, or that were filled, longest ago are deleted first.
        """
        stay = {self.current(), *protected}
        old = sorted(
            (
                item
                for item in self._versions.iterdir()
                if item.name not in stay and not item.name.startswith(".")
            ),
            key=lambda item: item.lstat().st_mtime,
        )
        gone = old[: max(0, len(old) - keep)]
        for version in gone:
            hidden = version.with_name(f".{version.name}.deleted")
            version.rename(hidden)
            cache.delete(hidden)
        return [version.name for version in gone]


def check(name: str) -> str:
    """Return the name of a version, as the plugin knows it. Raises ContainerError."""
    if not _NAME.fullmatch(name) or name == "none":
        raise ContainerError(
            f"{name!r} isn't the name of a version: use a-z, 0-9, `.` and `-`, and not `none`"
        )
    return name


def _write(file: Path, text: str) -> None:
    with file.open("w") as out:
        out.write(f"{text}\n")
        out.flush()
        os.fsync(out.fileno())
    file.chmod(0o644)


def _mount_point(root: int, path: str) -> None:
    """Create a folder or an empty file at `path`. A symbolic link of the jail is replaced there,
    and an error before.
    """
    *folders, last = [part for part in path.split("/") if part]
    here = os.dup(root)
    try:
        for part in folders:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=here)
            below = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here
            )
            os.close(here)
            here = below
        with suppress(FileNotFoundError):
            found = os.lstat(last, dir_fd=here)
            if not stat.S_ISLNK(found.st_mode):
                return
            os.unlink(last, dir_fd=here)
        if path in _FILES or Path(path).is_file():
            os.close(
                os.open(
                    last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=here
                )
            )
        else:
            os.mkdir(last, 0o755, dir_fd=here)
    except OSError as error:
        raise ContainerError(
            f"{path} can't be created in the jail: {error.strerror}: no part of it may be a file "
            "or a link there"
        ) from None
    finally:
        os.close(here)
