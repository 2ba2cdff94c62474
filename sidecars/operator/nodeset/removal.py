"""Partitions that are to go: which of them have to stay in slurm.conf yet. See `sidecars.policy.nodeset.partitions`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sidecars.operator.nodeset.memory import Memory
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import partitions as policy
from sidecars.policy.nodeset.records import SlurmView
from sidecars.slurm.errors import NotYet, SlurmError
from sidecars.slurm.records import Partition
from sidecars.workloads.config import CLOSED
from sidecars.workloads.resources import NodeSet


@dataclass(frozen=True, slots=True)
class Partitions:
    """`declared`: those that jobs may name, for status.partitions; `condition`: what is waited for, or None."""

    declared: tuple[str, ...]
    condition: Condition | None = None
    again: float | None = None


async def partitions(
    runtime: Runtime,
    memory: Memory,
    nodeset: NodeSet,
    cluster: Cluster | None,
    view: SlurmView,
    *,
    leaving: bool,
    unbound: bool,
) -> Partitions:
    """What has become of the NodeSet's partitions, present and former.

    `leaving`: the NodeSet is being deleted, so that all are to go. `unbound`: nothing has to be waited for, since the
    Controller goes too. Jobs are read only while there is something to go.
    """
    current = {nodeset.slurm_name} if nodeset.spec.partition.enabled and not leaving else set()
    former = {*nodeset.status.partitions, *({nodeset.slurm_name} if leaving and nodeset.spec.partition.enabled else ())}
    going = sorted(former - current)
    if not going or unbound or nodeset.spec.force_removal:
        memory.going, memory.closed_since = (), {}
        return Partitions(tuple(sorted(current)))
    held = await _held(memory, going, cluster, view, runtime.now())
    if not held:
        return Partitions(tuple(sorted(current)))
    condition = Condition("PartitionsReleased", "False", "JobsRefer", policy.message(held))
    return Partitions(
        tuple(sorted(current | {it.partition for it in held})), condition, min(it.look_again for it in held)
    )


async def _held(
    memory: Memory, going: Sequence[str], cluster: Cluster | None, view: SlurmView, now: float
) -> tuple[policy.BlockedPartition, ...]:
    if cluster is None or view.problem is not None:
        why = f"its jobs are unknown: {view.problem}"
        return tuple(policy.BlockedPartition(name, why) for name in going)
    poller = cluster.poller
    try:
        # What they were before, as long as others were to go, says nothing of now.
        found = await poller.partitions(_going_since(memory, going, poller.now()))
        since = _closed_since(memory, going, found, poller.now())
        listed = await poller.jobs()
    except NotYet:
        return tuple(policy.BlockedPartition(name, "its jobs are being read") for name in going)
    except SlurmError as error:
        return tuple(policy.BlockedPartition(name, f"its jobs can't be read: {error}") for name in going)
    # Until it was closed it took jobs that such a list lacks.
    unread = [name for name, at in since.items() if at > listed.asked_at]
    if unread:
        return tuple(policy.BlockedPartition(name, "its jobs are being read", 1.0) for name in unread)
    return policy.blocked(going, found, listed.value.jobs, now)


def _going_since(memory: Memory, going: Sequence[str], now: float) -> float:
    """Since when just these are to go."""
    if memory.going != going:
        memory.going, memory.going_since = going, now
    return memory.going_since


def _closed_since(memory: Memory, going: Sequence[str], found: Iterable[Partition], now: float) -> Mapping[str, float]:
    """When each of them that is closed, or gone from Slurm, was first seen so."""
    opened = {partition.name for partition in found if CLOSED not in partition.states}
    memory.closed_since = {name: memory.closed_since.get(name, now) for name in going if name not in opened}
    return memory.closed_since
