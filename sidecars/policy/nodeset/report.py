"""The conditions and the status of a NodeSet after a pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import lost, replicas
from sidecars.policy.reasons import Ready, SlurmReachable
from sidecars.slurm import states
from sidecars.workloads import nodeset as render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.policy.nodeset.records import (
        Desired,
        DesiredPods,
        Observed,
        SlurmView,
        Waiting,
        WorkerPod,
    )

MAX_REASONS = 3
"""At most so many reasons why pods are not scheduled are quoted in the condition."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a decision reports about its steps."""

    waiting: Sequence[Waiting] = ()
    """Condemned pods that can't be deleted yet."""
    deleted: frozenset[str] = frozenset()
    """uids of the pods that are to be deleted."""
    problems: Sequence[str] = ()
    """Why pods can't be created."""
    partitions: tuple[str, ...] = ()
    """status.partitions: those that jobs may name."""
    partitions_blocked: Condition | None = None
    """What keeps removed partitions in slurm.conf."""
    records_kept: Condition | None = None
    """Which node records outlive their pods, and why."""
    reservation: Condition | None = None
    """The state of the maintenance reservation."""
    power_saving: Condition | None = None
    """Whether workers run as Slurm's power saving asks for them."""
    absent_since: Mapping[str, float] = field(default_factory=dict)
    """Since when Slurm has no node of a pod whose slurmd runs, by uid."""
    spared: frozenset[str] = frozenset()
    """uids of the pods that are not deleted for that, because slurmctld may have lost its state."""
    pods_gone: bool = False
    """The NodeSet is being deleted, and its pods are gone or overdue."""


def report(
    desired: Desired,
    observed: Observed,
    progress: Progress,
    now: float,
    failure: Condition | None = None,
) -> tuple[tuple[Condition, ...], dict[str, Any]]:
    """Return the conditions, and the other fields of the status as a merge patch, with the pods as
    observed.

    `failure`: a condition `Ready` for what could not be applied.
    """
    ready = _ready(desired, observed, progress, now, failure or desired.problem)
    others = (
        progress.reservation,
        progress.partitions_blocked,
        progress.records_kept,
        progress.power_saving,
    )
    conditions = (ready, _slurm_reachable(observed.slurm), *(it for it in others if it is not None))
    status = _status(desired, observed) | {"partitions": list(progress.partitions)} | _pins(desired)
    return conditions, status | (
        {"collisionCount": desired.collisions} if desired.collisions else {}
    )


def _ready(
    desired: Desired, observed: Observed, progress: Progress, now: float, problem: Condition | None
) -> Condition:
    """Return the condition that sums up."""
    pods, deleting = desired.pods, desired.pods.deleting
    if progress.partitions_blocked is not None and progress.pods_gone:
        return replace(progress.partitions_blocked, type="Ready", reason=Ready.JOBS_REFER)
    if problem is not None and not deleting:
        return problem
    if progress.waiting:
        first, more = progress.waiting[0], len(progress.waiting) - 1
        others = f" (and {more} more pods are waiting)" if more else ""
        limit = "; spec.deletionTimeout limits the wait" if deleting and not pods.forced else ""
        return Condition(
            "Ready", "False", Ready.DRAINING, f"pod {first.pod.name}: {first.step}{others}{limit}"
        )
    stuck = lost.stuck_message(observed.pods)
    if stuck:
        return Condition("Ready", "False", Ready.KUBE_NODE_LOST, stuck)
    if deleting:
        return Condition(
            "Ready", "False", Ready.REMOVING, f"{len(observed.pods)} pods are still terminating"
        )
    if progress.problems:
        more = len(progress.problems) - 1
        others = f" (and {more} more)" if more else ""
        return Condition("Ready", "False", Ready.NAME_CONFLICT, progress.problems[0] + others)
    spared = lost.spared_message(observed.pods, progress.absent_since, progress.spared, now)
    if spared:
        return Condition("Ready", "False", Ready.STATE_LOST, spared)
    ready = sum(
        1
        for pod in observed.pods
        if pod.ready and not pod.terminating and not replicas.lingers(pod, pods)
    )
    if ready < pods.replicas:
        because = _unscheduled(observed.pods) + _without_image(observed.pods)
        because = because or f"; see `kubectl -n {pods.namespace} get pods`"
        return Condition(
            "Ready",
            "False",
            Ready.PODS_NOT_READY,
            f"{ready} of {pods.replicas} pods are ready{because}",
        )
    unregistered = lost.not_registered(
        observed.pods, observed.slurm, progress.absent_since, progress.spared, now
    )
    if unregistered:
        return Condition("Ready", "False", Ready.NOT_REGISTERED, unregistered)
    down = _down(observed.pods, observed.slurm)
    if down:
        return Condition("Ready", "False", Ready.SLURM_NODES_DOWN, down)
    terminating = progress.deleted | {pod.uid for pod in observed.pods if pod.terminating}
    if terminating:
        return Condition(
            "Ready", "False", Ready.SCALING_IN, f"{len(terminating)} pods are terminating"
        )
    return Condition("Ready", "True", Ready.READY, f"{ready} of {pods.replicas} pods are ready")


