"""What the planner is given and what it returns. Times are seconds since the epoch, memory is
MiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecars.policy.reasons.autoscaling import Autoscaled, NotCounted
    from sidecars.slurm.gres import Gres
    from sidecars.slurm.records import Partition


DEFAULT_INTERVAL = 60
"""Seconds between two runs of Slurm's main scheduler by default; never take it for shorter."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A node without any job."""

    sockets: int
    cores: int
    """Of each socket."""
    threads: int
    """Of each core."""
    memory: int
    """RealMemory without MemSpecLimit."""
    gres: tuple[Gres, ...] = ()
    features: frozenset[str] = frozenset()
    tmp_disk: int = 0
    specialized_cores: int = 0
    """Cores for the system (CoreSpecCount)."""

    @property
    def all_cores(self) -> int:
        """The cores of the node that jobs can use."""
        return max(0, self.sockets * self.cores - self.specialized_cores)


@dataclass(frozen=True, slots=True)
class Window:
    """Another minimum and maximum at some times of the week, in UTC."""

    weekdays: frozenset[int]
    """0 is Monday."""
    start: int
    """Minutes since midnight."""
    end: int
    """Minutes since midnight; not later than `start` for a window that ends on the next day."""
    min: int | None = None
    """None: as outside of the window."""
    max: int | None = None


@dataclass(frozen=True, slots=True)
class Behavior:
    """How fast a NodeSet may change. Seconds and numbers of nodes."""

    max_step_up: int = 100
    max_step_down: int = 100
    step_seconds: float = 15.0
    """Between two steps in the same direction."""
    idle_seconds: float = 300.0
    """A node is removed when it has been idle for so long."""
    cool_down: float = 300.0
    """Between an addition and a removal."""
    capacity_wait: float = 120.0
    """How long pods may wait for Kubernetes to schedule them before another NodeSet is tried."""


@dataclass(frozen=True, slots=True)
class ScaledNodeSet:
    """A NodeSet whose replicas the planner decides."""

    name: str
    shape: Shape | None
    """None while unknown."""
    partitions: frozenset[str]
    replicas: int
    """As in its spec."""
    min: int = 0
    max: int = 0
    price: float = 1.0
    """Of a node: NodeSets with a lower one are extended first."""
    weight: int = 1
    """Slurm's Weight of its nodes: Slurm uses nodes with a lower one first."""
    behavior: Behavior = Behavior()
    windows: tuple[Window, ...] = ()
    most: int = 0
    """The highest maximum at any time, whoever sets its replicas now."""
    unschedulable: int = 0
    """Its pods that Kubernetes can't schedule."""
    unschedulable_since: float | None = None
    closed_until: float = 0.0
    """Until then no node is added, because the last ones have not registered."""


