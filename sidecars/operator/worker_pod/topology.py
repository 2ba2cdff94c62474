"""Topology and features of a worker, from the annotations of its Kubernetes node to its pod and its Slurm node."""

import logging
from typing import Any

from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import PODS, Manifest, records
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.pods import slurm_node
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import annotations as policy
from sidecars.policy.reasons import EventReason
from sidecars.slurm import protocol
from sidecars.slurm.errors import Refused
from sidecars.slurm.owners import belongs_to
from sidecars.slurm.pending import PATIENCE
from sidecars.slurm.records import Node
from sidecars.workloads import names

log = logging.getLogger(__name__)

TRY_AGAIN = 60.0
"""Seconds after which Slurm is sent again what it has refused: a topology.yaml may have come."""


async def stamp(runtime: Runtime, pod: records.Pod, nodeset: Manifest) -> None:
    """Stamp a pod that isn't yet. Raises KubeError."""
    wanted = _wanted_topology(runtime, pod, nodeset)
    if wanted is not None and TOPOLOGY not in pod.metadata.annotations:
        await _stamp(runtime, pod, wanted)


async def send(
    runtime: Runtime, pod: records.Pod, nodeset: Manifest, cluster: Cluster, node: Node | None
) -> float | None:
    """Stamp the pod, and send Slurm what has changed. `node` is the record of its name, None if none exists.

    Returns after how many seconds to try again what Slurm refuses. Raises KubeError and SlurmError.
    """
    own = node if node is not None and belongs_to(node, pod.metadata.uid) else None
    wanted = _wanted_topology(runtime, pod, nodeset)
    try:
        if wanted is not None:
            what = policy.topology(
                wanted, pod.metadata.annotations.get(TOPOLOGY), own.topology if own is not None else None
            )
            if what.send is not None:
                await cluster.poller.update([slurm_node(pod)], topology=what.send)
            if what.stamp is not None:
                await _stamp(runtime, pod, what.stamp)
        if own is not None:
            await _send_features(runtime, pod, cluster, own)
    except Refused as error:
        message = f"Slurm refuses the topology or features of Kubernetes node {pod.spec.node_name}: {error}"
        runtime.events.emit(_manifest(pod), "Warning", EventReason.PLACEMENT_REFUSED, "Register", message)
        return TRY_AGAIN
    return None


async def _send_features(runtime: Runtime, pod: records.Pod, cluster: Cluster, node: Node) -> None:
    kube_node = runtime.caches.kube_nodes.store.get(None, pod.spec.node_name)
    if kube_node is None:
        return
    annotation = kube_node.metadata.annotations.get(names.FEATURES, "")
    if policy.features(annotation, node.features) is None and policy.features(annotation, node.active_features) is None:
        return
    for bad in policy.bad_features(annotation):
        message = f"annotation {names.FEATURES} of Kubernetes node {pod.spec.node_name}: {bad!r} can't be a feature"
        runtime.events.emit(_manifest(pod), "Warning", EventReason.BAD_FEATURE, "Register", message)
    # Slurm takes whole lists only: what an administrator has added since the last poll must be in them.
    live = await cluster.client.call(protocol.get_node(node.name), timeout=PATIENCE)
    if live.extra != node.extra:
        return
    available = policy.features(annotation, live.features)
    active = policy.features(annotation, live.active_features)
    if available is not None and active is None:
        # Features alone replace the active ones, too (slurmctld/node_mgr.c, update_node).
        active = live.active_features
    if available is not None or active is not None:
        await cluster.poller.update([node.name], features=available, active_features=active)


def _wanted_topology(runtime: Runtime, pod: records.Pod, nodeset: Manifest) -> str | None:
    """None while the Kubernetes node isn't known, and where the NodeSet sets the topology."""
    kube_node = runtime.caches.kube_nodes.store.get(None, pod.spec.node_name)
    if kube_node is None:
        return None
    extra_conf, of_template = set_by(nodeset)
    if policy.sets_topology(extra_conf):
        return pod.metadata.annotations.get(TOPOLOGY, "")
    return kube_node.metadata.annotations.get(TOPOLOGY, of_template).strip()


def set_by(nodeset: Manifest) -> tuple[str, str]:
    """Where a NodeSet may set the topology of its pods: spec.extraConf, and the annotation of its template."""
    spec: dict[str, Any] = nodeset.get("spec") or {}
    of_template: dict[str, str] = ((spec.get("template") or {}).get("metadata") or {}).get("annotations") or {}
    return spec.get("extraConf") or "", of_template.get(TOPOLOGY, "")


async def _stamp(runtime: Runtime, pod: records.Pod, value: str) -> None:
    metadata = pod.metadata
    patch = {"metadata": {"uid": metadata.uid, "annotations": {TOPOLOGY: value}}}
    await runtime.client.merge_patch(PODS, metadata.namespace, metadata.name, patch)


def _manifest(pod: records.Pod) -> Manifest:
    metadata = pod.metadata
    identity = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": identity}
