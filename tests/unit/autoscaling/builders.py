"""Jobs, nodes and NodeSets for the planner's tests."""

from typing import Any

from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Nodes,
    Past,
    Plan,
    PresentNode,
    ScaledNodeSet,
    Settings,
    Shape,
)
from sidecars.slurm.gres import Gres
from sidecars.slurm.records import JobRequest, Pending, QueuedJob

NOW = 1_000_000.0
SHAPE = Shape(1, 4, 2, 8000, features=frozenset({"cpu"}))
GPUS = Shape(2, 8, 1, 64000, (Gres("gpu", "h100", 4),), frozenset({"gpu"}))


def job(
    job_id: int = 1, *, reason: str = "Resources", priority: int = 100, **more: Any
) -> QueuedJob:
    """A pending job of one task with 1000 MiB. `more`: fields of JobRequest, of Pending, or of
    QueuedJob.
    """
    own = {
        key: more.pop(key)
        for key in list(more)
        if key in ("array_job_id", "submit_time", "time_limit", "user_name")
    }
    names = set(Pending.__dataclass_fields__)
    pending = {key: more.pop(key) for key in list(more) if key in names}
    fields: dict[str, Any] = {
        "partitions": ("all",),
        "memory_per_node": 1000,
        "max_nodes": 1,
        "cpus_per_task": 1,
    } | more
    fields.setdefault("cpus", fields.get("tasks", 1) * fields["cpus_per_task"])
    request = JobRequest(**fields)
    return QueuedJob(
        job_id,
        frozenset({"PENDING"}),
        pending=Pending(request, reason, priority, **pending),
        **own,
    )


def nodeset(name: str = "cpu", **more: Any) -> ScaledNodeSet:
    """A NodeSet of up to ten nodes with four cores of two threads each."""
    fields: dict[str, Any] = {
        "shape": SHAPE,
        "partitions": frozenset({"all"}),
        "replicas": 0,
        "max": 10,
    } | more
    return ScaledNodeSet(name, **fields)


def node(name: str, **more: Any) -> PresentNode:
    """A node of the NodeSet `cpu` that has been idle for a long time."""
    fields: dict[str, Any] = {
        "nodeset": "cpu",
        "shape": SHAPE,
        "partitions": frozenset({"all"}),
        "idle_since": 0.0,
        "free_cores": 4,
        "free_memory": 8000,
    } | more
    return PresentNode(name, **fields)


def busy(name: str) -> PresentNode:
    """A node on which nothing is free."""
    return node(name, idle_since=None, free_cores=0, free_memory=0)


def unusable(name: str, **more: Any) -> PresentNode:
    """A node on which no job can start because its registration is invalid."""
    fault = "IDLE+DRAIN+INVALID_REG: gres/gpu count reported lower than configured (0 < 4)"
    return node(name, usable=False, idle_since=None, **{"fault": fault} | more)


def plan(
    nodesets: list[ScaledNodeSet] | None = None,
    jobs: list[QueuedJob] | None = None,
    nodes: list[PresentNode] | None = None,
    *,
    settings: Settings | None = None,
    memory: dict[str, Past] | None = None,
    now: float = NOW,
) -> Plan:
    """The plan for these, by default for one empty NodeSet."""
    queue = Queue(jobs or [], settings or Settings())
    sets = [nodeset()] if nodesets is None else nodesets
    return Autoscaling(settings or Settings()).plan(
        sets, Jobs(queue, now), Nodes(nodes or [], now), memory or {}, now
    )


def replicas(found: Plan) -> dict[str, int]:
    """The wanted replicas of each NodeSet."""
    return {name: it.replicas for name, it in found.wanted.items()}


def why(found: Plan) -> dict[str, int]:
    """How many jobs are excluded, by reason."""
    counts: dict[str, int] = {}
    for it in found.excluded:
        counts[it.reason.value] = counts.get(it.reason.value, 0) + it.count
    return counts
