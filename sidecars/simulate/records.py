"""The parts of a simulated Slurm: records of slurmctld and slurmdbd, requests, replies and
faults.
"""

import time
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

Json = dict[str, Any]

RESERVATION_FLAGS = frozenset(
    {
        *(
            "ANY_NODES",
            "DAILY",
            "FLEX",
            "FORCE_START",
            "HOURLY",
            "IGNORE_JOBS",
            "MAGNETIC",
            "MAINT",
            "NO_HOLD_JOBS",
        ),
        *(
            "OVERLAP",
            "PART_NODES",
            "PURGE_COMP",
            "REPLACE",
            "REPLACE_DOWN",
            "SPEC_NODES",
            "STATIC",
            "TIME_FLOAT",
        ),
        *("USER_DELETE", "WEEKDAY", "WEEKEND", "WEEKLY"),
    }
)
"""The flags of reservations that Slurm knows."""

_DAY = 86_400
_PERIODS = {"HOURLY": 3600, "DAILY": _DAY, "WEEKLY": 7 * _DAY, "WEEKDAY": _DAY, "WEEKEND": _DAY}
RECURRING = frozenset(_PERIODS)
"""Flags of a reservation that recurs."""


class Fault(Enum):
    """What a faulty slurmrestd does instead of answering."""

    SERVER_ERROR = "HTTP 500 without JSON"
    NO_SLURMCTLD = "HTTP 502, number 1800"
    ERRORS_WITH_200 = "HTTP 200 with errors"
    BAD_TOKEN = "HTTP 511, number 1007"  # noqa: S105 - an answer
    BAD_TOKEN_OLD = "HTTP 500, number 1007, as older releases"  # noqa: S105 - an answer
    NO_TOKEN = "HTTP 401 as text"  # noqa: S105 - an answer
    EMPTY = "HTTP 200 with empty lists"
    PARTIAL = "HTTP 200 with a list of every second node"
    STALE = "HTTP 200 with the records as they were when the fault began"
    TRUNCATED = "HTTP 200 with half of the JSON"
    CUT = "the connection ends within the answer"
    RESET = "the connection ends without an answer"
    HANG = "no answer at all"
    SLOW = "the right answer, late"


@dataclass(slots=True)
class PlannedFault:
    """A fault that requests will meet."""

    fault: Fault
    left: float
    """How many requests; inf for all."""
    method: str | None
    """None for any."""
    path: str
    """What the path of the requests begins with."""
    seconds: float
    """Duration of a SLOW answer."""
    since: float = 0.0
    """When it began, by the clock of the cluster."""
    former: dict[str, "Reply"] = field(default_factory=dict)
    """The answers that a STALE slurmrestd gives, by path."""


@dataclass(slots=True)
class SimNode:
    """A node record of slurmctld."""

    name: str
    base: str = "IDLE"
    """IDLE or DOWN; other base states are derived from the jobs."""
    flags: set[str] = field(default_factory=lambda: {"DYNAMIC_NORM"})
    """The other states, such as DRAIN."""
    reason: str = ""
    reason_changed_at: int = 0
    """In seconds since the epoch."""
    comment: str = ""
    extra: str = ""
    instance_id: str = ""
    features: list[str] = field(default_factory=list)
    active_features: list[str] = field(default_factory=list)
    topology: str = ""
    address: str = ""
    gres: str = ""
    cpus: int = 4
    real_memory: int = 16_000
    slurmd_start_time: int = 0
    silent_until: float = 0.0
    """Until then (or forever, when infinite) the node doesn't respond."""
    weight: int = 1
    suspend_time: int | None = None
    """Seconds after which power saving stops the idle node; None: never."""
    power_at: float = 0.0
    """Since when power saving has started or stopped it."""
    busy_until: float | None = None
    """When it was last seen with a job, or registered."""


