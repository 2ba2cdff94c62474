"""What `shipper` remembers of jobs and their files. No decisions."""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sidecars.logs import lines
from sidecars.logs.records import Job, Output, Source

COMPARED = 64
"""Bytes by which a file is recognised that was truncated and written again."""


@dataclass(slots=True)
class Tail:
    """A file that is read."""

    text: lines.Lines
    output: Output | None
    """None: a file of the shared folder."""
    name: str = ""
    source: Source | None = None
    identity: tuple[int, int] | None = None
    """Of the file that was opened last; None before."""
    offset: int = 0
    known_size: int = 0
    """The size when it was last looked at."""
    tried: bool = False
    """Whether it was tried to open it."""
    next_try: float = 0.0
    next_check: float = 0.0
    reported: str = ""
    """The last reason why it wasn't opened."""
    done: bool = False

    before: bytes = b""
    """The bytes before `offset`, as far as they are known: what was truncated and written again
    differs there.
    """

    def begin(self, offset: int) -> None:
        """Continue here. What is before it was dropped, or is in the file since before the job."""
        self.offset, self.before = offset, b""
        if self.source is not None and offset:
            start = max(0, offset - COMPARED)
            try:
                self.before = self.source.read(start, offset - start)
            except OSError:
                # Without it, only a shorter file is recognised.
                return

    def following(self, count: int) -> bytes | None:
        """Return the next bytes, at most `count`, or None if those before have changed. Raises
        OSError.
        """
        if self.source is None:
            return b""
        data = self.source.read(self.offset - len(self.before), len(self.before) + count)
        return data[len(self.before) :] if data.startswith(self.before) else None

    def advance(self, data: bytes) -> None:
        """Note that these bytes, which followed, have been read."""
        self.offset += len(data)
        self.before = (self.before + data[-COMPARED:])[-COMPARED:]

    @property
    def waiting(self) -> int:
        return max(0, self.known_size - self.offset)


@dataclass(slots=True)
class JobState:
    job: Job
    tails: list[Tail] = field(default_factory=list)
    programs: list[Tail] = field(default_factory=list)
    ended: float | None = None
    """When its end was seen."""


@dataclass(slots=True)
class Counters:
    """What has been done since the start."""

    lines: int = 0
    read_bytes: int = 0
    dropped_bytes: int = 0
    refused_files: int = 0
    missing_files: int = 0

    def copy(self) -> "Counters":
        """Return the same numbers."""
        return replace(self)


def fields(node: str, job: Job, stream: str, path: bytes | None = None) -> dict[str, object]:
    """Return the fields of a job's lines, in their order. `path` is that of an output file; None
    for prolog and epilog.
    """
    found: dict[str, object] = {"job": job.id}
    if path is not None:
        found["step"] = "batch"
    if job.array_job is not None and job.array_task is not None:
        found |= {"arrayJob": job.array_job, "arrayTask": job.array_task}
    found |= {
        "user": job.user,
        "uid": job.uid,
        "partition": job.partition,
        "node": node,
        "stream": stream,
    }
    return found if path is None else found | {"file": path.decode("utf-8", "backslashreplace")}


def outputs(paths: Iterable[tuple[bytes, str]]) -> tuple[Output, ...]:
    """Return the files without /dev/null, each once. Both streams in one file count as stdout."""
    found: dict[bytes, str] = {}
    for path, stream in paths:
        if path and posixpath.normpath(path) != b"/dev/null":
            found.setdefault(path, stream)
    return tuple(Output(path, stream) for path, stream in found.items())
