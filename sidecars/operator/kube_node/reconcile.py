"""Cordons Kubernetes nodes whose worker an administrator drained in Slurm, if so configured. All in one pass."""

import contextlib
import logging
from functools import partial
from typing import Any

from sidecars.kube import NODES, NotFound, records
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import kube_nodes as policy
from sidecars.workloads import names

log = logging.getLogger(__name__)

ALL: Key = ("", "kube-nodes")
"""The one key of its queue."""


async def reconcile(runtime: Runtime, _: Key) -> float | None:
    """One pass over all Slurm clusters and Kubernetes nodes. Raises ApiError."""
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
    found = {node.metadata.name: node for node in runtime.caches.kube_nodes.store.values()}
    watched = runtime.settings.namespaces
    changes = policy.plan(drained, unknown, _workers(runtime), map(_kube_node, found.values()), watched)
    steps = [
        partial(_patch, runtime, found[name], unschedulable=True, mark=mark) for name, mark in changes.cordon.items()
    ]
    steps += [partial(_patch, runtime, found[name], unschedulable=None, mark=None) for name in changes.uncordon]
    steps += [partial(_patch, runtime, found[name], mark=None) for name in changes.unmark]
    for name, mark in changes.cordon.items():
        log.info("Kubernetes node %s: cordoned for Slurm cluster %s", name, mark)
    for name in changes.uncordon:
        log.info("Kubernetes node %s: uncordoned, nobody's drain in Slurm is left", name)
    await bulk.all_of(steps)
    return None


def _workers(runtime: Runtime) -> dict[str, set[str]]:
    """The Kubernetes nodes that run worker pods of each Slurm cluster."""
    found: dict[str, set[str]] = {}
    for pod in runtime.caches.pods.store.values():
        namespace, cluster = runtime.lookup.controller_of_pod((pod.metadata.namespace, pod.metadata.name))
        if pod.status.phase == "Running":
            found.setdefault(f"{namespace}/{cluster}", set()).add(pod.spec.node_name)
    return found


def _kube_node(node: records.Node) -> policy.KubeNode:
    mark = node.metadata.annotations.get(names.CORDONED_FOR, "")
    return policy.KubeNode(node.metadata.name, cordoned=node.spec.unschedulable, mark=mark)


async def _patch(runtime: Runtime, node: records.Node, *, mark: str | None, **spec: Any) -> None:
    # With the resourceVersion it is a Conflict if another client has cordoned or uncordoned it meanwhile.
    metadata = {"resourceVersion": node.metadata.resource_version, "annotations": {names.CORDONED_FOR: mark}}
    patch = {"metadata": metadata, **({"spec": spec} if spec else {})}
    with contextlib.suppress(NotFound):
        await runtime.client.merge_patch(NODES, None, node.metadata.name, patch)
