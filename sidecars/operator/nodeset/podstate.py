"""One pass over one worker pod: show there what Slurm knows of its node. Written only where it differs."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sidecars.kube import PODS, Invalid, Manifest, NotFound, records
from sidecars.operator.clusters import Cluster
from sidecars.operator.context import Context, Key
from sidecars.operator.nodeset import placement
from sidecars.operator.nodeset.observation import slurm_node
from sidecars.policy import podstate
from sidecars.policy.conditions import timestamp
from sidecars.slurm import states
from sidecars.slurm.errors import NotYet, SlurmError
from sidecars.workloads import names

log = logging.getLogger(__name__)

CHANGED_AGAIN = 0.1
"""Seconds after which a pod that changed meanwhile has come by the watch."""

WORKERS = 8
"""Pods that are written to at once."""

DEADLINES_FOR = 30.0
"""Seconds for which the jobs' ends are not read again: on a large cluster the list of jobs is dear."""


async def reconcile(context: Context, key: Key) -> float | None:
    """One pass. While Slurm's state is unknown the pod goes on showing the last that was known."""
    pod = context.caches.pods.store.get(*key)
    if pod is None or not pod.spec.node_name:
        return None
    nodeset = nodeset_of(context, pod)
    if nodeset is None:
        return None
    try:
        cluster = cluster_of(context, pod)
        if cluster is None or cluster.view().problem is not None:
            # register waits for the stamp, whether Slurm answers or not.
            await placement.stamp(context, pod, nodeset)
            return None
        return await _show(context, pod, nodeset, cluster)
    except Invalid:
        if await _is_as_seen(context, pod):
            raise
        # The kubelet has changed it since it was last seen, and a step of our patch says so.
        return CHANGED_AGAIN
    except NotFound:
        log.debug("pod %s/%s is gone already", *key)
        return None


async def _is_as_seen(context: Context, pod: records.Pod) -> bool:
    try:
        live = await context.client.get(PODS, pod.metadata.namespace, pod.metadata.name)
    except NotFound:
        return False
    return bool(live["metadata"]["resourceVersion"] == pod.metadata.resource_version)


async def _show(context: Context, pod: records.Pod, nodeset: Manifest, cluster: Cluster) -> float | None:
    name = slurm_node(pod)
    node = cluster.view().nodes.get(name)
    again = await placement.tell(context, pod, nodeset, cluster, node)
    draining = node is not None and states.is_draining(node.states)
    if draining:
        await refresh_deadlines(context, (pod.metadata.namespace, pod.metadata.labels[names.CLUSTER]), cluster)
    wanted = podstate.shown(
        node,
        protection=(nodeset.get("spec") or {}).get("workloadDisruptionProtection") is not False,
        deadline=cluster.deadlines.get(name),
    )
    memory = context.remembered.get((pod.metadata.namespace, nodeset["metadata"]["name"]))
    if memory is not None and (memory.creating or memory.coming_until) and _can_wait(pod, wanted):
        # That it is idle is of no use to anybody while others are still to come, and would hold them up.
        memory.unshown.add((pod.metadata.namespace, pod.metadata.name))
    else:
        await _write(context, pod, wanted)
    return DEADLINES_FOR if draining else again


def _can_wait(pod: records.Pod, wanted: podstate.Shown) -> bool:
    """A worker that shows nothing yet, has no work and is not drained."""
    new = not any(it.type.startswith(podstate.CONDITION_PREFIX) for it in pod.status.conditions)
    return new and wanted == podstate.IDLE


def nodeset_of(context: Context, pod: records.Pod) -> Manifest | None:
    """The NodeSet that the pod belongs to; None for a pod of nobody's."""
    owner = pod.metadata.controller
    if owner is None or owner.kind != "NodeSet":
        return None
    nodeset = context.caches.nodesets.store.get(pod.metadata.namespace, owner.name)
    return nodeset if nodeset is not None and nodeset["metadata"].get("uid") == owner.uid else None


