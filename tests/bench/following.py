"""A cluster in virtual time that autoscaling follows, beside a plan that knows all jobs before.

Its scheduler starts jobs in the order of their arrival, and backfills those that delay no earlier
one (EASY). A job gets the processors that are free on the nodes in their order. A node runs jobs
`BOOT` seconds after it was added.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Nodes,
    Past,
    PresentNode,
    ScaledNodeSet,
    Settings,
    Shape,
)
from sidecars.slurm.records import JobRequest, Pending, QueuedJob
from tests.bench.workload import Work, work

PROCESSORS = 16
"""Of a node."""
BOOT = 120.0
LOOK = 15.0
"""Seconds between two decisions, and at most after a job has come or ended."""
EVERYWHERE = frozenset({"all"})
SHAPE = Shape(1, PROCESSORS, 1, 64_000)
BEGIN = 1_000_000.0


@dataclass(slots=True)
class _Node:
    number: int
    ready: float
    free: int = PROCESSORS
    idle_since: float = 0.0


@dataclass(slots=True)
class _Running:
    end: float
    parts: dict[int, int]
    """Processors of each node."""


@dataclass(slots=True)
class Followed:
    """What it cost. Times are seconds."""

    node_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """The wanted sizes, each once in a row."""

    def per_work(self, jobs: Sequence[Work]) -> float:
        """The node hours by those that the jobs fill."""
        return self.node_seconds / (work(jobs) / PROCESSORS)

    @property
    def mean_wait(self) -> float:
        """From arrival to start."""
        return sum(self.waits) / len(self.waits)

    @property
    def turns(self) -> int:
        """How often growing turned into shrinking, or shrinking into growing."""
        ups = [after > before for before, after in pairwise(self.sizes)]
        return sum(before != after for before, after in pairwise(ups))


class _Cluster:
    """Nodes with jobs on them."""

    def __init__(self) -> None:
        self.nodes: dict[int, _Node] = {}
        self.running: dict[int, _Running] = {}
        self.ends: list[tuple[float, int]] = []

    def start(self, number: int, job: Work, now: float) -> bool:
        """Whether the job has started."""
        parts = self._parts(job.processors, now)
        if parts is None:
            return False
        for name, count in parts.items():
            self.nodes[name].free -= count
        self.running[number] = _Running(now + job.seconds, parts)
        heappush(self.ends, (now + job.seconds, number))
        return True

    def _parts(self, processors: int, now: float) -> dict[int, int] | None:
        """The processors of each node that the job would get: of one node if one has as many."""
        free = [it for it in self.nodes.values() if it.free and it.ready <= now]
        one = min(
            (it for it in free if it.free >= processors),
            key=lambda it: (it.free, it.number),
            default=None,
        )
        if one is not None:
            return {one.number: processors}
        parts: dict[int, int] = {}
        for node in sorted(free, key=lambda it: it.number):
            parts[node.number] = min(node.free, processors)
            processors -= parts[node.number]
            if not processors:
                return parts
        return None

    def finish(self, now: float) -> None:
        """End the jobs whose time has come."""
        while self.ends and self.ends[0][0] <= now:
            end, number = heappop(self.ends)
            for name, count in self.running.pop(number).parts.items():
                node = self.nodes[name]
                node.free += count
                node.idle_since = end

    def schedule(self, jobs: Sequence[Work], waiting: list[int], now: float) -> list[int]:
        """Start what can start. Return it."""
        started: list[int] = []
        shadow, extra = float("inf"), 0
        blocked = False
        for number in tuple(waiting):
            job = jobs[number]
            if blocked and now + job.seconds > shadow and job.processors > extra:
                continue
            if self.start(number, job, now):
                waiting.remove(number)
                started.append(number)
                if blocked and now + job.seconds > shadow:
                    extra -= job.processors
            elif not blocked:
                blocked = True
                shadow, extra = self._shadow(job.processors, now)
        return started

    def _shadow(self, processors: int, now: float) -> tuple[float, int]:
        """When so many processors will be free, and how many more then."""
        free = sum(it.free for it in self.nodes.values() if it.ready <= now)
        for end, number in sorted(self.ends):
            free += sum(self.running[number].parts.values())
            if free >= processors:
                return end, free - processors
        return float("inf"), free


def followed(jobs: Sequence[Work], most: int, autoscaling: Autoscaling | None = None) -> Followed:
    """The trace on nodes of which autoscaling adds at most so many."""
    planner = autoscaling or Autoscaling(Settings())
    cluster, found = _Cluster(), Followed()
    waiting: list[int] = []
    pending = Queue()
    memory: dict[str, Past] = {}
    ids, at, now = 0, 0, jobs[0].at
    look = now
    while at < len(jobs) or waiting or cluster.running:
        cluster.finish(now)
        while at < len(jobs) and jobs[at].at <= now:
            waiting.append(at)
            pending.update([_queued(at, jobs[at])])
            at += 1
        for number in cluster.schedule(jobs, waiting, now):
            pending.update((), [number + 1])
            found.waits.append(now - jobs[number].at)
        if now >= look:
            size = len(cluster.nodes)
            nodeset = ScaledNodeSet("cpu", SHAPE, EVERYWHERE, size, 0, most)
            up = [it for it in cluster.nodes.values() if it.ready <= now]
            plan = planner.plan(
                [nodeset],
                Jobs(pending, BEGIN + now),
                Nodes([_present(it) for it in up], BEGIN + now),
                memory,
                BEGIN + now,
            )
            memory = dict(plan.memory)
            wanted = plan.wanted["cpu"]
            for _ in range(wanted.replicas - size):
                cluster.nodes[ids] = _Node(ids, now + BOOT, idle_since=now + BOOT)
                ids += 1
            for name in wanted.removable[: max(0, size - wanted.replicas)]:
                del cluster.nodes[int(name)]
            if not found.sizes or found.sizes[-1] != wanted.replicas:
                found.sizes.append(wanted.replicas)
            look = now + LOOK
        next_ = _next(jobs, at, cluster, waiting, now, look)
        found.node_seconds += len(cluster.nodes) * (next_ - now)
        now = next_
    return found


def _next(
    jobs: Sequence[Work], at: int, cluster: _Cluster, waiting: list[int], now: float, look: float
) -> float:
    """When something happens next. While nothing waits or is idle, no decision is due."""
    times = [it.ready for it in cluster.nodes.values() if it.ready > now]
    times += [jobs[at].at] if at < len(jobs) else []
    times += [cluster.ends[0][0]] if cluster.ends else []
    idle = any(it.free == PROCESSORS for it in cluster.nodes.values())
    if waiting or idle or not times:
        times.append(look)
    return max(min(times), now + 1e-6)


def _queued(number: int, job: Work) -> QueuedJob:
    request = JobRequest(
        partitions=("all",), tasks=job.processors, cpus=job.processors, memory_per_cpu=1000
    )
    return QueuedJob(
        number + 1,
        frozenset({"PENDING"}),
        submit_time=number,
        pending=Pending(request, "Resources", 1_000_000 - number),
    )


def _present(node: _Node) -> PresentNode:
    return PresentNode(
        str(node.number),
        "cpu",
        SHAPE,
        EVERYWHERE,
        free_cores=node.free,
        free_memory=node.free * (SHAPE.memory // PROCESSORS),
        idle_since=BEGIN + node.idle_since if node.free == PROCESSORS else None,
    )


def clairvoyant(jobs: Sequence[Work], most: int) -> Followed:
    """The trace with each node up just before its jobs come, and kept only where it isn't cheaper
    to boot it again.
    """
    cluster, found = _Cluster(), Followed()
    cluster.nodes = {it: _Node(it, 0.0) for it in range(most)}
    used: dict[int, list[tuple[float, float]]] = {}
    waiting: list[int] = []
    at, now = 0, jobs[0].at
    while at < len(jobs) or waiting or cluster.running:
        cluster.finish(now)
        while at < len(jobs) and jobs[at].at <= now:
            waiting.append(at)
            at += 1
        for number in cluster.schedule(jobs, waiting, now):
            found.waits.append(now - jobs[number].at)
            for name in cluster.running[number].parts:
                used.setdefault(name, []).append((now, cluster.running[number].end))
        times = [jobs[at].at] if at < len(jobs) else []
        times += [cluster.ends[0][0]] if cluster.ends else []
        now = min(times, default=now)
    for spans in used.values():
        end = -float("inf")
        for begin, until in sorted(spans):
            found.node_seconds += min(max(0.0, begin - end), BOOT) + max(
                0.0, until - max(begin, end)
            )
            end = max(end, until)
    return found
