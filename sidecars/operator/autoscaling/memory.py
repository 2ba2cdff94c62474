"""What is remembered of each Slurm cluster whose NodeSets are scaled, from pass to pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecars.autoscaling.ledger import Ledger
from sidecars.autoscaling.misfits import Misfits
from sidecars.autoscaling.plan import Autoscaling
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import PresentNode, Settings
from sidecars.operator.autoscaling.core.closed import Closed
from sidecars.operator.autoscaling.core.counted import Standing
from sidecars.operator.runtime.queues import Key
from sidecars.slurm.pending import Answer
from sidecars.slurm.records import Node, Partition, QueuedJobs, Reservation


@dataclass(slots=True)
class QueueMemory:
    """The queue as it was last read, and the planner's picture of it, which is changed with the
    jobs that change.
    """

    settings: Settings | None = None
    planner: Autoscaling | None = None
    listed: QueuedJobs | None = None
    queue: Queue | None = None

    def update(self, listed: QueuedJobs, settings: Settings) -> Queue:
        """Take over a list of jobs."""
        if self.queue is None or self.queue.worn or settings != self.settings:
            self.settings, self.planner = settings, Autoscaling(settings)
            self.queue = Queue((), settings)
            self.listed = None
        if listed is not self.listed:
            self.queue.replace(listed)
            self.listed = listed
        return self.queue


@dataclass(slots=True)
class Memory:
    """That of one cluster. Times are of the poller's clock, but for those named otherwise."""

    queue: QueueMemory = field(default_factory=QueueMemory)
    ledger: Ledger = field(default_factory=Ledger)
    misfits: Misfits = field(default_factory=Misfits)
    answer: Answer[QueuedJobs] | None = None
    """The last one of the queue; None before the first."""
    postponed: float | None = None
    """When that queue was asked for whose jobs add no worker because nodes were read later; None if
    none waits.
    """
    partitions: tuple[Partition, ...] | None = None
    """None: never read."""
    reservations: tuple[Reservation, ...] = ()
    licenses: Mapping[str, int] = field(default_factory=dict)
    """How many of each are free, as they were last read; they are read while a job requests one."""
    facts_at: float = float("-inf")
    """When partitions and reservations were read."""
    nodes: dict[str, tuple[Node, str, float | None, PresentNode]] = field(default_factory=dict)
    """By name: the record, its NodeSet, when it is reserved, and all as the planner takes them."""
    not_idle_at: dict[str, float] = field(default_factory=dict)
    """When a node was last seen that had to stay, in seconds since the epoch."""
    changed: bool = True
    """Since the last plan, something but the queue has changed."""
    plan_at: float = float("-inf")
    """When to plan although nothing has changed."""
    rest_until: float = float("-inf")
    """A plan for a large queue takes long, so a pause follows."""
    others: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Numbers that other clients have set and when they were first seen, in seconds since the
    epoch, by NodeSet.
    """
    in_slurm: dict[str, dict[str, float]] = field(default_factory=dict)
    """When the node of a pod was last in Slurm, or else when its slurmd has started, by NodeSet and
    uid. Seconds since the epoch.
    """
    standing: Standing = field(default_factory=Standing)
    """The reasons for which jobs are not counted."""
    closed: Closed = field(default_factory=Closed)
    """The NodeSets whose last workers have not registered."""
    written: dict[Key, tuple[str, int]] = field(default_factory=dict)
    """uid and resourceVersion of NodeSets after our last write, which the watch has to show."""


Memories = dict[Key, Memory]
"""By Controller; of those alone that have a NodeSet that is scaled."""
