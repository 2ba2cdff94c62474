"""A NodeSet with its pods as the planner takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecars.autoscaling.records import Behavior, ScaledNodeSet, Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.autoscaling.offers import Offer
    from sidecars.contract.autoscaling import Applied
    from sidecars.workloads.resources import NodeSet

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Worker:
    """A pod of the NodeSet that is not being deleted. Times are seconds since the epoch."""

    slurm_node: str
    """The pod's own name while it has none."""
    started: bool
    """False only while its slurmd is known never to have run."""
    created: float
    cordoned: bool = False
    """Its Slurm node is being drained."""
    busy: bool = False
    """Slurm reports a job on its node."""
    stuck_since: float | None = None
    """Since when Kubernetes can't schedule it or get its image; None while neither is so."""
    why: str = ""
    """Why it is stuck."""
    failed: bool = False
    """Its node has not registered in time."""
    given_up_at: float | None = None
    """Until when a Kubernetes node is expected that a node autoscaler has ordered for it, or when
    it is given up because none orders one; None: `capacityWaitSeconds` decide.
    """

    def waited_until(self, wait: float) -> float:
        """Return until when a stuck pod is waited for. `wait`: `capacityWaitSeconds`."""
        if self.given_up_at is not None:
            return self.given_up_at
        return (self.stuck_since or 0.0) + wait


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of a NodeSet, by what the last decision means for them."""

    leaving: tuple[str, ...]
    """Slurm nodes of those that are being removed."""
    staying: Mapping[str, Worker]
    """The others, by Slurm node."""
    kept: int
    """How many of them were to be removed and have got a job before they were drained."""

    @property
    def stuck(self) -> Sequence[Worker]:
        """Those that can't start, the longest first."""
        found = [it for it in self.staying.values() if it.stuck_since is not None]
        return sorted(found, key=lambda it: (it.stuck_since or 0.0, it.slurm_node))


def removed(names: Sequence[str], workers: Mapping[str, Worker], replicas: int) -> tuple[str, ...]:
    """Return the Slurm nodes that are removed of those that may be: in order, none that works and
    isn't drained yet.
    """
    able = [
        name
        for name in names
        if (it := workers.get(name)) is not None and (it.cordoned or not it.busy)
    ]
    return tuple(able[: max(0, len(workers) - replicas)])


def pods(workers: Sequence[Worker], applied: Applied | None, replicas: int) -> Pods:
    """Return the pods of a NodeSet. `applied`: our last decision, None where another client has
    changed the number since.
    """
    by_name = {it.slurm_node: it for it in workers}
    # What another client has removed, and what is drained for it, doesn't come back with our next
    # decision.
    named = (
        applied.remove
        if applied is not None
        else tuple(it.slurm_node for it in workers if it.cordoned)
    )
    leaving = removed(named, by_name, replicas)
    staying = {name: it for name, it in by_name.items() if name not in leaving}
    left = max(0, len(staying) - replicas)
    return Pods(leaving, staying, min(left, sum(name in staying for name in named)))


def scaled(
    nodeset: NodeSet, offer: Offer | None, partitions: frozenset[str], pods: Pods
) -> ScaledNodeSet:
    """Return the NodeSet. `offer`: None while unknown."""
    spec = nodeset.spec.autoscaling
    if spec is None:
        raise ValueError(f"NodeSet {nodeset.name} has no spec.autoscaling")
    wait = float(spec.capacity_wait_seconds)
    late = {it.slurm_node: it.waited_until(wait) for it in pods.stuck}
    # One whose Kubernetes node is on its way comes, whatever becomes of the others.
    waits = [it for it in pods.stuck if late[it.slurm_node] <= (it.stuck_since or 0.0) + wait]
    stuck = waits or pods.stuck
    return ScaledNodeSet(
        name=nodeset.name,
        shape=offer.shape if offer is not None else None,
        partitions=partitions,
        replicas=nodeset.spec.replicas + pods.kept,
        min=spec.min,
        max=spec.max,
        price=float(spec.price),
        weight=offer.weight if offer is not None else 1,
        behavior=Behavior(
            max_step_up=spec.max_step_up,
            max_step_down=spec.max_step_down,
            step_seconds=float(spec.step_seconds),
            idle_seconds=float(spec.idle_seconds),
            cool_down=float(spec.cool_down_seconds),
            capacity_wait=wait,
        ),
        windows=tuple(
            Window(
                frozenset(map(DAYS.index, it.days or DAYS)),
                _minutes(it.start),
                _minutes(it.end),
                it.min,
                it.max,
            )
            for it in spec.windows or ()
        ),
        most=max([spec.max, *(it.max or 0 for it in spec.windows or ())]),
        unschedulable=len(stuck),
        unschedulable_since=min((late[it.slurm_node] for it in stuck), default=wait) - wait
        if stuck
        else None,
    )


def _minutes(time: str) -> int:
    hours, _, minutes = time.partition(":")
    return int(hours) * 60 + int(minutes)