def cluster_of(context: Context, pod: records.Pod) -> Cluster | None:
    """The Slurm cluster of a worker pod; None while the operator isn't connected to it."""
    return context.clusters.get((pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER, "")))


async def refresh_deadlines(context: Context, controller: Key, cluster: Cluster, busy: Iterable[str] = ()) -> bool:
    """Read when the jobs end, unless that was done a short while ago, and have the pods show it.

    `busy`: nodes whose deadline is needed, so that a job that has begun since is not overlooked. Returns False while
    the jobs are still being read; all NodeSets and pods come again when they are there.
    """
    now = context.now()
    if 0 <= now - cluster.deadlines_at < DEADLINES_FOR and cluster.deadlines.keys() >= set(busy):
        return True
    try:
        jobs = (await cluster.poller.jobs()).value.jobs
    except NotYet:
        return False
    except SlurmError as error:
        log.warning("Slurm cluster %s/%s: the jobs can't be read: %s", *controller, error)
        return True
    before, cluster.deadlines = cluster.deadlines, podstate.deadlines(jobs)
    cluster.deadlines_at = context.now()
    changed = {
        name for name in before.keys() | cluster.deadlines.keys() if before.get(name) != cluster.deadlines.get(name)
    }
    wake(context, controller, changed)
    return True


def wake(context: Context, controller: Key, slurm_nodes: Iterable[str]) -> None:
    """Have the pods of these Slurm nodes looked at."""
    for name in slurm_nodes:
        for pod in context.caches.pods.store.by("slurm_node", (*controller, name)):
            context.queues.pods.add((pod.metadata.namespace, pod.metadata.name))


async def _write(context: Context, pod: records.Pod, wanted: podstate.Shown) -> None:
    metadata = pod.metadata
    labels = _changes(metadata.labels, {names.POD_PROTECT: "true" if wanted.protect else None})
    annotations = _changes(metadata.annotations, {names.POD_DEADLINE: wanted.deadline})
    if labels or annotations:
        changes = {name: value for name, value in (("labels", labels), ("annotations", annotations)) if value}
        await context.client.merge_patch(
            PODS, metadata.namespace, metadata.name, {"metadata": {"uid": metadata.uid, **changes}}
        )
    operations = condition_operations(pod, wanted.conditions, context.now())
    if operations:
        await context.client.json_patch(
            PODS, metadata.namespace, metadata.name, operations, msgspec.Raw, subresource="status"
        )


def _changes(present: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in wanted.items() if present.get(name) != value}


def condition_operations(pod: records.Pod, wanted: Mapping[str, str], now: float) -> list[dict[str, Any]]:
    """The JSON patch that gives the pod exactly these `SlurmNodeState…` conditions (message by type); [] for none.

    Each step tests what it relies on, so that the kubelet, which writes conditions too, is never overruled.
    """
    present = pod.status.conditions
    ours = {it.type: index for index, it in enumerate(present) if it.type.startswith(podstate.CONDITION_PREFIX)}
    operations: list[dict[str, Any]] = []
    for kind, message in wanted.items():
        index = ours.get(kind)
        if index is None:
            fresh = {"type": kind, "status": "True", "lastTransitionTime": timestamp(now), "message": message}
            operations.append({"op": "add", "path": "/status/conditions/-", "value": fresh})
        elif present[index].message != message:
            path = f"/status/conditions/{index}"
            operations.append({"op": "test", "path": f"{path}/type", "value": kind})
            operations.append({"op": "add", "path": f"{path}/message", "value": message})
    for kind, index in sorted(ours.items(), key=lambda item: -item[1]):
        if kind not in wanted:
            path = f"/status/conditions/{index}"
            operations += [{"op": "test", "path": f"{path}/type", "value": kind}, {"op": "remove", "path": path}]
    if not operations:
        return []
    guards: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]
    if not present:
        version = pod.metadata.resource_version
        guards.append({"op": "test", "path": "/metadata/resourceVersion", "value": version})
        guards.append({"op": "add", "path": "/status/conditions", "value": []})
    return [*guards, *operations]
