"""One pass over the pods of a NodeSet: which to create, cordon, drain and delete."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sidecars.policy.nodeset import drain as drains
from sidecars.policy.nodeset import replicas
from sidecars.policy.nodeset.actions import CreatePods
from sidecars.policy.nodeset.records import Deletion, Waiting
from sidecars.policy.reasons import EventReason
from sidecars.workloads import nodeset as render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecars.policy.nodeset.failures import Failures
    from sidecars.policy.nodeset.records import Desired, DesiredPods, SlurmView, WorkerPod

SHARED_REASON_PODS = 16
"""At this many pods with one cause they share one drain reason, so that Slurm gets one request."""

_EVENTS = {replicas.OTHER_HOSTNAME: EventReason.HOSTNAME_MISMATCH}


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What to do with the pods. Each tuple is in the order in which it is to be applied."""

    create: tuple[int, ...] = ()
    """Ordinals without a pod."""
    create_on: tuple[str, ...] = ()
    """Kubernetes nodes without a pod, in DaemonSet mode."""
    problems: tuple[str, ...] = ()
    """Why other pods can't be created."""
    delete: tuple[Deletion, ...] = ()
    cordon: tuple[WorkerPod, ...] = ()
    """Pods to be marked as condemned, or as drained because of their Kubernetes node."""
    uncordon: tuple[WorkerPod, ...] = ()
    drain: Mapping[str | None, tuple[str, ...]] = field(default_factory=dict)
    """Slurm nodes by drain reason; None doesn't change the reason."""
    undrain: tuple[str, ...] = ()
    """Slurm nodes."""
    resume: tuple[str, ...] = ()
    """Slurm nodes."""
    waiting: tuple[Waiting, ...] = ()
    """Condemned pods that can't be deleted yet."""
    scaled_in: tuple[WorkerPod, ...] = ()
    """Pods that are to be deleted, now or later, and that no pod replaces."""
    look_again: float | None = None
    """Seconds until time alone may have changed this."""


def plan(desired: DesiredPods, pods: Iterable[WorkerPod], slurm: SlurmView, now: float) -> PodPlan:
    """Decide one pass over the pods."""
    everyone = tuple(pods)
    live = [pod for pod in everyone if not pod.terminating]
    if desired.deleting or len(live) > desired.replicas:
        # Sorting thousands is expensive, so only where the order counts.
        live.sort(key=lambda pod: replicas.deletion_order(pod, slurm))
    working = [pod for pod in live if not pod.finished]
    condemned = replicas.condemn(desired, everyone, working, slurm)

    delete = [_replacement(pod) for pod in live if pod.finished]
    if desired.forced:
        delete += _shortened(everyone)
    waiting: list[Waiting] = []
    for pod in working if condemned else ():
        if pod.name in condemned:
            cause = condemned[pod.name]
            scaled_in, event = (
                cause in replicas.NOT_REPLACED,
                _EVENTS.get(cause, EventReason.SUCCESSFUL_DELETE),
            )
            by_slurm = cause == replicas.POWERED_DOWN
            verdict = drains.verdict(
                pod, desired, slurm, now, scaled_in=scaled_in, by_slurm=by_slurm, event=event
            )
            if isinstance(verdict, Deletion):
                delete.append(verdict)
            else:
                waiting.append(verdict)

    deleted = {deletion.pod.name for deletion in delete}
    staying = [pod for pod in working if pod.name not in deleted]
    cordon, uncordon = _cordons(staying, condemned, slurm)
    drain, undrain, resume, unread = _drains(desired, staying, condemned, slurm)
    hints = [
        *(it.look_again for it in waiting if it.look_again is not None),
        *([1.0] if unread else ()),
    ]
    create, create_on, problems = _missing(desired, everyone)
    return PodPlan(
        create=create,
        create_on=create_on,
        problems=problems,
        delete=tuple(delete),
        cordon=cordon,
        uncordon=uncordon,
        drain=drain,
        undrain=undrain,
        resume=resume,
        waiting=tuple(waiting),
        scaled_in=tuple(pod for pod in working if condemned.get(pod.name) in replicas.NOT_REPLACED)
        if condemned
        else (),
        look_again=min(hints, default=None),
    )


def creations(
    desired: Desired, plan: PodPlan, failed: Mapping[str, Failures], now: float
) -> list[CreatePods]:
    """Return the creation of the planned pods, without those that failed and whose back-off isn't
    over.
    """
    if not desired.creatable:
        return []
    nodeset = desired.nodeset

    def due(name: str) -> bool:
        return name not in failed or failed[name].until <= now

    ordinals = tuple(it for it in plan.create if not failed or due(render.pod_name(nodeset, it)))
    kube_nodes = tuple(
        it for it in plan.create_on if not failed or due(render.daemon_pod_name(nodeset, it))
    )
    return [CreatePods(ordinals, kube_nodes)] if ordinals or kube_nodes else []


