"""The user's unpacked images: one import of each image, however many tasks on however many nodes
ask for it.

Each user has a folder of their own in the cache, which nobody else can read or change: an image
that another user unpacked can't be trusted, and one from a private registry isn't for everyone.
Layout of that folder:

    images/KEY/rootfs       the unpacked image, complete as soon as the folder KEY exists. KEY is
                            name_NAME for a container with a name
    images/KEY/config.json  the image's configuration
    images/.KEY.…           one that is being unpacked, or was when its job ended
    tags/…                  digests of tags
    locks/KEY.import        locked by the task that unpacks KEY
    locks/KEY.use           locked by all that use KEY, or by the one that deletes it

Locks are flock(2), which NFS and most cluster file systems pass on to all nodes, and which end with
their process.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sidecars.containers.errors import ContainerError
from sidecars.containers.locks import UNKNOWN, Attempt, Locks, failed

_ROOTFS: Final = "rootfs"
_CONFIG: Final = "config.json"
_NAMED: Final = "name_"

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONTAINER: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")

_NEEDED: Final = ("dev", "etc", "proc", "sys", "tmp")
_NEEDED_FILES: Final = ("group", "hosts", "passwd", "resolv.conf")
"""Of /etc. ch-run mounts these folders and files, which images for a single program may lack."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When an unpacked image that nobody uses is deleted."""

    max_bytes: int
    """Of all of a user's images. 0: no limit."""

    max_age_seconds: float
    """Since its last use. 0: no limit."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An unpacked image."""

    root: Path
    config: dict[str, Any]
    """Its configuration: `Env`, `WorkingDir` and others."""

    lock: int
    """A file descriptor. The image isn't deleted while a process has it open."""


class Cache:
    """The user's part of the cache in the folder `root`."""

    def __init__(
        self,
        root: Path,
        limits: Limits,
        wait_seconds: float,
        clock: Callable[[], float] = time.time,
        attempt: Attempt = UNKNOWN,
    ) -> None:
        """`wait_seconds`: the longest time that another task's import may take. Raises
        ContainerError.
        """
        self._root = root
        self._limits = limits
        self._wait = wait_seconds
        self._clock = clock
        self._own = root / str(os.geteuid())
        self._locks = Locks(self._own / "locks", wait_seconds, attempt)
        try:
            for folder in (self._own, *(self._own / name for name in ("images", "tags", "locks"))):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise failed(self._own, error) from None
        found = self._own.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ContainerError(
                f"image cache: {self._own} isn't a folder of your own that nobody else can read: "
                "an administrator must delete it"
            )

    def digest(self, name: str, seconds: float, resolve: Callable[[], str]) -> str:
        """Return the digest of an image's tag: the known one for `seconds`, else what `resolve`
        returns. One task asks. Raises ContainerError, also that of another task that asked (see
        Attempt).
        """
        key = hashlib.sha256(name.encode()).hexdigest()
        file = self._own / "tags" / key

        def known() -> str | None:
            with suppress(OSError, ValueError):
                age = self._clock() - file.stat().st_mtime
                found = file.read_text()
                # The nodes' clocks may differ a little.
                if abs(age) < seconds and found.startswith("sha256:"):
                    return found
            return None

        def ask() -> str:
            digest = resolve()
            try:
                _replace(file, digest)
                os.utime(file, (self._clock(), self._clock()))
            except OSError as error:
                raise failed(file, error) from None
            return digest

        return self._locks.once(f"{key}.tag", "the digest of the tag", known, ask)

    def get(self, digest: str, fetch: Callable[[Path], dict[str, Any]]) -> Unpacked:
        """Return the image with this digest. If it doesn't exist, `fetch` unpacks it into an empty
        folder and returns its configuration; other tasks wait for that. Raises ContainerError, also
        that of another task (see Attempt).
        """
        return self._get(f"{digest.removeprefix('sha256:')}-{os.uname().machine}", fetch)

    def container(self, name: str, image: Callable[[], Unpacked] | None) -> Unpacked:
        """Return the container with this name, which its user can change. If it doesn't exist, it
        is a copy of `image`.

        Other tasks wait for the copy. `image`: None if none is named. Raises ContainerError.
        """
        if not _CONTAINER.fullmatch(name):
            raise ContainerError(f"--container-name={name}: use up to 63 letters, digits, - and _")

        def fetch(root: Path) -> dict[str, Any]:
            if image is None:
                raise ContainerError(
                    f"{os.uname().nodename} has no container of yours with the name {name}: add "
                    "--container-image"
                )
            found = image()
            try:
                _copy(found.root, root, self._wait)
            finally:
                os.close(found.lock)
            return found.config

        # Another job may name another image, or none.
        return self._get(f"{_NAMED}{name}", fetch, jobs=False)

    def _get(
        self, key: str, fetch: Callable[[Path], dict[str, Any]], *, jobs: bool = True
    ) -> Unpacked:
        folder = self._own / "images" / key
        while True:
            lock = self._locks.shared(f"{key}.use")
            try:
                config = json.loads((folder / _CONFIG).read_text())
                os.utime(folder, (self._clock(), self._clock()))
            except FileNotFoundError:
                os.close(lock)
            except (OSError, ValueError) as error:
                os.close(lock)
                raise ContainerError(
                    f"image cache: {folder}: {error}: delete this folder"
                ) from None
            else:
                return Unpacked(folder / _ROOTFS, config, lock)
            self._locks.once(
                f"{key}.import",
                "the import of the image by another task",
                lambda: folder if folder.exists() else None,
                lambda: self._import(key, folder, fetch),
                jobs=jobs,
            )
            # The task doesn't depend on it.
            with suppress(ContainerError, OSError):
                self.collect(keep=key)

    def _import(self, key: str, folder: Path, fetch: Callable[[Path], dict[str, Any]]) -> Path:
        """Unpack under another name, so that a folder with the right name is complete. The caller
        holds the lock.
        """
        self._remove_partial(key)
        try:
            making = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=folder.parent))
        except OSError as error:
            raise failed(folder.parent, error) from None
        try:
            root = making / _ROOTFS
            root.mkdir(mode=0o755)
            config = fetch(root)
            complete(root)
            (making / "bytes").write_text(str(size(root)))
            (making / _CONFIG).write_text(json.dumps(config))
            making.rename(folder)
            return folder
        except OSError as error:
            raise failed(folder.parent, error) from None
        finally:
            if making.exists():
                delete(making)

    def _remove_partial(self, key: str) -> None:
        for abandoned in (self._own / "images").glob(f".{key}.*"):
            delete(abandoned)

    def collect(self, keep: str = "") -> list[str]:
        """Delete what was abandoned, images that are too old, and the least recently used ones of
        too many.

        Never one that is in use, or `keep`. Returns the keys of those that were deleted.
        """
        images = self._own / "images"
        for abandoned in images.glob(".*"):
            key = abandoned.name[1:].split(".")[0]
            if key != keep:
                with self._locks.alone(f"{key}.import") as alone:
                    if alone:
                        delete(abandoned)
        found = sorted(
            (used, folder) for folder in images.iterdir() if (used := _used(folder)) is not None
        )
        sizes = {
            folder: self._bytes(folder, used) if self._limits.max_bytes else 0
            for used, folder in found
        }
        total = sum(sizes.values())
        deleted = []
        for used, folder in found:
            old = (
                self._limits.max_age_seconds and self._clock() - used > self._limits.max_age_seconds
            )
            many = self._limits.max_bytes and total > self._limits.max_bytes
            if folder.name == keep or not (old or many):
                continue
            with self._locks.alone(f"{folder.name}.use") as alone:
                if alone:
                    total -= sizes[folder]
                    gone = folder.with_name(f".{folder.name}.deleted")
                    with suppress(OSError):
                        folder.rename(gone)
                        delete(gone)
                        deleted.append(folder.name)
        return deleted

    def _bytes(self, folder: Path, used: float) -> int:
        """Return the size of an image, or that of a container with a name, measured after its last
        use.
        """
        file = folder / "bytes"
        with suppress(OSError, ValueError):
            known, *measured = file.read_text().split()
            if not folder.name.startswith(_NAMED) or measured == [repr(used)]:
                return int(known)
        with self._locks.alone(f"{folder.name}.use") as alone:
            unused = alone
        # Without the lock, for which tasks would wait.
        found = size(folder / _ROOTFS)
        if unused and _used(folder) == used:
            with suppress(OSError):
                file.write_text(f"{found} {used!r}")
        return found


