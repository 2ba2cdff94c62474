"""The records of `logs`: jobs as the prolog announces them, and what opening a file can end in."""

from dataclasses import dataclass
from typing import Protocol

NO_TASK = 4294967294
"""What Slurm prints for `%a` in the name of a file of a job that isn't an array."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What doesn't change while the pod lives."""

    node: str
    """Name of the Slurm node."""
    bytes_per_second: int
    """Bytes that are printed at most, averaged over a second."""
    backlog_bytes: int
    """Bytes of a file that may wait to be printed. What is older is dropped."""
    private_files: bool = False
    """Whether files are printed that only their owner or its group may read."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a job writes its output to."""

    path: bytes
    stream: str
    """stdout or stderr"""


@dataclass(frozen=True, slots=True)
class Job:
    """A job on this node, as the prolog describes it."""

    id: int
    uid: int
    gid: int
    user: str
    partition: str
    outputs: tuple[Output, ...] = ()
    """Empty for a job without a batch script, and on nodes where the script doesn't run."""
    array_job: int | None = None
    array_task: int | None = None
    restarts: int = 0
    began: float = 0.0
    """When the prolog wrote the record, in seconds since the epoch."""
    unknown: str = ""
    """Why the name of a file isn't known; "" if all are."""

    @property
    def key(self) -> str:
        """What distinguishes it from other jobs, and from itself before it was requeued."""
        return f"{self.id}-{self.restarts}"


@dataclass(frozen=True, slots=True)
class Missing:
    """The file doesn't exist, or can't be opened now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The file is not printed."""

    why: str


class Source(Protocol):
    """An open file."""

    def size(self) -> int:
        """Return the size of the file in bytes. Raises OSError."""
        ...

    def changed(self) -> float:
        """Return when the content last changed, in seconds since the epoch. Raises OSError."""
        ...

    def identity(self) -> tuple[int, int]:
        """Return what distinguishes the file from all other files."""
        ...

    def read(self, offset: int, count: int) -> bytes:
        """Read at most `count` bytes at `offset`, b"" at the end. Raises OSError."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class Files(Protocol):
    """Opens files."""

    def open_output(self, job: Job, output: Output) -> Source | Missing | Refused:
        """Return the job's file, if it may be printed."""
        ...

    def open_program(self, name: str) -> Source | Missing | Refused:
        """Return a file of the shared folder."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file of the shared folder, if it exists."""
        ...
