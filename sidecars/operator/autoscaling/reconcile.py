"""One pass over all NodeSets of a Controller that are scaled: observe, plan, apply, report.

`sidecars.autoscaling` decides. The queue is read once a second while such a NodeSet exists.
A plan is computed when jobs, nodes, pods or settings have changed, and every few seconds because
time alone may change it.

Jobs and nodes are never of the same moment. A job that has just started is in both or in neither.
So no worker is added while it may be in both, and none is removed while it may be in neither.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sidecars.autoscaling import applied, sizing
from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.records import Plan
from sidecars.autoscaling.sizing import Size
from sidecars.custom_resources import NODESETS
from sidecars.kube import ApiError, Manifest, NotFound
from sidecars.operator.autoscaling import effects, observe
from sidecars.operator.autoscaling.memory import Memories, Memory
from sidecars.operator.autoscaling.observe import Seen
from sidecars.operator.autoscaling.wiring import is_scaled
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.notices import is_unscheduled
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import key_of
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Autoscaled
from sidecars.slurm.errors import SlurmError
from sidecars.workloads.resources import Controller, NodeSet, ResourceError, read

log = logging.getLogger(__name__)

TICK = 1.0
"""Seconds between two reads of the queue."""
PLAN_EVERY = 5.0
"""Seconds after which time alone may have changed a plan."""
AT_ONCE = 1000
"""A plan of more jobs times nodes is computed in a thread: leases, drains and other clusters can't
wait for it.
"""
REST = 10.0
"""A plan that took one second is followed by a pause of so many."""
AGAIN = 0.1
"""Seconds after which a NodeSet that changed meanwhile has come by the watch."""


class Decision(NamedTuple):
    """What a pass decides."""

    seen: Sequence[Seen]
    sizes: Sequence[Size]
    """Of each."""
    counted: Condition
    """Of the Controller."""

    @property
    def adds(self) -> bool:
        """Whether a NodeSet grows for jobs."""
        return any(
            size.replicas > it.scaled.replicas
            and size.reason not in (Autoscaled.NO_DATA, Autoscaled.MINIMUM)
            for it, size in zip(self.seen, self.sizes, strict=True)
        )

    @property
    def removes(self) -> bool:
        """Whether a NodeSet shrinks."""
        return any(
            size.replicas < it.scaled.replicas
            for it, size in zip(self.seen, self.sizes, strict=True)
        )


async def reconcile(runtime: Runtime, memories: Memories, key: Key) -> float | None:
    """Run one pass. Return after how many seconds to look again, None if nothing is scaled."""
    controller, scaled = _read(runtime, key)
    if controller is None or not scaled:
        memories.pop(key, None)
        _forget(runtime, key, keep=False)
        return None
    memory = memories.setdefault(key, Memory())
    cluster = runtime.clusters.get(key)
    clock = cluster.poller.now() if cluster is not None else runtime.now()
    if clock < memory.rest_until:
        return memory.rest_until - clock
    known = None
    if cluster is not None:
        await observe.facts(cluster, memory)
        wanted = observe.settings(controller, memory)
        known = await observe.jobs(runtime, cluster, memory, wanted)
    if known is not None and not memory.changed and clock < memory.plan_at:
        return TICK
    # From here on, what changes is a reason for another pass.
    memory.changed = False
    memory.plan_at = clock + PLAN_EVERY if cluster is not None else float("-inf")
    await _ask_node_autoscalers(runtime, key, scaled)
    planner = memory.queue.planner or Autoscaling(observe.settings(controller, memory))
    decide = partial(_decide, runtime, memory, key, cluster, planner, scaled, known)
    decision = await decide()
    if (
        decision is not None
        and decision.removes
        and cluster is not None
        and observe.nodes_are_older(cluster, memory)
    ):
        decision = await decide() if await _nodes_read_again(cluster, memory) else None
    if decision is None:
        memory.changed = True
        return AGAIN
    if cluster is not None and _postpone(cluster, memory, decision):
        memory.changed = True
        return TICK
    _report(runtime, ("Controller", key), decision.counted)
    done = [
        await _apply(runtime, memory, *it) for it in zip(decision.seen, decision.sizes, strict=True)
    ]
    _forget(runtime, key, keep=True)
    return TICK if all(done) else AGAIN


def _read(runtime: Runtime, key: Key) -> tuple[Controller | None, list[tuple[Manifest, NodeSet]]]:
    """Return the Controller, and its NodeSets that are scaled. What can't be read is reported in
    its own pass.
    """
    try:
        controller = runtime.lookup.controller(*key)
    except ResourceError:
        return None, []
    if controller is None or controller.metadata.deletion_timestamp is not None:
        return None, []
    found = []
    for manifest in runtime.caches.nodesets.store.values():
        if (
            not is_scaled(manifest)
            or controller_of(manifest) != key
            or manifest["metadata"].get("deletionTimestamp")
        ):
            continue
        try:
            found.append((manifest, read(NodeSet, manifest)))
        except ResourceError as error:
            log.debug("NodeSet %s/%s is not scaled: %s", *key_of(manifest), error)
    return controller, sorted(found, key=lambda it: it[1].name)


async def _decide(
    runtime: Runtime,
    memory: Memory,
    key: Key,
    cluster: Cluster | None,
    planner: Autoscaling,
    scaled: Sequence[tuple[Manifest, NodeSet]],
    jobs: Jobs | None,
) -> Decision | None:
    """Make the plan. Return None if the watch has not shown our last write yet, or if the plan is
    out of date by what it shows.
    """
    records = cluster.poller.nodes if cluster is not None and cluster.poller.known else None
    seen = [
        observe.seen(runtime, memory, manifest, nodeset, records) for manifest, nodeset in scaled
    ]
    if not all(effects.is_shown(memory, it) for it in seen):
        return None
    of, leaving = observe.by_node(seen)
    nodes = (
        observe.nodes(runtime, key, cluster, memory, of, leaving) if cluster is not None else None
    )
    if jobs is not None:
        jobs.queue.refuse(memory.ledger.refused(runtime.now()))
        jobs.queue.avoid(memory.misfits.avoided(runtime.now()))
    past = {it.nodeset.name: applied.past(it.applied) for it in seen if it.applied is not None}
    listed = memory.queue.listed
    decide = partial(planner.plan, [it.scaled for it in seen], jobs, nodes, past, runtime.now())
    count = len(records or ()) + sum(it.scaled.max for it in seen)
    began = cluster.poller.now() if cluster is not None else runtime.now()
    plan = await _planned(decide, len(listed.jobs) if listed is not None else 0, count)
    _rest(memory, cluster, began)
    if jobs is not None and nodes is not None:
        observed = plan.startable, jobs.queue, runtime.now(), planner.settings.patience
        most = {it.nodeset.name: it.scaled.max for it in seen}
        changes = [
            memory.ledger.observe(*observed),
            memory.misfits.observe(plan, jobs.queue, most, runtime.now()),
        ]
        if any(changes):
            # This plan is out of date.
            return None
    sizes = [sizing.size(it.scaled, it.pods, it.registered, plan, runtime.now()) for it in seen]
    known = plan if jobs is not None and nodes is not None else None
    return Decision(seen, sizes, memory.standing.observe(known, runtime.now()))


async def _ask_node_autoscalers(
    runtime: Runtime, key: Key, scaled: Sequence[tuple[Manifest, NodeSet]]
) -> None:
    """Have what node autoscalers report, while a pod has no Kubernetes node."""
    owned = (pod for _, it in scaled for pod in runtime.caches.pods.store.by("owner", it.own_id))
    if any(map(is_unscheduled, owned)):
        await runtime.notices.refresh(runtime.client, key[0], runtime.now())


async def _nodes_read_again(cluster: Cluster, memory: Memory) -> bool:
    """Have the nodes as they were after the queue was read. False if Slurm hasn't answered."""
    if memory.answer is not None:
        try:
            await cluster.poller.nodes_since(memory.answer.arrived_at)
        except SlurmError as error:
            log.debug("nodes: %s", error)
    return not observe.nodes_are_older(cluster, memory)