def complete(root: Path) -> None:
    """Create the folders and files of an image that ch-run needs. Follows no symbolic link of the
    image.
    """
    for name in _NEEDED:
        with suppress(FileExistsError):
            (root / name).mkdir(mode=0o1777 if name == "tmp" else 0o755)
    if (root / "etc").is_dir() and not (root / "etc").is_symlink():
        for name in _NEEDED_FILES:
            file = root / "etc" / name
            if file.is_symlink():
                # It would be followed outside of the image.
                file.unlink()
            if not file.exists():
                file.touch(mode=0o644)


def size(root: Path) -> int:
    """Return the bytes on disk of all files below. A file with several names counts once for
    each.
    """
    total = 0
    for folder, _, files in os.walk(root):
        for name in files:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_blocks * 512
    return total


def delete(folder: Path) -> None:
    """Delete a folder, also with folders in it that its owner can't write. What can't be deleted
    stays.
    """
    # By descriptors: a process that runs in the folder may replace a folder by a link while it is
    # walked.
    for _, _, _, descriptor in os.fwalk(folder):
        with suppress(OSError):
            os.fchmod(descriptor, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _copy(source: Path, target: Path, seconds: float) -> None:
    """Fill an empty folder with what is in another one. Where the file system can, the files share
    their blocks.
    """
    # Root of a user namespace reads also files that their owner can't, such as /etc/shadow of some
    # images.
    become = ["unshare", "--user", "--map-root-user"]
    command = [
        *become,
        "cp",
        "--archive",
        "--reflink=auto",
        "--no-target-directory",
        str(source),
        str(target),
    ]
    environment = {"PATH": _PATH, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ContainerError(f"{source} couldn't be copied within {seconds:g} s") from None
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise ContainerError(f"{source} can't be copied: {first[:500]}")


def _replace(file: Path, text: str) -> None:
    new = file.with_name(f".{file.name}.{os.getpid()}.{os.uname().nodename}")
    new.write_text(text)
    new.rename(file)


def _used(folder: Path) -> float | None:
    if folder.name.startswith("."):
        return None
    with suppress(OSError):
        return folder.stat().st_mtime
    return None