@dataclass(slots=True)
class SimJob:
    """A job record."""

    job_id: int
    nodes: list[str]
    """Names of its nodes; none before it starts."""
    states: set[str]
    """As Slurm spells them; COMPLETING means that its nodes still clean up."""
    cpus: int = 1
    start_time: int = 0
    """In seconds since the epoch."""
    time_limit: int | None = None
    """In minutes; None: no limit."""
    name: str = "job"
    partition: str = "all"
    user: str = "root"
    submit_time: int = 0
    kill_on_node_fail: bool = True
    """False for `sbatch --no-kill`: of several nodes that it has, it may lose one."""
    requeue: bool = True
    """Whether it is pending again, rather than ended, when its node fails."""
    exclusive: bool = False
    """Whether it shares its nodes with no other job (`sbatch --exclusive`)."""
    required: list[str] = field(default_factory=list)
    """The nodes that it names (`sbatch --nodelist`)."""

    licenses: str = ""
    """Those that it requests (`sbatch --licenses`)."""
    node_count: int = 1
    """How many nodes it requests."""
    planned: list[str] = field(default_factory=list)
    """The nodes that backfill plans for it, at `start_time`, while it is pending."""
    external: bool = False
    """Whether it is an external job. `cpus` are then those of each of its tasks."""
    blocked: bool = False
    """Whether it is a held job."""
    block_reason: str = "JobHeldUser"
    """Slurm's reason of a held job."""
    priority: int = 100
    """While it is not blocked."""
    tasks: int = 1
    memory: int = 0
    """MiB of each task of an external job."""
    allocation: dict[str, int] = field(default_factory=dict)
    """CPUs of an external job or a guard by node."""
    guard: bool = False
    """Whether it is a batch job that waits. Otherwise as an external job."""
    output: str = ""
    """Of a guard."""
    gres: dict[str, str] = field(default_factory=dict)
    """What an external job has of the GRES of each node, as Slurm writes it."""
    het_id: int = 0
    """The id of the first component, for a component of a heterogeneous job."""
    het_offset: int = 0
    tres: str = ""
    """What an external job requests of each GRES for each task."""
    comment: str = ""
    admin_comment: str = ""
    excluded: list[str] = field(default_factory=list)
    """The nodes that it is not to get (`sbatch --exclude`)."""

    @property
    def on_nodes(self) -> bool:
        """Whether it is on its nodes, at work or not."""
        return bool(self.states & {"RUNNING", "COMPLETING", "SUSPENDED"})


@dataclass(slots=True)
class SimPartition:
    """A partition."""

    name: str
    nodes: str | None = None
    """A hostlist; None: all nodes."""
    states: tuple[str, ...] = ("UP",)
    feature: str = ""
    """Of these nodes alone, those with this feature, as of a NodeSet."""


@dataclass(frozen=True, slots=True)
class SimLicense:
    """A license."""

    name: str
    total: int
    used: int = 0


@dataclass(frozen=True, slots=True)
class SimReservation:
    """A reservation of named nodes. Times are in seconds since the epoch."""

    name: str
    nodes: str
    """A hostlist."""
    start_time: int
    end_time: int
    users: str = "root"
    flags: tuple[str, ...] = ("MAINT", "IGNORE_JOBS", "SPEC_NODES")

    def active(self, now: float) -> bool:
        """Return whether it reserves its nodes at `now`."""
        return self.start_time <= now < self.end_time

    def later(self, now: float) -> "SimReservation | None":
        """Return the reservation at `now`: itself, its next occurrence once it is over, or None."""
        if now < self.end_time:
            return self
        periods = [seconds for flag, seconds in _PERIODS.items() if flag in self.flags]
        if not periods:
            return None
        missed = (int(now) - self.end_time) // periods[0] + 1
        shift = missed * periods[0]
        moved = replace(self, start_time=self.start_time + shift, end_time=self.end_time + shift)
        return moved if _fits(moved) else moved.later(float(moved.end_time))


def _fits(reservation: SimReservation) -> bool:
    weekend = time.gmtime(reservation.start_time).tm_wday >= 5
    return ("WEEKDAY" if weekend else "WEEKEND") not in reservation.flags


@dataclass(slots=True)
class SimAccount:
    """An account."""

    name: str
    description: str = ""
    organization: str = ""


@dataclass(slots=True)
class SimAssociation:
    """What an account (`user` is "") or a user in it has on a cluster."""

    account: str
    cluster: str
    user: str = ""
    parent: str = ""
    is_default: bool = False
    shares: int = 1
    qos: list[str] | None = None
    """None: those of the parent."""
    default_qos: str | None = None
    """Likewise."""
    limits: dict[str, int] = field(default_factory=dict)
    tres: dict[str, dict[str, int]] = field(default_factory=dict)
    partition: str = ""
    """The only partition in which the user has it; "" for all."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Account, cluster, user and partition: no two associations have all of them in common."""
        return self.account, self.cluster, self.user, self.partition


@dataclass(slots=True)
class SimQos:
    """A quality of service."""

    name: str
    description: str = ""
    priority: int = 0
    flags: list[str] = field(default_factory=list)
    preempt: list[str] = field(default_factory=list)
    preempt_mode: str = "DISABLED"
    grace_time: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    tres: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A request that reached slurmrestd."""

    method: str
    path: str
    """Without the version; slurmdbd's paths begin with `slurmdb/`."""
    query: dict[str, str]
    body: Json | None
    version: str = ""
    """Of the API."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    delay: float | None = 0.0
    """Seconds until it is sent; None: never."""
    cut: bool = False
    """The connection ends in the middle of the answer."""
    reset: bool = False
    """The connection ends before the answer."""
