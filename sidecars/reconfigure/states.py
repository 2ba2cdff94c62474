"""The state of the state machine of `reconfigure`, and what it sees. Times are seconds of a
monotonic clock.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sidecars.contract.status import Stage
from sidecars.reconfigure.actions import Answer
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.refusals import Refusal
from sidecars.reconfigure.slurmds import Slurmd
from sidecars.slurm.diagnosis import Culprit

RETRY = 1.0
"""Seconds until a check or reconfigure without an answer is tried again; doubles."""


class Phase(Enum):
    """The current phase. The value is what /status reports."""

    BEGIN = "Starting"
    CHECK = "Checking"
    APPLY = "Reconfiguring"
    VERIFY = "Verifying"
    WATCH = "WatchingSlurmd"
    START = "WaitingForSlurmctld"
    SETTLED = "Settled"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A set that was kept out. `final`: it stays so until it changes; otherwise it is tried
    again.
    """

    id: Id
    stage: Stage
    culprit: Culprit
    since: float
    final: bool = True
    daemon: str = ""
    """The daemon that ended of it, "" if none did."""
    nodes: tuple[str, ...] = ()
    """Slurm nodes whose slurmd ended of it."""


@dataclass(frozen=True, slots=True)
class State:
    """`installed`: what slurmctld finds when it reads its files; `running`: what it is known to
    have read; `trying`: what is being checked or brought in; `former`: what it ran before that;
    `accepted`: the last that passed the check.
    """

    phase: Phase = Phase.BEGIN
    installed: Id | None = None
    running: Id | None = None
    accepted: Id | None = None
    trying: Id | None = None
    former: Id | None = None
    rejected: Rejected | None = None
    restart: str = ""
    """Why slurmctld was restarted last; empty if it never was."""
    since: float = 0.0
    """When the phase began."""
    wake: float = 0.0
    """No probe before."""
    retry: float = 0.0
    """What could not be checked isn't tried again before."""
    calm: float | None = None
    """Since when slurmctld answers."""
    unanswered: str = ""
    """Why slurmctld's answer to a reconfigure or restart is missing, until it is known whether
    slurmctld listens.
    """
    gone: bool = False
    """Whether slurmctld was seen to be gone since it was asked to restart."""
    delay: float = RETRY
    slurmds: tuple[Slurmd, ...] = ()
    """Those that ran before the set that is brought in, and about which nothing is known since."""
    silent: Mapping[str, float] = field(default_factory=dict)
    """Names of those at whose port nothing listens, and since when."""
    restoring: bool = False
    """Whether the set that is brought in is the former one, because slurmds ended of the one after
    it.
    """


@dataclass(frozen=True, slots=True)
class Seen:
    """`candidate`: the whole set that lies there, None while none does. `good`: the last good one,
    with the keys of now. `present`: what the folder of slurmctld contained when this process began,
    None for a new pod. `interrupted`: whether that was put there after the last good one was
    stored. `refused`: what slurmds ended of.
    """

    candidate: Id | None
    good: Id | None
    present: Id | None = None
    answer: Answer | None = None
    interrupted: bool = False
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """`live`: bring a changed configuration into the running slurmctld; otherwise it waits for the
    next pod.
    """

    live: bool = True


def to(state: State, phase: Phase, now: float, **changes: Any) -> State:
    """Return the state at the begin of a phase, with these changes."""
    fresh: dict[str, Any] = {
        "phase": phase,
        "since": now,
        "wake": now,
        "calm": None,
        "unanswered": "",
        "gone": False,
    }
    return dataclasses.replace(state, **(fresh | changes))
