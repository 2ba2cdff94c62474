"""Copy the files of slurmctld's StateSaveLocation while slurmctld runs, and put a copy back.

slurmctld writes each file under another name and renames it (save_buf_to_state in Slurm's source),
so an open file never changes. Between two of its system calls the file `job_state` doesn't exist,
only `job_state.old` does.
"""

import gzip
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

USAGE: Final = "assoc_usage"
"""slurmctld's file with the usage of the accounts: with accounting, slurmctld ends if only this
file is missing.
"""
CHECKPOINT_SECONDS: Final = 300.0
"""A slurmctld that has never ended writes that file after this time (PERIODIC_CHECKPOINT in Slurm's
source).
"""
JOBS: Final = "job_state"
"""slurmctld's file with the jobs. It writes the script of a job at once, and this file up to 5
seconds later.
"""
ATTEMPTS: Final = 21
PAUSE_SECONDS: Final = 0.5
"""Before each attempt but the first: 10 seconds in all."""

REPLACED: Final = ".replaced-"
"""Prefix of the folder that keeps what a restore has replaced."""
INCOMING: Final = ".incoming"
"""The folder into which a restore unpacks."""
CLUSTER: Final = "clustername"
"""slurmctld's file with the ClusterName: slurmctld ends if it finds another one."""


class StateError(RuntimeError):
    """The state can't be copied or put back: where, why, and the remedy."""


def until_complete(source: Path, sleep: Callable[[float], None]) -> None:
    """Wait until slurmctld has written a state with which it starts again. Raises StateError if it
    doesn't.
    """
    waited = 0.0
    while not (source / USAGE).exists():
        if waited > CHECKPOINT_SECONDS + 30:
            raise StateError(
                f"slurmctld hasn't written {source / USAGE} for {waited:.0f} s. Check that it runs."
            )
        sleep(1.0)
        waited += 1.0


def save(source: Path, target: Path, sleep: Callable[[float], None]) -> int:
    """Write the files of `source` to `target`, a tar archive compressed with gzip. Returns the
    number of files.

    The files of the jobs (`hash.*`) come last: a job that `job_state` contains then has its script,
    unless it has ended since. Raises StateError, also without any file, and OSError.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            sleep(PAUSE_SECONDS)
        copied = _archive(source, target)
        if not copied:
            raise StateError(
                f"{source} contains no state of slurmctld. Check the claim, and that slurmctld "
                "has started once."
            )
        if not (missing := _missing(source, copied)):
            return len(copied)
    raise StateError(
        f"{source}/{missing} was missing {ATTEMPTS} times. If slurmctld has failed, read its log."
    )


def _archive(source: Path, target: Path) -> set[PurePosixPath]:
    """Return the files in the archive, relative to `source`."""
    copied: set[PurePosixPath] = set()
    with tarfile.open(target, "w:gz", compresslevel=4, format=tarfile.PAX_FORMAT) as archive:
        for path in _files(source):
            name = PurePosixPath(path.relative_to(source))
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            with os.fdopen(descriptor, "rb") as stream:
                archive.addfile(archive.gettarinfo(arcname=str(name), fileobj=stream), stream)
            copied.add(name)
    return copied


def _files(source: Path) -> Iterator[Path]:
    """Regular files: first those of slurmctld itself, then those of the jobs. Not those that are
    being written.
    """
    folders = []
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith((REPLACED, INCOMING)) and entry.name != "lost+found":
                    folders.append(Path(entry))
            elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(".new"):
                yield Path(entry)
    for folder in folders:
        for root, below, names in os.walk(folder):
            below.sort()
            for name in sorted(names):
                path = Path(root, name)
                if _regular(path):
                    yield path


def _regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _missing(source: Path, copied: set[PurePosixPath]) -> str | None:
    """Find a file of slurmctld itself that isn't in the copy: one that exists now, whose former
    version was copied, or that the copied jobs need.
    """
    top = {name.name for name in copied if len(name.parts) == 1}
    with os.scandir(source) as entries:
        now = {
            entry.name
            for entry in entries
            if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".new")
        }
    expected = now | {name.removesuffix(".old") for name in top}
    if any(name.parts[0].startswith("hash.") for name in copied):
        # Before the first job, slurmctld has no such file.
        expected.add(JOBS)
    return min(expected - top, default=None)


def restore(archive: Path, target: Path, stamp: str) -> Path | None:
    """Replace the files of `target` with those of the archive.

    The former files are moved to the folder `.replaced-STAMP`, which is returned; None without any.
    A call that was interrupted is repeated with another stamp: nothing is deleted. Raises
    StateError and OSError.
    """
    incoming = target / INCOMING
    if incoming.exists():
        shutil.rmtree(incoming)
    incoming.mkdir(mode=0o700)
    try:
        _unpack(archive, incoming)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        shutil.rmtree(incoming)
        raise StateError(f"{archive} can't be unpacked: {error}. Choose another backup.") from error
    there, saved = _cluster(target), _cluster(incoming)
    if there and saved and there != saved:
        shutil.rmtree(incoming)
        raise StateError(
            f"{archive} is of the cluster `{saved}`, and {target} of `{there}`. Choose another "
            f"backup, or set clusterName to `{saved}` and delete {target / CLUSTER}."
        )
    former = [
        path
        for path in sorted(target.iterdir())
        if not path.name.startswith((REPLACED, INCOMING)) and path.name != "lost+found"
    ]
    replaced = target / f"{REPLACED}{stamp}"
    if former:
        replaced.mkdir(mode=0o700)
        for path in former:
            path.rename(replaced / path.name)
    for path in sorted(incoming.iterdir()):
        path.rename(target / path.name)
    incoming.rmdir()
    return replaced if former else None


def _unpack(archive: Path, folder: Path) -> None:
    """Write the files of the archive into the empty folder, with mode and time.

    Anything but a folder or a regular file below it is refused: a state has no links. The filters
    of tarfile do the same, but Python 3.11.0 to 3.11.3 don't have them. Raises TarError, EOFError,
    zlib.error and OSError.
    """
    with tarfile.open(archive, "r:gz") as stream:
        for member in stream:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise tarfile.TarError(f"{member.name!r} is outside of the folder")
            path = folder / name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            content = stream.extractfile(member) if member.isreg() else None
            if content is None:
                raise tarfile.TarError(f"{member.name!r} is no regular file")
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as out:
                shutil.copyfileobj(content, out)
            path.chmod(member.mode & 0o755 | 0o600)
            os.utime(path, (member.mtime, member.mtime))


def _cluster(folder: Path) -> str | None:
    """Return the ClusterName of a state, or None if the state doesn't tell."""
    try:
        words = (folder / CLUSTER).read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return None
    return words[0] if words else None
