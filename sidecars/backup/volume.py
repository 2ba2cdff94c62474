"""The volume of the backups: their names, whether they are complete, and which are deleted."""

import errno
import gzip
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

STATE: Final = "state.tar.gz"
DUMP: Final = "database.sql"
"""The dump of the database, as mariadb-dump has written it."""
DATABASE: Final = "database.sql.gz"
MANIFEST: Final = "backup.json"
UNFINISHED: Final = ".unfinished-"
LATEST: Final = "latest"

_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_END_OF_DUMP = b"-- Dump completed"
_CHUNK = 1 << 20


class BackupError(RuntimeError):
    """A backup that can't be completed or used: which one, why, and the remedy."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a backup: its size in bytes, and its SHA-256 in hexadecimal digits."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup: its name, which is the time in UTC at which it was completed, and its
    files by name.
    """

    name: str
    files: Mapping[str, File]


def name_at(now: float) -> str:
    """Return the name of a backup that is completed at this time, in seconds since the epoch."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H%M%SZ")


def named(text: str) -> bool:
    """Return whether this is the name of a backup."""
    return _NAME.fullmatch(text) is not None


def expired(names: Sequence[str], keep: int) -> tuple[str, ...]:
    """Return the names of the oldest backups, which are deleted so that `keep` remain."""
    return tuple(sorted(names)[: max(0, len(names) - keep)])


def begin(volume: Path, pod: str, now: float, abandoned_after: float) -> Path:
    """Return the folder for a new backup. Deletes unfinished ones: of this pod, and after
    `abandoned_after` seconds.
    """
    for folder in sorted(volume.glob(f"{UNFINISHED}*")):
        if now - folder.stat().st_mtime > abandoned_after:
            shutil.rmtree(folder)
    return begin_copy(volume, pod)


def begin_copy(volume: Path, pod: str) -> Path:
    """Return the empty folder for a backup that comes from elsewhere. Deletes an unfinished one of
    this pod.
    """
    own = volume / f"{UNFINISHED}{pod}"
    if own.exists():
        shutil.rmtree(own)
    own.mkdir(mode=0o700)
    return own


def finish_copy(volume: Path, folder: Path, name: str) -> Backup:
    """Give the folder the name of the backup that it is a copy of. Raises BackupError if it isn't
    as it was saved.

    State and database may be restored at the same time, by pods that each bring the backup: the
    first one's stays.
    """
    backup = Backup(name, _read(folder).files)
    _check(folder, backup)
    try:
        _settle(volume, folder, backup)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(folder)
        return _read(volume / name)
    return backup


def finish(volume: Path, pod: str, database: bool, now: float) -> Backup:
    """Check the files of the new backup, and give it its name. Raises BackupError and OSError."""
    folder = volume / f"{UNFINISHED}{pod}"
    if database:
        _compress_dump(folder / DUMP, folder / DATABASE)
    names = [name for name in (STATE, DATABASE) if (folder / name).exists()]
    if not names:
        raise BackupError(
            f"{folder} contains no file. Read the logs of the pod's other containers."
        )
    files = {name: _measured(folder / name) for name in names}
    backup = Backup(name_at(now), files)
    entries = {name: {"size": file.size, "sha256": file.sha256} for name, file in files.items()}
    text = json.dumps({"name": backup.name, "files": entries}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    _settle(volume, folder, backup)
    return backup


def backups(volume: Path) -> list[Backup]:
    """Return the complete backups, oldest first. Other folders and files of the volume are left
    alone.

    One whose description can't be read is skipped with a warning: it neither counts nor is deleted.
    """
    found = []
    for folder in sorted(path for path in volume.iterdir() if _NAME.fullmatch(path.name)):
        if (folder / MANIFEST).exists():
            try:
                found.append(_read(folder))
            except BackupError as error:
                log.warning("the backup %s is skipped: %s", folder.name, error)
    return found


def described(volume: Path, name: str) -> Backup | None:
    """Return the backup with this name, its files unchecked, or None without one. Raises
    BackupError if it can't be read.
    """
    return (
        _read(volume / name)
        if _NAME.fullmatch(name) and (volume / name / MANIFEST).exists()
        else None
    )


def choose(volume: Path, name: str) -> Backup:
    """Return the backup with this name, or the newest for "latest", with its files checked. Raises
    BackupError and OSError.
    """
    chosen = described(volume, name)
    if chosen is None:
        found = backups(volume)
        if name != LATEST or not found:
            there = ", ".join(backup.name for backup in found[-3:]) or "none"
            raise BackupError(f"{volume} has no backup `{name}`. The newest there: {there}.")
        chosen = found[-1]
    _check(volume / chosen.name, chosen)
    return chosen


def delete_expired(volume: Path, keep: int) -> tuple[str, ...]:
    """Delete all backups but the newest `keep`; the names of those that were deleted."""
    names = expired([backup.name for backup in backups(volume)], keep)
    for name in names:
        shutil.rmtree(volume / name)
    return names


def _check(folder: Path, backup: Backup) -> None:
    """Raise BackupError if a file isn't as the backup records it."""
    for file, recorded in backup.files.items():
        path = folder / file
        if not path.exists() or _measured(path) != recorded:
            raise BackupError(
                f"{path} isn't the file that was saved: it was changed or is damaged. Choose "
                "another backup."
            )


def _settle(volume: Path, folder: Path, backup: Backup) -> None:
    """Write all of the folder to the disk, and then rename it to its final name."""
    for path in (*(folder / name for name in backup.files), folder / MANIFEST, folder):
        _to_disk(path)
    folder.rename(volume / backup.name)
    _to_disk(volume)


def _read(folder: Path) -> Backup:
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        files = {
            name: File(int(entry["size"]), str(entry["sha256"]))
            for name, entry in content["files"].items()
        }
        return Backup(folder.name, files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(
            f"{path} can't be read ({error}). Move the folder off the volume."
        ) from error


def _compress_dump(dump: Path, target: Path) -> None:
    """Replace the dump with its compressed copy. A dump that was interrupted lacks its last
    line.
    """
    if not dump.exists():
        raise BackupError(f"{dump} doesn't exist. Read the log of the container `database`.")
    last = b""
    with dump.open("rb") as stream, gzip.open(target, "wb", compresslevel=4) as out:
        while chunk := stream.read(_CHUNK):
            out.write(chunk)
            last = (last + chunk)[-256:]
    if _END_OF_DUMP not in last:
        raise BackupError(
            f"{dump} has no end: mariadb-dump was interrupted. Read the log of the container "
            "`database`."
        )
    dump.unlink()


def _measured(path: Path) -> File:
    with path.open("rb") as stream:
        return File(path.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest())


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
