"""Worker pods that nobody else brings back: stuck on a lost Kubernetes node, or unknown to Slurm.

A terminating pod stays until the kubelet reports that it has ended. On a host that lost its power that never happens,
and the pod keeps its name. Only two facts prove that nothing of it runs: no Node object exists, or the Node has the
taint `node.kubernetes.io/out-of-service`, by which an administrator declares that the host is off
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sidecars.policy.nodeset.drain import NOT_REGISTERED_SECONDS
from sidecars.policy.nodeset.records import Deletion, SlurmView, WorkerPod

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

NOT_REGISTERED = "SlurmNodeNotRegistered"
"""Event of a pod that is deleted because Slurm has no node of it."""

OVERDUE_SECONDS = 15.0
"""How long a kubelet may take to report the end of a pod whose grace is over."""

UNREGISTERED_SECONDS = 60.0
"""How long a running slurmd may be unknown to Slurm: it tries to register every few seconds."""

REPLACEMENT_SECONDS = 60.0
REPLACED_PERCENT = 10
"""In so many seconds at most this share of the workers is replaced because Slurm doesn't know them; one at least."""

DISRUPTED_PERCENT = 55
DISRUPTED_LEAST = 3
"""From this share of the workers on, and so many, no pod is deleted because Slurm doesn't know it. slurmctld has more
probably lost its state, and jobs may run on all of them. Kubernetes' node controller has the same thresholds."""

ALL_UNREGISTERED_SECONDS = 600.0
"""The same where Slurm lists no node at all, as a faulty slurmrestd does too: jobs may run on all of them."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Pods to delete."""

    delete: tuple[Deletion, ...] = ()
    look_again: float | None = None
    """Seconds until time alone may have changed that."""


def stuck(pods: Sequence[WorkerPod], slurm: SlurmView, now: float, since: Mapping[str, float]) -> Lost:
    """The terminating pods to delete by force, once their Kubernetes node has been read again. `since`: see `absent`.

    The Node object of a running host can be deleted too: its kubelet then stops the pod within its grace. A pod without
    a Node is therefore deleted when that is over, or when slurmctld does not reach its slurmd.
    """
    delete: list[Deletion] = []
    waits: list[float] = []
    lost_state = bool(disrupted(pods, since, now))
    for pod in pods:
        if not pod.terminating:
            continue
        left = 0.0 if pod.terminating_until is None else pod.terminating_until - now
        if left > 0:
            waits.append(left)
        if pod.out_of_service:
            why = f"it is stuck terminating on Kubernetes node {pod.kube_node}, which is out of service"
            delete.append(Deletion(pod, why, grace_seconds=0, kube_node_lost=True))
        elif pod.kube_node_gone and (left <= 0 or _silent(pod, slurm, lost_state)):
            why = f"it is stuck terminating on Kubernetes node {pod.kube_node}, which is gone"
            delete.append(Deletion(pod, why, grace_seconds=0, kube_node_lost=True))
    return Lost(tuple(delete), min(waits, default=None))


def _silent(pod: WorkerPod, slurm: SlurmView, lost_state: bool) -> bool:
    node = slurm.nodes.get(pod.slurm_node)
    return slurm.problem is None and (not lost_state if node is None else "NOT_RESPONDING" in node.states)


def is_overdue(pod: WorkerPod, now: float) -> bool:
    """Whether its kubelet should have reported its end."""
    return pod.terminating and pod.terminating_until is not None and now >= pod.terminating_until + OVERDUE_SECONDS


