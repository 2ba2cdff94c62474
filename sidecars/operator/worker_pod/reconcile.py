"""One pass over one worker pod: show there what Slurm knows of its node. Written only where it
differs.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sidecars import objects
from sidecars.kube import PODS, Invalid, Manifest, NotFound
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.deadlines import DEADLINES_FOR, refresh_deadlines
from sidecars.operator.runtime.pods import cluster_of, nodeset_of
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.worker_pod import topology
from sidecars.policy import podstate
from sidecars.policy.conditions import timestamp
from sidecars.policy.nodeset.observation import slurm_node
from sidecars.slurm import states
from sidecars.workloads import names

log = logging.getLogger(__name__)

CHANGED_AGAIN = 0.1
"""Seconds after which a pod that changed meanwhile has come by the watch."""

WORKERS = 8
"""Pods that are written to at once."""

Defer = Callable[[Key, Key], bool]
"""Gets the keys of a NodeSet and of one of its pods. Whether the NodeSet wakes the pod later."""


async def reconcile(runtime: Runtime, defer: Defer, key: Key) -> float | None:
    """Run one pass. While Slurm's state is unknown the pod continues to show the last that was
    known.
    """
    pod = runtime.caches.pods.store.get(*key)
    if pod is None or not pod.spec.node_name:
        return None
    nodeset = nodeset_of(runtime, pod)
    if nodeset is None:
        return None
    try:
        cluster = cluster_of(runtime, pod)
        if pod.metadata.deletion_timestamp is not None and not _may_be_busy(cluster, pod):
            # What such a pod shows is of no use to anyone, and the write would delay its deletion.
            return None
        if cluster is None or cluster.view().problem is not None:
            # register waits for the stamp, whether Slurm answers or not.
            await topology.stamp(runtime, pod, nodeset)
            return None
        return await _show(runtime, defer, pod, nodeset, cluster)
    except Invalid:
        if await _is_as_seen(runtime, pod):
            raise
        # The kubelet has changed it since it was last seen, and the test in our patch detects it.
        return CHANGED_AGAIN
    except NotFound:
        log.debug("pod %s/%s is gone already", *key)
        return None


def _may_be_busy(cluster: Cluster | None, pod: objects.Pod) -> bool:
    """Return whether the pod waits for jobs: a user who looks at it has to see that, and until
    when.
    """
    node = (
        None
        if cluster is None or cluster.view().problem is not None
        else cluster.view().nodes.get(slurm_node(pod))
    )
    return node is not None and states.is_busy(node.states)


def shown_by(nodeset: Manifest) -> tuple[object, ...]:
    """Return what of its NodeSet a pass over a pod depends on."""
    own = _own_annotations(nodeset)
    return (nodeset["metadata"].get("uid"), _is_protecting(nodeset), own, *topology.set_by(nodeset))


def _is_protecting(nodeset: Manifest) -> bool:
    return (nodeset.get("spec") or {}).get("workloadDisruptionProtection") is not False


async def _is_as_seen(runtime: Runtime, pod: objects.Pod) -> bool:
    try:
        live = await runtime.client.get(PODS, pod.metadata.namespace, pod.metadata.name)
    except NotFound:
        return False
    return bool(live["metadata"]["resourceVersion"] == pod.metadata.resource_version)


async def _show(
    runtime: Runtime, defer: Defer, pod: objects.Pod, nodeset: Manifest, cluster: Cluster
) -> float | None:
    name = slurm_node(pod)
    node = cluster.view().nodes.get(name)
    deferred = podstate.until_shown(node, runtime.now())
    if deferred:
        return deferred
    again = await topology.send(runtime, pod, nodeset, cluster, node)
    draining = node is not None and states.is_draining(node.states)
    if draining:
        await refresh_deadlines(
            runtime, (pod.metadata.namespace, pod.metadata.labels[names.CLUSTER]), cluster
        )
    visible = podstate.shown(
        node,
        protection=_is_protecting(nodeset),
        deadline=cluster.deadlines.get(name),
    )
    namespace = pod.metadata.namespace
    # While others are being created, nobody needs to know that it is idle, and the write would
    # delay them.
    if not (
        _can_wait(pod, visible)
        and defer((namespace, nodeset["metadata"]["name"]), (namespace, pod.metadata.name))
    ):
        await _write(runtime, pod, visible, _own_annotations(nodeset))
    return DEADLINES_FOR if draining else again


def _can_wait(pod: objects.Pod, visible: podstate.Shown) -> bool:
    """Return a worker that shows nothing yet, has no work and is not drained."""
    new = not any(it.type.startswith(podstate.CONDITION_PREFIX) for it in pod.status.conditions)
    return new and visible == podstate.IDLE


def _own_annotations(nodeset: Manifest) -> frozenset[str]:
    """Return those that the NodeSet's pod template sets: they stay as they are."""
    template = (nodeset.get("spec") or {}).get("template") or {}
    return frozenset((template.get("metadata") or {}).get("annotations") or ())


