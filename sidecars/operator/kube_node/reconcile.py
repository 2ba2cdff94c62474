"""Cordons Kubernetes nodes whose worker an administrator drained in Slurm, and labels those of
pinned workers, each if so configured. All in one pass.
"""

import contextlib
import logging
from functools import partial
from typing import Any

from sidecars import objects
from sidecars.contract.bridge import NODE_NAME
from sidecars.kube import NODES, NotFound
from sidecars.operator.kube_node import plan as policy
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset.observation import slurm_node
from sidecars.workloads import names

log = logging.getLogger(__name__)

ALL: Key = ("", "kube-nodes")
"""The one key of its queue."""


async def reconcile(runtime: Runtime, _: Key) -> float | None:
    """Run one pass over all Slurm clusters and Kubernetes nodes. Raises ApiError."""
    if runtime.settings.cordon_drained_nodes:
        await _cordon(runtime)
    if runtime.settings.label_kube_nodes:
        await _label(runtime)
    return None


async def _cordon(runtime: Runtime) -> None:
    drained: dict[str, dict[str, str]] = {}
    unknown: list[str] = []
    for controller in runtime.caches.controllers.store.values():
        metadata = controller["metadata"]
        key = (metadata["namespace"], metadata["name"])
        cluster = runtime.clusters.get(key)
        if cluster is None or cluster.view().problem is not None:
            unknown.append("/".join(key))
        else:
            drained["/".join(key)] = policy.to_cordon(cluster.view().nodes.values())
    nodes = {node.metadata.name: node for node in runtime.caches.kube_nodes.store.values()}
    watched = runtime.settings.namespaces
    changes = policy.plan(drained, unknown, _workers(runtime), nodes.values(), watched)
    steps = [
        partial(_patch, runtime, nodes[name], unschedulable=True, mark=mark)
        for name, mark in changes.cordon.items()
    ]
    steps += [
        partial(_patch, runtime, nodes[name], unschedulable=None, mark=None)
        for name in changes.uncordon
    ]
    steps += [partial(_patch, runtime, nodes[name], mark=None) for name in changes.unmark]
    for name, mark in changes.cordon.items():
        log.info("Kubernetes node %s: cordoned for Slurm cluster %s", name, mark)
    for name in changes.uncordon:
        log.info("Kubernetes node %s: uncordoned, nobody's drain in Slurm is left", name)
    await bulk.all_of(steps)


async def _label(runtime: Runtime) -> None:
    found = {node.metadata.name: node for node in runtime.caches.kube_nodes.store.values()}
    present = {
        name: policy.Label(
            node.metadata.labels.get(NODE_NAME, ""),
            node.metadata.annotations.get(names.LABELLED_FOR, ""),
        )
        for name, node in found.items()
    }
    changes = policy.labels(_pinned(runtime), present, runtime.settings.namespaces)
    for name, label in changes.items():
        log.info("Kubernetes node %s: label %s %s", name, NODE_NAME, label or "is removed")
    await bulk.all_of(
        [partial(_set_label, runtime, found[name], label) for name, label in changes.items()]
    )


def _pinned(runtime: Runtime) -> dict[str, list[policy.Label]]:
    """Return the Slurm nodes of the workers that are pinned to their Kubernetes node, by that."""
    owners = {
        it["metadata"]["uid"]: f"{it['metadata']['namespace']}/{it['metadata']['name']}"
        for it in runtime.caches.nodesets.store.values()
        if it["spec"].get("pinToNode") and it["spec"].get("scalingMode") != "DaemonSet"
    }
    found: dict[str, list[policy.Label]] = {}
    for pod in runtime.caches.pods.store.values():
        owner = next(
            (owners[it.uid] for it in pod.metadata.owner_references if it.uid in owners), None
        )
        if owner is not None and pod.spec.node_name and pod.metadata.deletion_timestamp is None:
            label = policy.Label(slurm_node(pod), owner)
            found.setdefault(pod.spec.node_name, []).append(label)
    return found


async def _set_label(runtime: Runtime, node: objects.Node, label: policy.Label | None) -> None:
    metadata = {
        "resourceVersion": node.metadata.resource_version,
        "labels": {NODE_NAME: label.slurm_node if label is not None else None},
        "annotations": {names.LABELLED_FOR: label.mark if label is not None else None},
    }
    with contextlib.suppress(NotFound):
        await runtime.client.merge_patch(NODES, None, node.metadata.name, {"metadata": metadata})


def _workers(runtime: Runtime) -> dict[str, set[str]]:
    """Return the Kubernetes nodes that run worker pods of each Slurm cluster."""
    workers: dict[str, set[str]] = {}
    for pod in runtime.caches.pods.store.values():
        namespace, cluster = runtime.lookup.controller_of_pod(
            (pod.metadata.namespace, pod.metadata.name)
        )
        if pod.status.phase == "Running":
            workers.setdefault(f"{namespace}/{cluster}", set()).add(pod.spec.node_name)
    return workers


async def _patch(runtime: Runtime, node: objects.Node, *, mark: str | None, **spec: Any) -> None:
    # With the resourceVersion it is a Conflict if another client has cordoned or uncordoned it
    # meanwhile.
    metadata = {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {names.CORDONED_FOR: mark},
    }
    patch = {"metadata": metadata, **({"spec": spec} if spec else {})}
    with contextlib.suppress(NotFound):
        await runtime.client.merge_patch(NODES, None, node.metadata.name, patch)
