"""The edge of `logs`: opens files, and reads the folder in which prolog and epilog announce jobs.

Users choose the names and the content of their output files, and may be hostile. A file is first
opened with O_PATH, which has no effect on devices, FIFOs and their readers. It is read if it is a
regular file that belongs to the job's user, has no other name, and lies in one of the folders that
the container shares with slurmd. All of this is checked on the open file, so that replacing the
file or a folder of its path changes nothing.

Without `private_files` this process has no rights, and reads what all users may read. With it, the
process takes on the user of the job while it opens a file, so that it opens nothing that the user
can't.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sidecars.logs import patterns
from sidecars.logs.records import NO_TASK, Job, Missing, Output, Refused, Source
from sidecars.logs.shipper import HEALTH
from sidecars.logs.tails import outputs

MAX_RECORD_BYTES = 65_536
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# With O_NONBLOCK, a lease that the owner has taken on the file delays nothing.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NAME = re.compile(r"([0-9]{1,10}-[0-9]{1,10})\.(job|end|prolog|epilog)")


class OpenFile:
    """A file by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        facts = os.fstat(descriptor)
        self._identity = (facts.st_dev, facts.st_ino)

    def size(self) -> int:
        """Return the size of the file in bytes. Raises OSError."""
        return os.fstat(self._descriptor).st_size

    def changed(self) -> float:
        """Return when the content last changed, in seconds since the epoch. Raises OSError."""
        return os.fstat(self._descriptor).st_mtime

    def identity(self) -> tuple[int, int]:
        """Return device and inode of the file."""
        return self._identity

    def read(self, offset: int, count: int) -> bytes:
        """Read at most `count` bytes at `offset`, b"" at the end. Raises OSError."""
        return os.pread(self._descriptor, count, offset)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


@contextmanager
def _as_nobody_else(_user: int, _group: int) -> Iterator[None]:
    yield


@contextmanager
def as_user(user: int, group: int) -> Iterator[None]:
    """Act as this user while a file is opened. The process needs root as its saved user, and runs
    as another one.
    """
    own_user, own_group, own_groups = os.geteuid(), os.getegid(), os.getgroups()
    os.seteuid(0)
    try:
        os.setgroups([group])
        os.setegid(group)
        os.seteuid(user)
        yield
    finally:
        os.seteuid(0)
        os.setegid(own_group)
        os.setgroups(own_groups)
        os.seteuid(own_user)


def drop_root(user: int) -> None:
    """Run as this user, with root as the saved user only, for `as_user`."""
    os.setgroups([])
    os.setresgid(user, user, 0)
    os.setresuid(user, user, 0)


@dataclass(frozen=True, slots=True)
class RealFiles:
    """The files of this pod."""

    inbox: Path
    """The shared folder."""
    folders: Sequence[str]
    """Folders in which output files may lie: absolute, without symbolic links."""
    private: bool = False
    writer: int = 0
    """User ID of prolog, epilog and health checks: root."""

    def open_output(self, job: Job, output: Output) -> Source | Missing | Refused:
        """Return the job's file, if it may be printed."""
        within = as_user if self.private else _as_nobody_else
        with within(job.uid, job.gid):
            return self._open(output.path, job.uid)

    def open_program(self, name: str) -> Source | Missing | Refused:
        """Return a file of the shared folder, written by root."""
        return _open(
            os.fsencode(self.inbox / name), lambda facts, _path: _unfit(facts, self.writer)
        )

    def remove(self, name: str) -> None:
        """Delete a file of the shared folder, if it exists."""
        try:
            (self.inbox / name).unlink()
        except OSError:
            # It is read again then, and deleted later.
            return

    def _open(self, path: bytes, owner: int) -> Source | Missing | Refused:
        if not self._is_below(os.path.normpath(path)):
            return Refused(
                "it isn't on a volume of the slurmd container that this container shares"
            )

        def check(facts: os.stat_result, real: bytes) -> str:
            unfit = _unfit(facts, owner)
            if unfit:
                return unfit
            if not self._is_below(real):
                return "its path leads out of the volumes of the slurmd container"
            if not self.private and not facts.st_mode & stat.S_IROTH:
                return (
                    f"it is private (mode {stat.S_IMODE(facts.st_mode):04o}); see "
                    "jobLogs.privateFiles"
                )
            return ""

        return _open(path, check)

    def _is_below(self, path: bytes) -> bool:
        return any(
            path.startswith(os.fsencode(folder.rstrip("/")) + b"/") for folder in self.folders
        )


def _unfit(facts: os.stat_result, owner: int) -> str:
    if not stat.S_ISREG(facts.st_mode):
        return "it isn't a regular file"
    if facts.st_uid != owner:
        return f"it belongs to the user {facts.st_uid}, not {owner}"
    if facts.st_nlink > 1:
        return "it has several names (hard links)"
    return ""


def _open(path: bytes, check: Callable[[os.stat_result, bytes], str]) -> Source | Missing | Refused:
    """Open a file for reading if `check`, with its facts and its real path, finds nothing wrong
    with it.
    """
    try:
        looked = os.open(path, _LOOK)
    except PermissionError:
        return Refused("a folder of its path is private; see jobLogs.privateFiles")
    except OSError:
        return Missing()
    try:
        proc = f"/proc/self/fd/{looked}"
        facts = os.fstat(looked)
        if stat.S_ISLNK(facts.st_mode):
            return Refused("it is a symbolic link")
        wrong = check(facts, os.fsencode(Path(proc).readlink()))
        if wrong:
            return Refused(wrong)
        return OpenFile(os.open(proc, _READ))
    except PermissionError:
        return Refused("it is private; see jobLogs.privateFiles")
    except OSError:
        return Missing()
    finally:
        os.close(looked)