def _unscheduled(pods: Sequence[WorkerPod]) -> str:
    """Describe why pods are not bound to a Kubernetes node, the most frequent reasons first, "" if
    no pod has such a reason.
    """
    found = Counter(pod.unscheduled for pod in pods if pod.unscheduled and not pod.terminating)
    parts = [
        f"{count} {'pod is' if count == 1 else 'pods are'} not scheduled: {why}"
        for why, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MAX_REASONS]
    ]
    if len(found) > MAX_REASONS:
        rest = sum(sorted(found.values())[:-MAX_REASONS])
        parts.append(f"{rest} more pods are not scheduled for other reasons")
    return "".join(f". {part.rstrip('.')}" for part in parts)


def _without_image(pods: Sequence[WorkerPod]) -> str:
    """Describe which image the most pods don't get, "" if they all do, or may yet."""
    found = Counter(pod.no_image for pod in pods if pod.no_image and not pod.terminating)
    if not found:
        return ""
    why, count = min(found.items(), key=lambda item: (-item[1], item[0]))
    verb = "pod doesn't" if count == 1 else "pods don't"
    return f". {count} {verb} start: {why}"


def _down(pods: Sequence[WorkerPod], slurm: SlurmView) -> str:
    """Describe which Slurm nodes of ready pods are DOWN, and how to return them to service, "" for
    none.
    """
    if slurm.problem is not None:
        return ""
    ready = (slurm.nodes.get(pod.slurm_node) for pod in pods if pod.ready and not pod.terminating)
    found = sorted(
        (node for node in ready if node is not None and states.is_down(node.states)),
        key=lambda it: it.name,
    )
    if not found:
        return ""
    named = ", ".join(
        f"{it.name} ({it.reason})" if it.reason else it.name for it in found[:MAX_REASONS]
    )
    more = f" and {len(found) - MAX_REASONS} more" if len(found) > MAX_REASONS else ""
    return (
        f"Slurm nodes {named}{more} are DOWN though their pods are ready; when the cause is "
        f"fixed, run `scontrol update nodename={found[0].name} state=resume`"
    )


def _slurm_reachable(slurm: SlurmView) -> Condition:
    if slurm.problem is not None:
        message = f"{slurm.problem}; no pod is deleted until its Slurm node is known to be drained"
        return Condition("SlurmReachable", "False", SlurmReachable.NO_ANSWER, message)
    return Condition("SlurmReachable", "True", SlurmReachable.POLLED)


def _status(desired: Desired, observed: Observed) -> dict[str, Any]:
    nodeset, pods, view = desired.nodeset, desired.pods, observed.slurm
    live = [pod for pod in observed.pods if not pod.terminating]
    available = [pod for pod in live if pod.available]
    words = [node.states for pod in live if (node := view.nodes.get(pod.slurm_node)) is not None]
    base = [states.base_state(word) for word in words]
    return {
        "replicas": sum(1 for pod in observed.pods if pod.phase),
        "updatedReplicas": sum(1 for pod in live if pod.revision == pods.revision),
        "readyReplicas": sum(1 for pod in live if pod.ready),
        "availableReplicas": len(available),
        "unavailableReplicas": max(0, pods.replicas - _serving(pods, available)),
        "desired": 0 if pods.deleting else pods.replicas,
        "slurmIdle": base.count("IDLE"),
        "slurmAllocated": base.count("ALLOCATED") + base.count("MIXED"),
        "slurmDown": sum(1 for word in words if states.is_down(word)),
        "slurmDrain": sum(1 for word in words if states.is_drain(word)),
        "observedGeneration": nodeset.metadata.generation,
        "nodeSetHash": pods.revision,
        **({"nodeConf": nodeset.status.node_conf} if nodeset.spec.power_saving.enabled else {}),
        "selector": ",".join(
            f"{name}={value}" for name, value in sorted(render.selector(nodeset).items())
        ),
    }


def _serving(pods: DesiredPods, available: Sequence[WorkerPod]) -> int:
    """Count the available pods that are replicas."""
    return (
        len(available)
        if pods.places is None
        else sum(1 for it in available if not replicas.lingers(it, pods))
    )


def _pins(desired: Desired) -> dict[str, Any]:
    """status.ordinalToNode as a merge patch: null removes an entry."""
    present = desired.nodeset.status.ordinal_to_node or {}
    if not desired.pods.pins:
        return {"ordinalToNode": None} if present else {}
    return {"ordinalToNode": dict.fromkeys(present) | dict(desired.pods.pins)}