async def _write(
    runtime: Runtime, pod: objects.Pod, visible: podstate.Shown, own: frozenset[str]
) -> None:
    metadata = pod.metadata
    kept = {
        name: value if visible.protect else None
        for name, value in names.EVICTION.items()
        if name not in own
    }
    labels = _changes(metadata.labels, {names.POD_PROTECT: "true" if visible.protect else None})
    annotations = _changes(metadata.annotations, {names.POD_DEADLINE: visible.deadline, **kept})
    if labels or annotations:
        changes = {
            name: value
            for name, value in (("labels", labels), ("annotations", annotations))
            if value
        }
        await runtime.client.merge_patch(
            PODS, metadata.namespace, metadata.name, {"metadata": {"uid": metadata.uid, **changes}}
        )
    operations = condition_operations(pod, visible.conditions, runtime.now())
    if operations:
        await runtime.client.json_patch(
            PODS, metadata.namespace, metadata.name, operations, msgspec.Raw, subresource="status"
        )


def _changes(
    present: Mapping[str, str], visible: Mapping[str, str | None]
) -> dict[str, str | None]:
    return {name: value for name, value in visible.items() if present.get(name) != value}


def condition_operations(
    pod: objects.Pod, conditions: Mapping[str, str], now: float
) -> list[dict[str, Any]]:
    """Return the JSON patch that gives the pod exactly these `SlurmNodeState…` conditions (message
    by type), [] for none.

    Each step tests what it relies on, so that the kubelet, which writes conditions too, is never
    overruled.
    """
    present = pod.status.conditions
    ours = {
        it.type: index
        for index, it in enumerate(present)
        if it.type.startswith(podstate.CONDITION_PREFIX)
    }
    operations: list[dict[str, Any]] = []
    for kind, message in conditions.items():
        index = ours.get(kind)
        if index is None:
            fresh = {
                "type": kind,
                "status": "True",
                "lastTransitionTime": timestamp(now),
                "message": message,
            }
            operations.append({"op": "add", "path": "/status/conditions/-", "value": fresh})
        elif present[index].message != message:
            path = f"/status/conditions/{index}"
            operations.append({"op": "test", "path": f"{path}/type", "value": kind})
            operations.append({"op": "add", "path": f"{path}/message", "value": message})
    for kind, index in sorted(ours.items(), key=lambda item: -item[1]):
        if kind not in conditions:
            path = f"/status/conditions/{index}"
            operations += [
                {"op": "test", "path": f"{path}/type", "value": kind},
                {"op": "remove", "path": path},
            ]
    if not operations:
        return []
    guards: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
    ]
    if not present:
        version = pod.metadata.resource_version
        guards.append({"op": "test", "path": "/metadata/resourceVersion", "value": version})
        guards.append({"op": "add", "path": "/status/conditions", "value": []})
    return [*guards, *operations]
