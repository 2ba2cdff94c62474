"""Worker pods that nobody else brings back: stuck on a lost Kubernetes node, or unknown to Slurm.

A terminating pod stays until the kubelet reports that it has ended. On a host that lost its power
that never happens, and the pod keeps its name. Only two facts prove that nothing of it runs: no
Node object exists, or the Node has the taint `node.kubernetes.io/out-of-service`, by which an
administrator declares that the host is off
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sidecars.policy.nodeset.drain import NOT_REGISTERED_SECONDS
from sidecars.policy.nodeset.needs import Answer, Known
from sidecars.policy.nodeset.records import Deletion, OtherWorkers, SlurmView, Waiting, WorkerPod
from sidecars.policy.reasons import EventReason

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

OVERDUE_SECONDS = 15.0
"""How long a kubelet may take to report the end of a pod whose grace is over."""

UNREGISTERED_SECONDS = 60.0
"""How long a running slurmd may be unknown to Slurm: it tries to register every few seconds."""

REPLACEMENT_SECONDS = 60.0
REPLACED_PERCENT = 10
"""In so many seconds at most this share of the workers of a Slurm cluster is replaced because Slurm
doesn't know them; one at least.
"""

DISRUPTED_PERCENT = 55
DISRUPTED_LEAST = 3
"""From this share of the workers of a Slurm cluster on, and so many, no pod is deleted because
Slurm doesn't know it. Its list is more probably wrong, and jobs may run on all of them. Kubernetes'
node controller has the same thresholds.
"""

SPARED_SECONDS = 30.0
"""After so many seconds it is looked again whether jobs may run on a worker that Slurm doesn't
know.
"""

ALL_UNREGISTERED_SECONDS = 600.0
"""The same where Slurm lists no node at all, as a faulty slurmrestd does too: jobs may run on all
of them.
"""


@dataclass(frozen=True, slots=True)
class Lost:
    """Pods to delete."""

    delete: tuple[Deletion, ...] = ()
    look_again: float | None = None
    """Seconds until time alone may have changed that."""


def stuck(pods: Iterable[WorkerPod], slurm: SlurmView, now: float, spared: Collection[str]) -> Lost:
    """Return the terminating pods to delete by force, once their Kubernetes node has been read
    again. `spared`: see there.

    The Node object of a running host can be deleted too: its kubelet then stops the pod within its
    grace. A pod without a Node is therefore deleted when that is over, or when slurmctld does not
    reach its slurmd.
    """
    delete: list[Deletion] = []
    waits: list[float] = []
    for pod in pods:
        if not pod.terminating:
            continue
        left = 0.0 if pod.terminating_until is None else pod.terminating_until - now
        if left > 0:
            waits.append(left)
        if pod.out_of_service:
            why = (
                f"it is stuck terminating on Kubernetes node {pod.kube_node}, which is out of "
                "service"
            )
            delete.append(Deletion(pod, why, grace_seconds=0, kube_node_lost=True))
        elif pod.kube_node_gone and (left <= 0 or _silent(pod, slurm, spared)):
            why = f"it is stuck terminating on Kubernetes node {pod.kube_node}, which is gone"
            delete.append(Deletion(pod, why, grace_seconds=0, kube_node_lost=True))
    return Lost(tuple(delete), min(waits, default=None))


def _silent(pod: WorkerPod, slurm: SlurmView, spared: Collection[str]) -> bool:
    node = slurm.nodes.get(pod.slurm_node)
    return slurm.problem is None and (
        pod.uid not in spared if node is None else "NOT_RESPONDING" in node.states
    )


def is_overdue(pod: WorkerPod, now: float) -> bool:
    """Return whether its kubelet should have reported its end."""
    return (
        pod.terminating
        and pod.terminating_until is not None
        and now >= pod.terminating_until + OVERDUE_SECONDS
    )


def stuck_message(pods: Iterable[WorkerPod]) -> str:
    """Describe for a condition what an administrator can do about terminating pods of a silent
    kubelet, "" for none.
    """
    found = [
        pod for pod in pods if pod.terminating and pod.kubelet_silent and not pod.out_of_service
    ]
    if not found:
        return ""
    first, more = found[0], f" (and {len(found) - 1} more pods likewise)" if len(found) > 1 else ""
    return (
        f"pod {first.name} is terminating on Kubernetes node {first.kube_node}, whose kubelet "
        f"doesn't report{more}; if the host is off, declare it: kubectl taint nodes "
        f"{first.kube_node} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    )


def absent(
    pods: Iterable[WorkerPod], slurm: SlurmView, before: Mapping[str, float], now: float
) -> dict[str, float]:
    """Return since when Slurm has no node of a pod whose slurmd runs, by the pod's uid. Time during
    which Slurm's state is unknown does not count.
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