def _postpone(cluster: Cluster, memory: Memory, decision: Decision) -> bool:
    """Have NodeSets that would grow wait for the next queue if nodes were read after this one. True
    if they wait.

    They wait for one queue only: nodes are always newer than a queue that takes long to read.
    """
    asked_at = memory.answer.asked_at if memory.answer is not None else None
    if not (
        decision.adds
        and observe.queue_is_older(cluster, memory)
        and memory.postponed in (None, asked_at)
    ):
        memory.postponed = None
        return False
    memory.postponed = asked_at
    return True


async def _planned(decide: Callable[[], Plan], jobs: int, nodes: int) -> Plan:
    """Return the plan for so many jobs, on nodes that exist or may be added."""
    return decide() if jobs * nodes <= AT_ONCE else await asyncio.to_thread(decide)


def _rest(memory: Memory, cluster: Cluster | None, began: float) -> None:
    if cluster is not None:
        now = cluster.poller.now()
        memory.rest_until = now + REST * (now - began) if now - began > TICK / REST else now


async def _apply(runtime: Runtime, memory: Memory, seen: Seen, size: Size) -> bool:
    """Write what was decided for one NodeSet, and report. False if it has changed meanwhile."""
    key = key_of(seen.manifest)
    if seen.owner is not None:
        _report(
            runtime,
            ("NodeSet", key),
            sizing.other_owner(seen.owner, seen.nodeset.spec.replicas, seen.until),
        )
        return True
    condition = sizing.condition(size, seen.differs)
    if seen.problem:
        condition = Condition("Autoscaled", "False", Autoscaled.INVALID, seen.problem)
    record = sizing.applied(
        size, seen.scaled, seen.applied, seen.node, runtime.now(), seen.declared
    )
    if record is not None:
        try:
            await effects.write(runtime, memory, seen, record)
        except NotFound:
            return True
        except ApiError as error:
            if await _changed_meanwhile(runtime, seen):
                memory.changed = True
                return False
            condition = Condition("Autoscaled", "False", Autoscaled.REFUSED, str(error))
        else:
            if record.replicas != seen.nodeset.spec.replicas:
                log.info("NodeSet %s/%s: %d replicas: %s", *key, record.replicas, record.reason)
    _report(runtime, ("NodeSet", key), condition)
    return True


