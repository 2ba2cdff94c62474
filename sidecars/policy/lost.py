"""Worker pods that nobody else will bring back: stuck on a lost machine, or unknown to Slurm. Pure.

A pod that is being deleted stays until the kubelet of its machine says that it has ended, so one on a machine that
lost its power stays for good, and with it its name. Only two things say that nothing of it runs any more: there is no
Node object, or the Node is tainted `node.kubernetes.io/out-of-service`, by which an administrator says that the machine
is off (https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sidecars.policy.nodeset import NOT_REGISTERED_SECONDS, Deletion, SlurmView, WorkerPod

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

NOT_REGISTERED = "SlurmNodeNotRegistered"
"""Event of a pod that is deleted because Slurm doesn't know it."""

OVERDUE_SECONDS = 15.0
"""How long a kubelet may take to tell of the end of a pod whose grace is over."""

UNREGISTERED_SECONDS = 60.0
"""How long a running slurmd may be unknown to Slurm: it tries to register every few seconds."""

ALL_UNREGISTERED_SECONDS = 600.0
"""The same where Slurm lists no node at all, which is also what a sick slurmrestd says: jobs may run on them all."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Pods to delete, and after how many seconds to look again, None for never by time alone."""

    delete: tuple[Deletion, ...] = ()
    again: float | None = None


def stuck(pods: Iterable[WorkerPod], slurm: SlurmView, now: float) -> Lost:
    """The terminating pods that are to be deleted by force. Their machine is to be looked at again just before that.

    The Node object of a living machine can be deleted too: its kubelet then stops the pod within its grace. So one
    without a Node goes once that is over, or when slurmctld doesn't reach its slurmd.
    """
    delete: list[Deletion] = []
    waits: list[float] = []
    for pod in pods:
        if not pod.deleting:
            continue
        left = 0.0 if pod.terminating_until is None else pod.terminating_until - now
        if left > 0:
            waits.append(left)
        if pod.out_of_service:
            why = f"it is stuck terminating on Kubernetes node {pod.kube_node}, which is out of service"
            delete.append(Deletion(pod, why, grace_seconds=0, machine_lost=True))
        elif pod.kube_node_gone and (left <= 0 or _silent(pod, slurm)):
            why = f"it is stuck terminating on Kubernetes node {pod.kube_node}, which is gone"
            delete.append(Deletion(pod, why, grace_seconds=0, machine_lost=True))
    return Lost(tuple(delete), min(waits, default=None))


def _silent(pod: WorkerPod, slurm: SlurmView) -> bool:
    node = slurm.nodes.get(pod.slurm_node)
    return slurm.problem is None and (node is None or "NOT_RESPONDING" in node.states)


def is_overdue(pod: WorkerPod, now: float) -> bool:
    """Whether its kubelet should have ended it by now."""
    return pod.deleting and pod.terminating_until is not None and now >= pod.terminating_until + OVERDUE_SECONDS


def said(pods: Iterable[WorkerPod]) -> str:
    """What an administrator is to do about terminating pods on a silent machine, for a condition; "" for none."""
    found = [pod for pod in pods if pod.deleting and pod.machine_silent and not pod.out_of_service]
    if not found:
        return ""
    first, more = found[0], f" (and {len(found) - 1} more pods likewise)" if len(found) > 1 else ""
    return (
        f"pod {first.name} is terminating on Kubernetes node {first.kube_node}, whose kubelet doesn't report{more}; if "
        f"the machine is off, say so: kubectl taint nodes {first.kube_node} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    )


def absent(pods: Iterable[WorkerPod], slurm: SlurmView, before: Mapping[str, float], now: float) -> dict[str, float]:
    """Since when Slurm has no node of a pod whose slurmd runs, by the pod's uid. Time in which nobody knows is none."""
    if slurm.problem is not None:
        return {}
    return {
        pod.uid: max(pod.slurmd_since, before.get(pod.uid, now))
        for pod in pods
        if not pod.deleting
        and not pod.finished
        and pod.slurmd_since is not None
        and pod.slurm_node
        and pod.slurm_node not in slurm.nodes
        and pod.slurm_node not in slurm.unsettled
    }


def not_registered(pods: Iterable[WorkerPod], slurm: SlurmView, since: Mapping[str, float], now: float) -> str:
    """What to know of pods that Slurm should know by now, for a condition; "" for none. `since`: see `absent`."""
    late = [pod for pod in pods if pod.uid in since and now - since[pod.uid] >= NOT_REGISTERED_SECONDS]
    if not late:
        return ""
    more = f" (and {len(late) - 1} more pods likewise)" if len(late) > 1 else ""
    return (
        f"pod {late[0].name}: slurmd runs and Slurm has no node {late[0].slurm_node}{more}; the pod is replaced after "
        f"{_patience(slurm):g} s of that; see the logs of slurmd and slurmctld"
    )


def unregistered(pods: Iterable[WorkerPod], slurm: SlurmView, since: Mapping[str, float], now: float) -> Lost:
    """The pods that Slurm doesn't know although their slurmd runs: only a new slurmd registers again. `since`: `absent`

    So it is when somebody deletes the record of a node whose slurmd runs (scontrol delete, of a dynamic node).
    """
    delete: list[Deletion] = []
    waits: list[float] = []
    patience = _patience(slurm)
    for pod in pods:
        if pod.uid not in since:
            continue
        left = since[pod.uid] + patience - now
        if left > 0:
            waits += [left, *(it for it in (left - patience + NOT_REGISTERED_SECONDS,) if it > 0)]
            continue
        why = f"its slurmd has run for {patience:g} s and Slurm has no node {pod.slurm_node}"
        delete.append(Deletion(pod, why, absent=True, event=NOT_REGISTERED, severity="Warning"))
    return Lost(tuple(delete), min(waits, default=None))


def _patience(slurm: SlurmView) -> float:
    return UNREGISTERED_SECONDS if slurm.nodes else ALL_UNREGISTERED_SECONDS