def not_registered(
    pods: Iterable[WorkerPod],
    slurm: SlurmView,
    since: Mapping[str, float],
    spared: Collection[str],
    now: float,
) -> str:
    """About pods that should have registered in Slurm and will be replaced, for a condition; "" for
    none.

    `since`: see `absent`; `spared`: see there.
    """
    late = [
        pod
        for pod in pods
        if pod.uid in since
        and pod.uid not in spared
        and now - since[pod.uid] >= NOT_REGISTERED_SECONDS
    ]
    if not late:
        return ""
    more = f" (and {len(late) - 1} more pods likewise)" if len(late) > 1 else ""
    return (
        f"pod {late[0].name}: slurmd runs and Slurm has no node {late[0].slurm_node}{more}; the "
        f"pod is replaced after {_patience(slurm):g} s; see the logs of slurmd and slurmctld"
    )


def is_missing(slurmd_since: float, slurm_node: str, slurm: SlurmView, now: float) -> bool:
    """Return whether a slurmd that has run since then should have registered, and Slurm has no node
    of it.
    """
    return slurm_node not in slurm.nodes and now - slurmd_since >= NOT_REGISTERED_SECONDS


def must_be_explained(
    pods: Iterable[WorkerPod],
    plan: Iterable[Deletion],
    slurm: SlurmView,
    since: Mapping[str, float],
    now: float,
) -> bool:
    """Return whether anything depends on why Slurm lacks nodes: a deletion, or a condition.
    `since`: see `absent`.
    """
    if slurm.problem is not None:
        return False
    late = any(now - at >= NOT_REGISTERED_SECONDS for at in since.values())
    return (
        late or any(it.absent for it in plan) or any(_is_stuck_unknown(pod, slurm) for pod in pods)
    )


def _is_stuck_unknown(pod: WorkerPod, slurm: SlurmView) -> bool:
    return pod.terminating and pod.kube_node_gone and pod.slurm_node not in slurm.nodes


class Spared(NamedTuple):
    """The uids of pods that aren't deleted because Slurm doesn't know them: jobs may run there."""

    uids: frozenset[str]
    """In this pass."""
    kept: frozenset[str]
    """Until Slurm knows the node, if it stays unknown when slurmctld started."""


def spared(
    pods: Sequence[WorkerPod],
    slurm: SlurmView,
    since: Mapping[str, float],
    start: Answer | None,
    others: OtherWorkers,
    before: frozenset[str],
) -> Spared:
    """Return which pods that Slurm doesn't know may have jobs.

    Slurm refuses to delete the record of a node with a job that runs or completes, so only a
    slurmctld that starts without its state forgets such a job. A pod is safe if since that start
    its slurmd has started, or Slurm has listed its node. While the start can't be read, no pod is
    safe. A slurmctld whose start nobody reports counts as one that has lost its state when most
    workers are missing, and who is spared then is spared until Slurm knows the node. Most workers
    are spared in any case: slurmrestd may answer with incomplete lists.

    `since`: see `absent`. `start`: the answer to `SlurmctldStart`, None where nothing depends on
    it. `before`: `kept` of the last pass.
    """
    if start is None and not before:
        # In a healthy cluster thousands of pods need not be looked at, several times in each pass.
        return Spared(frozenset(), frozenset())
    unknown = [
        pod
        for pod in pods
        if pod.slurmd_since is not None
        and not pod.finished
        and pod.slurm_node
        and pod.slurm_node not in slurm.nodes
    ]
    uids = frozenset(pod.uid for pod in unknown)
    if slurm.problem is None:
        before &= uids
    if start is None:
        return Spared(before, before)
    # An absence counts at once here: a pod that is condemned already would be deleted in this pass.
    if _most_are_missing(pods, len(since), others):
        return Spared(uids, uids)
    if not isinstance(start, Known):
        return Spared(uids, before)
    if start.value is None:
        return Spared(before, before)
    return Spared(
        frozenset(pod.uid for pod in unknown if _may_be_forgotten(pod, slurm, start.value)),
        frozenset(),
    )


def _may_be_forgotten(pod: WorkerPod, slurm: SlurmView, start: float) -> bool:
    # Strictly later: all three are whole seconds.
    known = max(pod.slurmd_since or 0.0, slurm.last_listed.get(pod.slurm_node, 0))
    return known <= start


