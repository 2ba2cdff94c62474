"""Batch jobs of checks: what is requested, and how Slurm reports them. No HTTP and no JSON here."""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecars.slurm.job_states import has_ended


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A job that has its nodes to itself and is never requeued."""

    name: str
    script: str
    nodes: tuple[str, ...]
    partition: str
    minutes: int
    deadline: int
    """Seconds since the epoch until which it must have ended."""
    reservation: str = ""
    environment: Sequence[str] = ("PATH=/usr/bin:/bin",)
    """`NAME=VALUE`. Slurm refuses a job without any."""


@dataclass(frozen=True, slots=True)
class CheckJob:
    """The job's record."""

    job_id: int
    states: frozenset[str] = frozenset()
    comment: str = ""
    exit_status: int = 0
    restarts: int = 0
    """How often it was requeued."""

    @property
    def ended(self) -> bool:
        """Whether it has ended: the nodes may still be COMPLETING."""
        return has_ended(self.states)

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return "PENDING" in self.states


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """Why a job of a user waits, and for what."""

    job_id: int
    waits: bool = True
    name: str = ""
    partitions: tuple[str, ...] = ()
    reason: str = ""
    blocked: bool = False
    """Whether it is a held job."""
