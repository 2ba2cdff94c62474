"""The records of `node`: what `machine.step` sees, what it asks for, and what it remembers."""

from dataclasses import dataclass
from enum import Enum
from math import inf

from sidecars.contract import ports
from sidecars.contract.reasons import POD_GONE, POD_LEAVING
from sidecars.contract.shape import Shape
from sidecars.slurm.records import Node


class Phase(Enum):
    """The phase of the pod's life; see the table in `sidecars.node.machine`."""

    CLAIM = "claim"
    WATCH = "watch"
    DRAIN = "drain"
    RELEASED = "released"
    LIFT = "lift"
    DEPART = "depart"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Settings:
    """What doesn't change while the pod lives."""

    pod_uid: str
    grace: float
    """The pod's termination grace period in seconds."""
    margin: float = 20.0
    """Seconds of the grace period that are reserved for stopping slurmd and deleting the node
    record.
    """
    slurmd_port: int = ports.SLURMD
    hook_user: int = 0
    """User ID of slurmd's preStop hook: root."""


# ---- actions
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """Read the node record. Answered by Record, Absent or Fault."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Write this pod's facts into the record's `extra`. Answered by Done, Absent or Fault, like all
    that follow.
    """


@dataclass(frozen=True, slots=True)
class Drain:
    """Set DRAIN."""

    reason: str | None = POD_LEAVING
    """None doesn't change the record's reason."""


@dataclass(frozen=True, slots=True)
class Undrain:
    """Set UNDRAIN, which clears the reason."""


@dataclass(frozen=True, slots=True)
class Down:
    """Set DOWN."""

    reason: str | None = POD_GONE
    """None doesn't change the record's reason."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the record."""


@dataclass(frozen=True, slots=True)
class Names:
    """Read whether a job or a reservation names the node. Answered by Named or Fault."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Check whether a TCP port accepts connections. Answered by Listening."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Settled:
    """Let `register` continue, so that slurmd starts."""

    how: str
    """What is known of the record, in words."""


@dataclass(frozen=True, slots=True)
class Release:
    """Let slurmd's preStop hook of this name end."""

    hook: str


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the log."""

    text: str


Call = Read | Claim | Drain | Undrain | Down | Delete | Names | Probe
Action = Call | Settled | Release | Log


# ---- answers
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """The record as read."""

    node: Node


@dataclass(frozen=True, slots=True)
class Absent:
    """slurmctld has no such node: the answer to any call about it."""


@dataclass(frozen=True, slots=True)
class Done:
    """The call succeeded."""

    call: Call


@dataclass(frozen=True, slots=True)
class Fault:
    """The call failed."""

    call: Call
    text: str
    refused: bool = False
    """Whether slurmctld understood the request and rejected it, as it does for a node with work on
    it.
    """


@dataclass(frozen=True, slots=True)
class Named:
    """Who names the node."""

    by: str
    """Such as `job 17`; "" for nobody."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The result of a Probe."""

    yes: bool


Answer = Record | Absent | Done | Fault | Named | Listening


# ---- observation and state
# ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """The `stop` file that slurmd's preStop hook writes and renews."""

    hook: str
    """Name of the hook, which differs each time that slurmd is stopped; "" if the file can't be
    read.
    """
    steps: int | None
    """Number of slurmstepd processes; None if the file can't be read."""
    age: float
    """Seconds since the hook last wrote it; negative after a change of the wall clock."""


INVALID_STOP = Stop("", None, inf)
"""What exists instead of the `stop` file was not written by the hook."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one step sees."""

    stop: Stop | None = None
    """None without a `stop` file."""
    slurmd_may_run: bool = False
    """Whether `register` has written slurmd's configuration."""
    shape: Shape | None = None
    """What slurmd is about to register; None until `register` has written it."""
    terminating: bool = False
    """Whether SIGTERM has arrived, which means that slurmd has stopped."""
    answer: Answer | None = None
    """The answer to the call of the last step; None without a call."""
    jitter: float = 0.5
    """Random in [0, 1)."""


@dataclass(slots=True)
class State:
    """All that is remembered between steps. Times are of the clock that `machine.step` gets."""

    phase: Phase = Phase.CLAIM
    since: float = 0.0
    """When the phase began."""
    wake: float = 0.0
    """When to step again even if nothing is observed; inf for never."""
    faults: int = 0
    """Failed calls in a row."""
    polls: int = 0
    """Reads that still found work after the last slurmstepd had ended."""
    settled: bool = False
    """Whether `register` may continue."""
    record: Node | None = None
    """The record that the phase deals with."""
    unnamed: bool = False
    """Whether the operator, which reads the jobs before it deletes a pod, has found none that names
    the node.
    """
    last_success: float = -inf
    """When a call to Slurm last succeeded."""
    idle_since: float | None = None
    """Since when no slurmstepd has run; None while one runs or their number is unknown."""
    hook_since: float | None = None
    """When the preStop hook was first seen; None while it doesn't run."""
    released: str = ""
    """Name of the preStop hook that may end."""
    logged: str = ""
    """The last line of the log, which is not repeated."""
