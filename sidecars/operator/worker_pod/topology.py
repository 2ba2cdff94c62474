"""Topology and features of a worker, from annotations and labels of its Kubernetes node to its pod
and Slurm node.
"""

import logging
from typing import Any

from sidecars import objects
from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import PODS, Manifest
from sidecars.operator.core.topology import Line, annotated
from sidecars.operator.runtime import topology as labels
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.worker_pod import annotations as policy
from sidecars.policy.nodeset.observation import slurm_node
from sidecars.policy.reasons import EventReason
from sidecars.slurm import protocol
from sidecars.slurm.errors import Refused
from sidecars.slurm.owners import belongs_to
from sidecars.slurm.pending import PATIENCE
from sidecars.slurm.records import Node
from sidecars.workloads import names

log = logging.getLogger(__name__)

TRY_AGAIN = 60.0
"""Seconds after which to look again at what Slurm has refused or labels don't tell: topology.yaml
may have changed.
"""


async def stamp(runtime: Runtime, pod: objects.Pod, nodeset: Manifest) -> None:
    """Stamp a pod that isn't yet. Raises KubeError."""
    line = _wanted_topology(runtime, pod, nodeset)
    if line is not None and TOPOLOGY not in pod.metadata.annotations:
        await _stamp(runtime, pod, line.text)


async def send(
    runtime: Runtime, pod: objects.Pod, nodeset: Manifest, cluster: Cluster, node: Node | None
) -> float | None:
    """Stamp the pod, and send Slurm what has changed. `node` is the record of its name, None if
    none exists.

    Returns after how many seconds to try again what Slurm refuses, or what the labels don't tell.
    Raises KubeError, SlurmError.
    """
    own = node if node is not None and belongs_to(node, pod.metadata.uid) else None
    line = _wanted_topology(runtime, pod, nodeset)
    try:
        if line is not None:
            what = policy.topology(
                line.text,
                pod.metadata.annotations.get(TOPOLOGY),
                own.topology if own is not None else None,
            )
            if what.send is not None:
                await cluster.poller.update([slurm_node(pod)], topology=what.send)
            if what.stamp is not None:
                await _stamp(runtime, pod, what.stamp)
        if own is not None:
            await _send_features(runtime, pod, cluster, own)
    except Refused as error:
        message = (
            f"Slurm refuses the topology or features of Kubernetes node {pod.spec.node_name}: "
            f"{error}"
        )
        runtime.events.emit(
            _manifest(pod), "Warning", EventReason.PLACEMENT_REFUSED, "Register", message
        )
        return TRY_AGAIN
    if line is None or not (line.problems or line.waits):
        return None
    for problem in line.problems:
        message = f"Kubernetes node {pod.spec.node_name}: {problem}"
        runtime.events.emit(
            _manifest(pod), "Warning", EventReason.PLACE_UNKNOWN, "Register", message
        )
    return TRY_AGAIN


async def _send_features(runtime: Runtime, pod: objects.Pod, cluster: Cluster, node: Node) -> None:
    kube_node = runtime.caches.kube_nodes.store.get(None, pod.spec.node_name)
    if kube_node is None:
        return
    annotation = kube_node.metadata.annotations.get(names.FEATURES, "")
    if (
        policy.features(annotation, node.features) is None
        and policy.features(annotation, node.active_features) is None
    ):
        return
    for bad in policy.bad_features(annotation):
        message = (
            f"annotation {names.FEATURES} of Kubernetes node {pod.spec.node_name}: {bad!r} can't "
            "be a feature"
        )
        runtime.events.emit(_manifest(pod), "Warning", EventReason.BAD_FEATURE, "Register", message)
    # Slurm takes whole lists only: what an administrator has added since the last poll must be in
    # them.
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


def _wanted_topology(runtime: Runtime, pod: objects.Pod, nodeset: Manifest) -> Line | None:
    """Return the topology for the pod, None while the Kubernetes node isn't known. An annotation of
    it counts more than its labels.
    """
    kube_node = runtime.caches.kube_nodes.store.get(None, pod.spec.node_name)
    if kube_node is None:
        return None
    extra_conf, of_template = set_by(nodeset)
    if policy.sets_topology(extra_conf):
        return Line(pod.metadata.annotations.get(TOPOLOGY, ""))
    text = kube_node.metadata.annotations.get(TOPOLOGY, of_template).strip()
    if TOPOLOGY in kube_node.metadata.annotations or of_template:
        return annotated(text, pod.metadata.annotations.get(TOPOLOGY))
    return labels.line(runtime, controller_of(nodeset), kube_node) or Line("")


def set_by(nodeset: Manifest) -> tuple[str, str]:
    """Name where a NodeSet may set the topology of its pods: spec.extraConf, and the annotation of
    its template.
    """
    spec: dict[str, Any] = nodeset.get("spec") or {}
    of_template: dict[str, str] = ((spec.get("template") or {}).get("metadata") or {}).get(
        "annotations"
    ) or {}
    return spec.get("extraConf") or "", of_template.get(TOPOLOGY, "")


async def _stamp(runtime: Runtime, pod: objects.Pod, value: str) -> None:
    metadata = pod.metadata
    patch = {"metadata": {"uid": metadata.uid, "annotations": {TOPOLOGY: value}}}
    await runtime.client.merge_patch(PODS, metadata.namespace, metadata.name, patch)


def _manifest(pod: objects.Pod) -> Manifest:
    metadata = pod.metadata
    identity = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": identity}