def undecided(plan: PodPlan) -> PodPlan:
    """Return the plan while the jobs are being read, to see whose end first: no further pod is
    chosen for deletion.
    """
    condemned = {it.pod.name for it in plan.waiting}
    chosen = {pod.name: pod.slurm_node for pod in plan.cordon if pod.name in condemned}
    spared = set(chosen.values())
    drain = {
        why: tuple(name for name in names if name not in spared)
        for why, names in plan.drain.items()
    }
    return replace(
        plan,
        cordon=tuple(pod for pod in plan.cordon if pod.name not in chosen),
        scaled_in=tuple(pod for pod in plan.scaled_in if pod.name not in chosen),
        drain={why: names for why, names in drain.items() if names},
        waiting=tuple(
            replace(it, step="the jobs are being read, to see whose end first")
            if it.pod.name in chosen
            else it
            for it in plan.waiting
        ),
    )


def _replacement(pod: WorkerPod) -> Deletion:
    """Return the deletion of a finished pod, which the next pass creates again."""
    why = f"its phase is {pod.phase}"
    if pod.mode != "DaemonSet":
        return Deletion(pod, why, only_unchanged=True)
    if pod.phase == "Failed":
        return Deletion(
            pod, why, only_unchanged=True, event=EventReason.FAILED_DAEMON_POD, severity="Warning"
        )
    return Deletion(pod, why, only_unchanged=True, event=EventReason.SUCCEEDED_DAEMON_POD)


def _shortened(pods: Iterable[WorkerPod]) -> list[Deletion]:
    """Return the pods that are being deleted with a longer grace period than `deletionTimeout` of
    their NodeSet allows.
    """
    limit = drains.FORCED_GRACE_SECONDS
    return [
        Deletion(pod, drains.TIMED_OUT, limit)
        for pod in pods
        if pod.terminating and (pod.terminating_grace or 0) > limit
    ]


def _cordons(
    pods: Iterable[WorkerPod], condemned: Mapping[str, str], slurm: SlurmView
) -> tuple[tuple[WorkerPod, ...], tuple[WorkerPod, ...]]:
    """Return the pods to mark, and those whose mark of the operator's is over."""
    cordon: list[WorkerPod] = []
    uncordon: list[WorkerPod] = []
    for pod in pods:
        if pod.name in condemned:
            if pod.cordon is None:
                cordon.append(pod)
            continue
        if pod.cordon is None and pod.kube_node_cordon is None and not pod.drain_requested:
            continue
        node = slurm.nodes.get(pod.slurm_node) if slurm.problem is None else None
        needed = drains.needs_mark(pod, node)
        if needed is True and pod.cordon is None:
            cordon.append(pod)
        elif needed is False and pod.cordon == "operator":
            uncordon.append(pod)
    return tuple(cordon), tuple(uncordon)


def _drains(
    desired: DesiredPods, pods: Iterable[WorkerPod], condemned: Mapping[str, str], slurm: SlurmView
) -> tuple[dict[str | None, tuple[str, ...]], tuple[str, ...], tuple[str, ...], bool]:
    """Return the Slurm nodes to drain, by reason, to undrain and to resume, and whether some have
    to be read again first.
    """
    if slurm.problem is not None:
        return {}, (), (), False
    counts = Counter(condemned.values())
    drain: dict[str | None, list[str]] = {}
    undrain: list[str] = []
    resume: list[str] = []
    unread = False
    for pod in pods:
        node = slurm.nodes.get(pod.slurm_node)
        cause = condemned.get(pod.name)
        if node is None or (cause == replicas.POWERED_DOWN and "CLOUD" in node.states):
            # Slurm stops such a node itself. It may be starting it again: then a drain would
            # requeue the jobs.
            continue
        reason = drains.drain_reason(pod, desired.namespace, cause)
        wording: str | None = reason
        resumed = reason is None and drains.should_resume(node, pod)
        if reason is None:
            if pod.kube_node_gone or not (resumed or drains.should_undrain(node, pod)):
                continue
        else:
            shared = drains.common_reason(desired, cause) if cause is not None else reason
            if drains.should_drain(node, (reason, shared)):
                wording = (
                    shared if cause is not None and counts[cause] >= SHARED_REASON_PODS else reason
                )
            elif cause is not None and drains.should_close(node):
                wording = None
            else:
                continue
        if pod.slurm_node in slurm.unsettled:
            unread = True
        elif reason is None:
            (resume if resumed else undrain).append(pod.slurm_node)
        else:
            drain.setdefault(wording, []).append(pod.slurm_node)
    return (
        {reason: tuple(names) for reason, names in drain.items()},
        tuple(undrain),
        tuple(resume),
        unread,
    )


def _missing(
    desired: DesiredPods, everyone: Sequence[WorkerPod]
) -> tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]:
    """Ordinals and Kubernetes nodes without a pod, and why others can't have one."""
    if desired.deleting:
        return (), (), ()
    if desired.places is not None:
        return (), *replicas.free_places(everyone, desired.places)
    if desired.ordinals is not None:
        taken = {pod.ordinal for pod in everyone if pod.mode == desired.mode}
        return tuple(sorted(desired.ordinals - taken)), (), ()
    numbered = sum(1 for pod in everyone if pod.mode == desired.mode)
    return replicas.free_ordinals(everyone, max(0, desired.replicas - numbered)), (), ()
