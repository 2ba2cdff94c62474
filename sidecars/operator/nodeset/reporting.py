"""What a NodeSet's status says of a pass: pure."""

from collections.abc import Sequence
from typing import Any

from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import lost, replicas
from sidecars.policy.nodeset.pods import PodPlan
from sidecars.policy.nodeset.records import Desired, SlurmView, WorkerPod
from sidecars.slurm import states
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import NodeSet


def ready(nodeset: NodeSet, desired: Desired, pods: Sequence[WorkerPod], plan: PodPlan, unregistered: str) -> Condition:
    """The condition that sums up. `unregistered`: what `lost.not_registered` says."""
    count = sum(1 for pod in pods if pod.ready and not pod.terminating and not replicas.lingers(pod, desired))
    going = {pod.uid for pod in pods if pod.terminating} | {deletion.pod.uid for deletion in plan.delete}
    if plan.waiting:
        first = plan.waiting[0]
        more = f" (and {len(plan.waiting) - 1} more pods are waiting)" if len(plan.waiting) > 1 else ""
        return Condition("Ready", "False", "Draining", f"pod {first.pod.name}: {first.step}{more}")
    stuck = lost.stuck_message(pods)
    if stuck:
        return Condition("Ready", "False", "MachineLost", stuck)
    if desired.deleting:
        return Condition("Ready", "False", "Removing", f"{len(pods)} pods are still terminating")
    if plan.problems:
        more = f" (and {len(plan.problems) - 1} more)" if len(plan.problems) > 1 else ""
        return Condition("Ready", "False", "NameConflict", plan.problems[0] + more)
    if count < desired.replicas:
        said = f"{count} of {desired.replicas} pods are ready; see `kubectl -n {nodeset.namespace} get pods`"
        return Condition("Ready", "False", "PodsNotReady", said)
    if unregistered:
        return Condition("Ready", "False", "NotRegistered", unregistered)
    if going:
        return Condition("Ready", "False", "ScalingIn", f"{len(going)} pods are terminating")
    return Condition("Ready", "True", "Ready", f"{count} of {desired.replicas} pods are ready")


def slurm_reachable(view: SlurmView) -> Condition:
    if view.problem is not None:
        said = f"{view.problem}; no pod is deleted until its Slurm node is known to be drained"
        return Condition("SlurmReachable", "False", "NoAnswer", said)
    return Condition("SlurmReachable", "True", "Polled")


def status(
    nodeset: NodeSet,
    desired: Desired,
    pods: Sequence[WorkerPod],
    view: SlurmView,
    revision: str,
) -> dict[str, Any]:
    live = [pod for pod in pods if not pod.terminating]
    available = [pod for pod in live if pod.available]
    serving = sum(1 for pod in available if not replicas.lingers(pod, desired))
    nodes = [node for pod in live if (node := view.nodes.get(pod.slurm_node)) is not None]
    words = [node.states for node in nodes]
    return {
        "replicas": len([pod for pod in pods if pod.phase]),
        "updatedReplicas": sum(1 for pod in live if pod.revision == revision),
        "readyReplicas": sum(1 for pod in live if pod.ready),
        "availableReplicas": len(available),
        "unavailableReplicas": max(0, desired.replicas - serving),
        "desired": 0 if desired.deleting else desired.replicas,
        "slurmIdle": sum(1 for word in words if states.base_state(word) == "IDLE"),
        "slurmAllocated": sum(1 for word in words if states.base_state(word) in {"ALLOCATED", "MIXED"}),
        "slurmDown": sum(1 for word in words if states.is_down(word)),
        "slurmDrain": sum(1 for word in words if states.is_drain(word)),
        "observedGeneration": nodeset.metadata.generation,
        "nodeSetHash": revision,
        "selector": ",".join(f"{name}={value}" for name, value in sorted(render.selector(nodeset).items())),
    }