async def _changed_meanwhile(runtime: Runtime, seen: Seen) -> bool:
    """Return whether the NodeSet has changed since the decision saw it."""
    try:
        live = await runtime.client.get(NODESETS, *key_of(seen.manifest))
    except NotFound:
        return True
    return bool(live["metadata"]["resourceVersion"] != seen.manifest["metadata"]["resourceVersion"])


def _report(runtime: Runtime, place: tuple[str, Key], condition: Condition) -> None:
    """Have the pass over the object write the condition."""
    if runtime.autoscaled.get(place) != condition:
        runtime.autoscaled[place] = condition
        _wake(runtime, place)


def _forget(runtime: Runtime, controller: Key, *, keep: bool) -> None:
    """Drop what was reported about NodeSets that have ceased to be scaled, and about the Controller
    unless `keep`.
    """
    for place in tuple(runtime.autoscaled):
        kind, key = place
        gone = not keep and key == controller
        if kind == "NodeSet":
            manifest = runtime.caches.nodesets.store.get(*key)
            gone = not is_scaled(manifest)
        if gone:
            del runtime.autoscaled[place]
            _wake(runtime, place)


def _wake(runtime: Runtime, place: tuple[str, Key]) -> None:
    kind, key = place
    (runtime.queues.nodesets if kind == "NodeSet" else runtime.queues.controllers).add(key)