# ---- the shared folder
# ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """What is in the shared folder."""

    jobs: list[Job] = field(default_factory=list)
    """New and changed ones."""
    ended: list[str] = field(default_factory=list)
    """Keys of jobs that have ended."""
    programs: list[tuple[str, str, str]] = field(default_factory=list)
    """Files of prolog and epilog: name, key of the job, and stream."""
    health: bool = False
    """Whether a file with the output of health checks exists."""
    faults: list[str] = field(default_factory=list)
    """What is wrong with new records, in words."""


class Shelf:
    """Reads the shared folder, each record only when it has changed."""

    def __init__(self, files: RealFiles, node: str) -> None:
        self._files = files
        self._node = node
        self._seen: dict[str, tuple[int, int]] = {}

    def scan(self) -> Found:
        """Scan the folders, and return what has been found. Raises OSError."""
        found = Found()
        present: set[str] = set()
        with os.scandir(self._files.inbox) as entries:
            for entry in entries:
                if entry.name == HEALTH:
                    found.health = True
                name = _NAME.fullmatch(entry.name)
                if name is None:
                    continue
                key, kind = name[1], name[2]
                if kind == "end":
                    found.ended.append(key)
                elif kind != "job":
                    found.programs.append((entry.name, key, kind))
                else:
                    present.add(key)
                    self._record(entry, key, found)
        self._seen = {key: seen for key, seen in self._seen.items() if key in present}
        return found

    def _record(self, entry: "os.DirEntry[str]", key: str, found: Found) -> None:
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:
            return
        version = (facts.st_ino, facts.st_mtime_ns)
        if self._seen.get(key) == version:
            return
        source = self._files.open_program(entry.name)
        if isinstance(source, Missing):
            return
        self._seen[key] = version
        if isinstance(source, Refused):
            found.faults.append(f"the record of job {key} is not used: {source.why}")
            return
        try:
            job = read_job(source.read(0, MAX_RECORD_BYTES + 1), self._node, facts.st_mtime)
            if job.key != key:
                raise ValueError(f"it is of job {job.key}")
            found.jobs.append(job)
        except (OSError, ValueError) as error:
            found.faults.append(f"the record of job {key} can't be read: {error}")
        finally:
            source.close()


def read_job(data: bytes, node: str, began: float) -> Job:
    """Read the job in a record of the prolog: items `key=value`, each ended by a zero byte. Raises
    ValueError.
    """
    if len(data) > MAX_RECORD_BYTES or not data.endswith(b"\0"):
        raise ValueError("it is too long, or incomplete")
    items: dict[str, bytes] = {}
    for item in data[:-1].split(b"\0"):
        name, equals, value = item.partition(b"=")
        if not equals:
            raise ValueError(f"{item[:40]!r} isn't an item")
        items[name.decode("ascii", "replace")] = value
    number, uid, gid = (_number(items, key) for key in ("job", "uid", "gid"))
    if number is None or uid is None or gid is None:
        raise ValueError("job, uid or gid is missing")
    array_job, array_task = _number(items, "arrayJob"), _number(items, "arrayTask")
    values = _values(items, number, node, array_job, array_task)
    paths: list[tuple[bytes, str]] = []
    unknown = ""
    for key, stream in (("stdout", "stdout"), ("stderr", "stderr")):
        pattern = items.get(key, b"")
        if not pattern:
            continue
        try:
            paths.append((patterns.expand(pattern, items.get("workDir", b""), values), stream))
        except patterns.UnknownNameError as error:
            unknown = f"the name of the file for {stream} isn't known: {error}"
    return Job(
        id=number,
        uid=uid,
        gid=gid,
        user=items.get("user", b"").decode("utf-8", "backslashreplace"),
        partition=items.get("partition", b"").decode("utf-8", "backslashreplace"),
        outputs=outputs(paths),
        array_job=array_job if array_task is not None else None,
        array_task=array_task,
        restarts=_number(items, "restarts") or 0,
        began=began,
        unknown=unknown,
    )


def _values(
    items: Mapping[str, bytes],
    number: int,
    node: str,
    array_job: int | None,
    array_task: int | None,
) -> dict[str, bytes | int]:
    """Return the values of the fields of a file's name. Those that only slurmctld knows are missing
    if it didn't answer.
    """
    values: dict[str, bytes | int] = {
        "J": number,
        "j": number,
        "N": node.encode(),
        "n": 0,
        "r": _number(items, "restarts") or 0,
        "S": items.get("sluid", b""),
        "s": b"batch",
        "t": 0,
        "u": items.get("user", b""),
    }
    if "name" in items:
        task = NO_TASK if array_task is None else array_task
        values |= {"A": array_job or number, "a": task, "b": task % 10, "x": items["name"]}
    return values


def _number(items: Mapping[str, bytes], key: str) -> int | None:
    text = items.get(key, b"")
    return int(text) if text.isdigit() and len(text) <= 10 else None