def _most_are_missing(pods: Iterable[WorkerPod], missing: int, others: OtherWorkers) -> bool:
    """Return whether slurmctld has probably lost its state, or its list is incomplete."""
    if missing + others.missing < DISRUPTED_LEAST:
        return False
    running = others.running + sum(1 for pod in pods if _runs(pod))
    return 100 * (missing + others.missing) > DISRUPTED_PERCENT * running


def _runs(pod: WorkerPod) -> bool:
    return not pod.terminating and not pod.finished and pod.slurmd_since is not None


def waits_for_state(pod: WorkerPod) -> Waiting:
    """Return what a condemned pod that is spared waits for."""
    step = (
        f"Slurm has no node {pod.slurm_node}, and slurmctld may have lost its state: jobs may "
        "still run there; restore slurmctld's state, or delete the pod when its jobs have ended"
    )
    return Waiting(pod, step, look_again=5.0)


def unread(pod: WorkerPod, slurm: SlurmView) -> Waiting:
    """Return what a condemned pod waits for that isn't spared: Slurm's answers for it alone."""
    if pod.slurm_node in (slurm.nodes_with_jobs or ()):
        step = (
            f"Slurm has no node {pod.slurm_node}, but a job that has not ended, such as a "
            "suspended one, names it"
        )
        return Waiting(pod, step, look_again=5.0)
    step = slurm.jobs_problem or "whether Slurm has the node, and jobs on it, is being read"
    return Waiting(pod, f"Slurm lists no node {pod.slurm_node}: {step}", look_again=1.0)


def spared_message(
    pods: Sequence[WorkerPod], since: Mapping[str, float], spared: Collection[str], now: float
) -> str:
    """Describe for a condition why pods that Slurm doesn't know aren't deleted, "" for none.
    `since`: see `absent`.
    """
    if not spared:
        return ""
    late = [
        pod.slurm_node
        for pod in pods
        if pod.uid in spared and now - since.get(pod.uid, now) >= NOT_REGISTERED_SECONDS
    ]
    if not late:
        return ""
    running = sum(1 for pod in pods if _runs(pod))
    return (
        f"Slurm has no node of {len(late)} of the {running} workers whose slurmd runs, such as "
        f"{min(late)}: slurmctld may have lost its state, and jobs may still run there, so these "
        "pods are neither replaced nor deleted; restore slurmctld's state, or delete these pods "
        "when their jobs have ended"
    )


def unregistered(
    pods: Sequence[WorkerPod],
    slurm: SlurmView,
    since: Mapping[str, float],
    spared: Collection[str],
    replaced: Mapping[str, float],
    others: OtherWorkers,
    now: float,
) -> Lost:
    """Return the pods to delete that Slurm does not know although their slurmd runs: only a new
    slurmd registers again.

    That happens when the record of a dynamic node is deleted while its slurmd runs (scontrol
    delete). `since`: see `absent`. `spared`: see there. `replaced`: when pods were chosen earlier,
    by uid: see `still_replaced`.
    """
    delete: list[Deletion] = []
    waits: list[float] = []
    patience = _patience(slurm)
    recent = still_replaced(replaced, now)
    elsewhere = [at for at in others.replaced if now - at < REPLACEMENT_SECONDS]
    room = (
        max(1, (len(pods) + others.running) * REPLACED_PERCENT // 100)
        - len(recent)
        - len(elsewhere)
    )
    for pod in pods if since else ():
        if pod.uid not in since:
            continue
        left = since[pod.uid] + patience - now
        until_reported = left - patience + NOT_REGISTERED_SECONDS
        if left > 0 or pod.uid in spared:
            # Why it is spared may end without an event.
            waits.append(
                until_reported
                if until_reported > 0
                else SPARED_SECONDS
                if pod.uid in spared
                else left
            )
            continue
        if pod.uid not in recent:
            if room <= 0:
                waits.append(
                    min([*recent.values(), *elsewhere], default=now) + REPLACEMENT_SECONDS - now
                )
                continue
            room -= 1
        why = f"its slurmd has run for {patience:g} s and Slurm has no node {pod.slurm_node}"
        delete.append(
            Deletion(
                pod,
                why,
                absent=True,
                event=EventReason.SLURM_NODE_NOT_REGISTERED,
                severity="Warning",
            )
        )
    return Lost(tuple(delete), min(waits, default=None))


def still_replaced(replaced: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the pods that were chosen in the last `REPLACEMENT_SECONDS`."""
    return {uid: at for uid, at in replaced.items() if now - at < REPLACEMENT_SECONDS}


def _patience(slurm: SlurmView) -> float:
    return UNREGISTERED_SECONDS if slurm.nodes else ALL_UNREGISTERED_SECONDS