def stuck_message(pods: Iterable[WorkerPod]) -> str:
    """What an administrator can do about terminating pods of a silent kubelet, for a condition; "" for none."""
    found = [pod for pod in pods if pod.terminating and pod.kubelet_silent and not pod.out_of_service]
    if not found:
        return ""
    first, more = found[0], f" (and {len(found) - 1} more pods likewise)" if len(found) > 1 else ""
    return (
        f"pod {first.name} is terminating on Kubernetes node {first.kube_node}, whose kubelet doesn't report{more}; if "
        f"the host is off, declare it: kubectl taint nodes {first.kube_node} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    )


def absent(pods: Iterable[WorkerPod], slurm: SlurmView, before: Mapping[str, float], now: float) -> dict[str, float]:
    """Since when Slurm has no node of a pod whose slurmd runs, by the pod's uid.

    Time during which Slurm's state is unknown does not count.
    """
    if slurm.problem is not None:
        return {}
    return {
        pod.uid: max(pod.slurmd_since, before.get(pod.uid, now))
        for pod in pods
        if not pod.terminating
        and not pod.finished
        and pod.slurmd_since is not None
        and pod.slurm_node
        and pod.slurm_node not in slurm.nodes
        and pod.slurm_node not in slurm.unsettled
    }


def not_registered(pods: Iterable[WorkerPod], slurm: SlurmView, since: Mapping[str, float], now: float) -> str:
    """About pods that should have registered in Slurm, for a condition; "" for none. `since`: see `absent`."""
    late = [pod for pod in pods if pod.uid in since and now - since[pod.uid] >= NOT_REGISTERED_SECONDS]
    if not late:
        return ""
    more = f" (and {len(late) - 1} more pods likewise)" if len(late) > 1 else ""
    return (
        f"pod {late[0].name}: slurmd runs and Slurm has no node {late[0].slurm_node}{more}; the pod is replaced after "
        f"{_patience(slurm):g} s of that; see the logs of slurmd and slurmctld"
    )


def disrupted(pods: Iterable[WorkerPod], since: Mapping[str, float], now: float) -> str:
    """Why no pod that Slurm doesn't know is deleted, for a condition; "" if some may be. `since`: see `absent`."""
    if len(since) < DISRUPTED_LEAST:
        # In a healthy cluster thousands of pods need not be looked at, several times in each pass.
        return ""
    running = [pod for pod in pods if not pod.terminating and not pod.finished and pod.slurmd_since is not None]
    missing = [pod for pod in running if now - since.get(pod.uid, now) >= NOT_REGISTERED_SECONDS]
    if len(missing) < DISRUPTED_LEAST or 100 * len(missing) <= DISRUPTED_PERCENT * len(running):
        return ""
    first = min(pod.slurm_node for pod in missing)
    return (
        f"Slurm has no node of {len(missing)} of the {len(running)} workers whose slurmd runs, such as {first}: "
        "slurmctld may have lost its state, and jobs may still run there, so no pod is replaced or deleted; restore "
        "slurmctld's state, or delete these pods when their jobs have ended"
    )


def unregistered(
    pods: Sequence[WorkerPod], slurm: SlurmView, since: Mapping[str, float], replaced: Mapping[str, float], now: float
) -> Lost:
    """The pods to delete that Slurm does not know although their slurmd runs: only a new slurmd registers again.

    That happens when the record of a dynamic node is deleted while its slurmd runs (scontrol delete). `since`: see
    `absent`. `replaced`: when pods were chosen earlier, by uid; see `still_replaced`.
    """
    if disrupted(pods, since, now):
        return Lost()
    delete: list[Deletion] = []
    waits: list[float] = []
    patience = _patience(slurm)
    recent = still_replaced(replaced, now)
    room = max(1, len(pods) * REPLACED_PERCENT // 100) - len(recent)
    for pod in pods:
        if pod.uid not in since:
            continue
        left = since[pod.uid] + patience - now
        if left > 0:
            waits += [left, *(it for it in (left - patience + NOT_REGISTERED_SECONDS,) if it > 0)]
            continue
        if pod.uid not in recent:
            if room <= 0:
                waits.append(min(recent.values(), default=now) + REPLACEMENT_SECONDS - now)
                continue
            room -= 1
        why = f"its slurmd has run for {patience:g} s and Slurm has no node {pod.slurm_node}"
        delete.append(Deletion(pod, why, absent=True, event=NOT_REGISTERED, severity="Warning"))
    return Lost(tuple(delete), min(waits, default=None))


def still_replaced(replaced: Mapping[str, float], now: float) -> dict[str, float]:
    """The pods that were chosen in the last `REPLACEMENT_SECONDS`."""
    return {uid: at for uid, at in replaced.items() if now - at < REPLACEMENT_SECONDS}


def _patience(slurm: SlurmView) -> float:
    return UNREGISTERED_SECONDS if slurm.nodes else ALL_UNREGISTERED_SECONDS
