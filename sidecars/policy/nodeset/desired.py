"""The pods that a NodeSet asks for, from its spec and the Kubernetes nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecars.contract.autoscaling import decode
from sidecars.policy import placement
from sidecars.policy.nodeset import maintenance
from sidecars.policy.nodeset.records import DesiredPods
from sidecars.workloads import names
from sidecars.workloads.resources import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.objects import Node
    from sidecars.policy.nodeset.records import WorkerPod
    from sidecars.policy.placement import Place, Rules
    from sidecars.workloads.resources import NodeSet


def desired_pods(
    nodeset: NodeSet,
    revision: str,
    rules: Rules | None,
    kube_nodes: Mapping[str, Node],
    pods: Sequence[WorkerPod],
    now: float,
    ordinals: frozenset[int] | None = None,
) -> DesiredPods:
    """`rules`: where new pods may run, None while no template of theirs is known. `revision`:
    theirs.

    `kube_nodes` are needed in DaemonSet mode, and for a NodeSet that pins its pods to their nodes.
    `ordinals`: those that need a pod, with power saving.
    """
    spec = nodeset.spec
    places = _places(rules, kube_nodes, pods) if spec.scaling_mode == "DaemonSet" else None
    replicas = spec.replicas if ordinals is None else len(ordinals)
    if places is not None:
        replicas = sum(1 for place in places.values() if place.should_run)
    strategy = spec.update_strategy if rules is not None else None
    deadline = deletion_deadline(nodeset)
    return DesiredPods(
        namespace=nodeset.namespace,
        name=nodeset.name,
        replicas=replicas,
        places=places,
        revision=revision,
        rolling=strategy is not None and strategy.type == "RollingUpdate",
        max_unavailable=_pod_count(spec.update_strategy.rolling_update.max_unavailable, replicas),
        deleting=nodeset.metadata.deletion_timestamp is not None,
        forced=deadline is not None and now >= deadline,
        reservation=maintenance.name_of(nodeset.name)
        if strategy is not None and strategy.type == "ScheduledUpdate"
        else None,
        pins=_pins(nodeset, rules, kube_nodes, pods),
        removable=_removable(nodeset),
        ordinals=ordinals,
        slots=spec.replicas if ordinals is not None else 0,
    )


def _removable(nodeset: NodeSet) -> tuple[str, ...] | None:
    """Return the Slurm nodes that autoscaling removes, or None where it hasn't set the number of
    replicas.
    """
    if nodeset.spec.autoscaling is None:
        return None
    applied = decode(nodeset.metadata.annotations.get(names.AUTOSCALING, ""))
    if applied is None or applied.replicas != nodeset.spec.replicas:
        return None
    return applied.remove


def deletion_deadline(nodeset: NodeSet) -> float | None:
    """Return when spec.deletionTimeout of a NodeSet that is being deleted is over.

    None: the NodeSet waits for its jobs without a limit, or is not being deleted.
    """
    deleted, timeout = nodeset.metadata.deletion_timestamp, nodeset.spec.deletion_timeout
    if deleted is None or timeout is None:
        return None
    return deleted.timestamp() + duration(timeout, "spec.deletionTimeout")


def _places(
    rules: Rules | None, kube_nodes: Mapping[str, Node], pods: Sequence[WorkerPod]
) -> Mapping[str, Place]:
    """Return each Kubernetes node as a place for a pod. Without rules every pod keeps its place."""
    if rules is None:
        where = {pod.place: pod.slurm_node for pod in pods if pod.place is not None}
        return {
            name: placement.Place(name, host, should_run=True, may_stay=True)
            for name, host in where.items()
        }
    settled = {pod.slurm_node: pod.place for pod in pods if pod.place is not None}
    return placement.with_distinct_names(
        (rules.place(node) for node in kube_nodes.values()), settled
    )


def _pins(
    nodeset: NodeSet,
    rules: Rules | None,
    kube_nodes: Mapping[str, Node],
    pods: Sequence[WorkerPod],
) -> Mapping[str, str]:
    """status.ordinalToNode: the Kubernetes node of each ordinal that ever ran, as long as a pod
    fits there.
    """
    if not nodeset.spec.pin_to_node or nodeset.spec.scaling_mode != "StatefulSet":
        return {}
    before = nodeset.status.ordinal_to_node or {}
    found = {
        ordinal: node for ordinal, node in before.items() if _fits(rules, kube_nodes.get(node))
    }
    for pod in pods:
        if (
            pod.phase == "Running"
            and pod.kube_node is not None
            and pod.ordinal >= 0
            and not pod.kube_node_gone
        ):
            found[str(pod.ordinal)] = pod.kube_node
    return dict(sorted(found.items(), key=lambda item: int(item[0]) if item[0].isdigit() else -1))


def _fits(rules: Rules | None, kube_node: Node | None) -> bool:
    """Return whether a pinned pod could still run there. Without rules that is unknown, and the pin
    stays.
    """
    return rules is None or (kube_node is not None and rules.place(kube_node).may_stay)


def _pod_count(value: int | str, replicas: int) -> int:
    """Return a number of pods, at least 1. A percentage is of the replicas, rounded up."""
    if isinstance(value, str):
        percent = value.removesuffix("%")
        value = math.ceil(int(percent) * replicas / 100) if percent.isdigit() else 1
    return max(1, value)
