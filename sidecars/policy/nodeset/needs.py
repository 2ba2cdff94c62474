"""What a decision needs to have read first, and the answers.

A need whose answer is `Pending` or `Failed` is never taken for a good one: what depends on it is
not done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidecars.slurm.records import Job


@dataclass(frozen=True, slots=True)
class Jobs:
    """All jobs of the Slurm cluster, answered by `JobList`: a pod with a suspended job must not be
    deleted.
    """


@dataclass(frozen=True, slots=True)
class Deadlines:
    """When the jobs of the busy nodes end, answered by True once `SlurmView.deadlines` has it."""

    slurm_nodes: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Partitions:
    """Slurm's partitions as they were at `since` or later, answered by a tuple of `Partition`."""

    since: float


@dataclass(frozen=True, slots=True)
class Reservations:
    """Slurm's reservations, our own changes included, answered by a tuple of `Reservation`."""


NAMES = (Jobs(), Reservations())
"""What shows who names a node."""


@dataclass(frozen=True, slots=True)
class NodeRecords:
    """The node records as they were at `since` or later, answered by True once `SlurmView` has
    them.
    """

    since: float


@dataclass(frozen=True, slots=True)
class IsAbsent:
    """Whether Slurm has no node of this name at this moment."""

    slurm_node: str


@dataclass(frozen=True, slots=True)
class SlurmctldStart:
    """When the slurmctld that leads started, answered by seconds since the epoch; by None if nobody
    reports it.
    """


@dataclass(frozen=True, slots=True)
class IsLost:
    """Whether the Kubernetes node does not exist, or is declared out of service, at this moment."""

    kube_node: str


@dataclass(frozen=True, slots=True)
class IsHidden:
    """Whether a pod of this name exists at this moment that the observed ones don't show."""

    pod: str


Need = (
    Jobs
    | Deadlines
    | Partitions
    | Reservations
    | NodeRecords
    | IsAbsent
    | SlurmctldStart
    | IsLost
    | IsHidden
)


@dataclass(frozen=True, slots=True)
class JobList:
    """All jobs."""

    jobs: tuple[Job, ...]
    asked_at: float
    """When they were asked for, by the clock of `Observed.clock`."""


@dataclass(frozen=True, slots=True)
class Known:
    """The need is answered by `value`."""

    value: Any
    at: float = 0.0
    """When, by the clock of `Observed.clock`."""


@dataclass(frozen=True, slots=True)
class Pending:
    """It is still being read. The end of the read starts another pass."""

    why: str = "an answer is waited for"


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be read."""

    why: str
    refused: bool = False
    """Slurm has answered, and will answer the same again."""


Answer = Known | Pending | Failed


def is_yes(answer: Answer) -> bool:
    """Return whether the answer to a need that asks "whether" is known to be yes."""
    return isinstance(answer, Known) and answer.value is True


def is_no(answer: Answer) -> bool:
    """Return whether it is known to be no."""
    return isinstance(answer, Known) and answer.value is False