@dataclass(frozen=True, slots=True)
class PresentNode:
    """A node that Slurm has."""

    name: str
    nodeset: str
    """"" for a node of no NodeSet that the planner scales."""
    shape: Shape
    partitions: frozenset[str]
    weight: int = 1
    usable: bool = True
    """Whether jobs can start on it: it is not drained, DOWN or reserved."""
    idle_since: float | None = None
    """None for a node with a job, and for one that must stay: drained, DOWN, not responding, or
    with a reservation.
    """
    free_cores: int = 0
    free_memory: int = 0
    free_gres: tuple[Gres, ...] = ()
    """In the order of `shape.gres`."""
    reserved_at: float | None = None
    """When its next reservation begins, or its current one has begun. Only jobs that end before can
    use it.
    """
    fault: str = ""
    """Why no job can start on it although nobody intends that, such as `IDLE+INVALID_REG: …`; ""
    for other nodes.
    """
    started_at: float = 0.0
    """When its slurmd started."""
    owner: str = ""
    """The user who alone may use it, because a job of that user excludes others; "" for none."""
    unsettled: bool = False
    """Whether no job can start on it at once: it is not up, or a job ends on it, of which Slurm may
    already report nothing allocated.
    """


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes as they were at a time. Nodes with a pod that hasn't registered yet aren't among
    them.
    """

    nodes: Sequence[PresentNode]
    at: float


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to all NodeSets of a Slurm cluster."""

    max_age: float = 60.0
    """Seconds after which data is out of date."""
    budget: float | None = None
    """The most that all nodes may cost together, in the unit of the prices."""
    tiers: Mapping[str, int] = field(default_factory=dict)
    """PriorityTier of the partitions; 1 for others."""
    max_nodes: Mapping[str, int] = field(default_factory=dict)
    """MaxNodes of the partitions that have it."""
    min_nodes: Mapping[str, int] = field(default_factory=dict)
    """MinNodes of the partitions that have more than 1."""
    exclusive: Mapping[str, str] = field(default_factory=dict)
    """`NODE` or `USER` of the partitions that have it, see `Partition.exclusive`."""
    oversubscribe: Mapping[str, str] = field(default_factory=dict)
    """`FORCE` or `YES` of the partitions that have it, see `Partition.oversubscribe`."""
    memory: bool = True
    """Whether Slurm allocates memory (CR_…_Memory)."""
    patience: float = 120.0
    """Seconds in which Slurm's schedulers look at each job twice."""
    down: frozenset[str] = frozenset()
    """The partitions in which Slurm starts no job: DOWN or INACTIVE."""
    max_cpus_per_node: Mapping[str, int] = field(default_factory=dict)
    """MaxCPUsPerNode of the partitions that have it."""

    @classmethod
    def of(
        cls,
        partitions: Iterable[Partition],
        *,
        budget: float | None = None,
        memory: bool = True,
        patience: float = 120.0,
    ) -> Settings:
        """Return the settings, with what applies to the partitions of Slurm."""
        known = tuple(partitions)
        return cls(
            budget=budget,
            tiers={it.name: it.tier for it in known if it.tier != 1},
            max_nodes={it.name: it.max_nodes for it in known if it.max_nodes is not None},
            min_nodes={it.name: it.min_nodes for it in known if it.min_nodes > 1},
            exclusive={it.name: it.exclusive for it in known if it.exclusive},
            oversubscribe={it.name: it.oversubscribe for it in known if it.oversubscribe},
            memory=memory,
            patience=patience,
            down=frozenset(it.name for it in known if not it.starts_jobs),
            max_cpus_per_node={
                it.name: it.max_cpus_per_node for it in known if it.max_cpus_per_node is not None
            },
        )


def allocates_memory(words: Iterable[str]) -> bool:
    """`Settings.memory` by the words of SelectTypeParameters, of which none is Slurm's default."""
    found = {word.upper() for word in words} or {"CR_CORE_MEMORY"}
    return any(word.endswith("MEMORY") for word in found)


def patience(words: Iterable[str]) -> float:
    """`Settings.patience` by the words of SchedulerParameters."""
    found = {"sched_interval": 60, "bf_interval": 30}
    for word in words:
        key, _, value = word.strip().lower().partition("=")
        if key in found and value.isascii() and value.isdigit() and len(value) < 7:
            found[key] = int(value)
    return 2.0 * max(DEFAULT_INTERVAL, *found.values())


@dataclass(frozen=True, slots=True)
class Past:
    """What the planner remembers of a NodeSet."""

    raised_at: float | None = None
    lowered_at: float | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """Pending jobs for which no node is added."""

    reason: NotCounted
    detail: str
    """What exactly: Slurm's word, the feature, the limit; may be ""."""
    count: int
    """Tasks of arrays count one each."""
    jobs: tuple[int, ...]
    """The first ones, by id."""

    def concerns(self, nodeset: str) -> bool:
        """Return whether the detail names the NodeSet."""
        return f"NodeSet {nodeset}" in self.detail.rpartition(": ")[2].split(", ")


@dataclass(frozen=True, slots=True)
class Promise:
    """Jobs that start on a NodeSet's nodes when it has the wanted replicas."""

    jobs: tuple[int, ...]
    """The ids of the jobs or arrays."""
    count: int
    """Tasks of arrays count one each."""
    nodes: Mapping[str, int]
    """How many new nodes of each NodeSet these jobs are the first to use."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The decision for one NodeSet."""

    replicas: int
    reason: Autoscaled
    message: str
    removable: tuple[str, ...] = ()
    """The nodes that no job needs: only these may be removed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision for all NodeSets."""

    wanted: Mapping[str, Wanted]
    promises: tuple[Promise, ...]
    excluded: tuple[Excluded, ...]
    memory: Mapping[str, Past]
    needed: Mapping[str, int] = field(default_factory=dict)
    """How many nodes of each NodeSet pending jobs would use that Slurm doesn't have yet."""
    unused: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    """Idle nodes of each NodeSet that no pending job would use: names and starts of slurmd."""
    startable: tuple[int, ...] = ()
    """The jobs that fit on free nodes that Slurm has, with all before them."""
