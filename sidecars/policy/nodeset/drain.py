"""Drains of Slurm nodes: which reason the operator sets, when it lifts one, and when a drained pod
may be deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sidecars.contract import reasons
from sidecars.contract.extra import pod_facts
from sidecars.contract.reasons import Owner
from sidecars.policy.nodeset.needs import Failed, Known, Pending
from sidecars.policy.nodeset.records import Deletion, Waiting
from sidecars.policy.reasons import EventReason
from sidecars.slurm import states
from sidecars.slurm.errors import Malformed
from sidecars.slurm.job_states import ENDED
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.owners import belongs_to, own_words, owner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sidecars.policy.nodeset.needs import Answer
    from sidecars.policy.nodeset.records import DesiredPods, SlurmView, WorkerPod
    from sidecars.slurm.records import Job, Node

NOT_REGISTERED_SECONDS = 10.0
"""How long a started slurmd gets to register before its absence from Slurm's list means that no job
can be there.
"""

FORCED_GRACE_SECONDS = 30
"""Grace of a pod that is deleted although it may have a job."""

TIMED_OUT = "its NodeSet is being deleted, and deletionTimeout is over"
"""Why such a pod is deleted."""

_HAS_NOT_BEGUN_OR_HAS_ENDED = ENDED | {"PENDING"}
"""States of a job that has no process on any node (squeue, JOB STATE CODES)."""


def verdict(
    pod: WorkerPod,
    desired: DesiredPods,
    slurm: SlurmView,
    now: float,
    *,
    scaled_in: bool = False,
    by_slurm: bool = False,
    event: EventReason = EventReason.SUCCESSFUL_DELETE,
) -> Deletion | Waiting:
    """Return whether a condemned pod can be deleted without losing a job, and if not, what it waits
    for.

    `scaled_in` and `event` are those of its deletion. `by_slurm`: Slurm's power saving is the
    cause, and nobody drains the node.
    """
    node = slurm.nodes.get(pod.slurm_node)
    if not pod.started and not _has_registered(pod, node):
        return Deletion(
            pod, "its slurmd never started", only_unchanged=True, scaled_in=scaled_in, event=event
        )
    if desired.forced:
        return Deletion(pod, TIMED_OUT, FORCED_GRACE_SECONDS, scaled_in=scaled_in, event=event)
    if slurm.problem is not None:
        # No event shows when a read that failed, such as that of all jobs, would succeed.
        return Waiting(
            pod,
            f"the state of Slurm node {pod.slurm_node} is unknown: {slurm.problem}",
            look_again=5.0,
        )
    if pod.slurm_node in slurm.unsettled:
        return Waiting(
            pod,
            f"Slurm node {pod.slurm_node} was changed just now and is being read again",
            look_again=1.0,
        )
    if node is None:
        left = 0.0 if pod.slurmd_since is None else pod.slurmd_since + NOT_REGISTERED_SECONDS - now
        if left > 0:
            return Waiting(
                pod,
                f"slurmd has just started and may yet register Slurm node {pod.slurm_node}",
                look_again=left,
            )
        because = f"Slurm has no node {pod.slurm_node}"
        return Deletion(pod, because, absent=True, scaled_in=scaled_in, event=event)
    if states.is_vacant(node.states):
        how = "drained" if states.is_drained(node.states) else "powered down"
        if slurm.jobs_problem:
            return Waiting(
                pod,
                f"the state of Slurm node {pod.slurm_node} is unknown: {slurm.jobs_problem}",
                look_again=5.0,
            )
        if pod.slurm_node in slurm.unread:
            step = (
                f"Slurm node {pod.slurm_node} is {how}; the jobs are being read, in case a "
                "suspended one is on it"
            )
            return Waiting(pod, step, look_again=5.0)
        if slurm.nodes_with_jobs is not None and pod.slurm_node in slurm.nodes_with_jobs:
            return Waiting(
                pod, f"Slurm node {pod.slurm_node} is {how} but has a suspended job", look_again=5.0
            )
        because = f"Slurm node {pod.slurm_node} is {how}"
        return Deletion(pod, because, drained=True, scaled_in=scaled_in, event=event)
    if by_slurm and "CLOUD" in node.states:
        return Waiting(
            pod, f"Slurm node {pod.slurm_node} is being powered up again", look_again=1.0
        )
    if states.is_drain(node.states):
        return Waiting(pod, f"Slurm node {pod.slurm_node} is draining: its jobs are still running")
    return Waiting(pod, f"Slurm node {pod.slurm_node} is about to be drained", look_again=1.0)


def _has_registered(pod: WorkerPod, node: Node | None) -> bool:
    """Return whether Slurm knows the pod. It has started then, even if the kubelet's report lags
    behind.
    """
    return node is not None and belongs_to(node, pod.uid)


def nodes_with_jobs(jobs: Iterable[Job]) -> frozenset[str]:
    """Return the nodes with a job that has begun and not ended: the node of a suspended one is IDLE
    (scontrol, suspend). Raises Malformed for a job whose nodes can't be read.
    """
    found: set[str] = set()
    for job in jobs:
        if job.nodes and job.states.isdisjoint(_HAS_NOT_BEGUN_OR_HAS_ENDED):
            found.update(job.node_names())
    return frozenset(found)


def has_no_job(pod: WorkerPod, slurm: SlurmView) -> bool:
    """Return whether the jobs are known, and none that has begun and not ended names the pod's
    Slurm node.
    """
    return slurm.nodes_with_jobs is not None and pod.slurm_node not in slurm.nodes_with_jobs


def with_jobs(slurm: SlurmView, answer: Answer | None, reservations: Answer | None) -> SlurmView:
    """Return the view with what is known of the jobs. The observer sets `unread`: which nodes
    changed since they were read.

    Who names a node is known once both answers are.
    """
    match answer:
        case Known(jobs):
            try:
                slurm = replace(slurm, nodes_with_jobs=nodes_with_jobs(jobs.jobs))
                return _with_names(slurm, jobs.jobs, reservations)
            except Malformed as error:
                return replace(slurm, jobs_problem=f"the jobs can't be read: {error}")
        case Pending():
            return replace(slurm, unread=frozenset(slurm.nodes))
        case Failed(why):
            return replace(slurm, jobs_problem=f"the jobs can't be read: {why}")
    return slurm


def _with_names(slurm: SlurmView, jobs: Iterable[Job], reservations: Answer | None) -> SlurmView:
    """Add who names the nodes. Raises Malformed."""
    match reservations:
        case Known(found):
            return replace(slurm, named=named_nodes(jobs, found, slurm.nodes.values()))
        case Pending():
            return replace(slurm, unread=frozenset(slurm.nodes))
        case Failed(why):
            return replace(slurm, jobs_problem=f"the reservations can't be read: {why}")
    return slurm


def mark(node: Node, by: str | None) -> str | None:
    """Return the reason that the node of a pod must have before the pod is deleted, or None if it
    has it, or one not ours.

    By it, the pod's `node` sidecar deletes the record, or keeps it. `by`: who names the node.
    """
    if owner_of(node) not in reasons.OURS:
        return None
    present = own_words(node.reason)
    wanted = reasons.kept(present, by) if by else reasons.unmarked(present)
    return wanted if wanted != present else None


def drain_reason(pod: WorkerPod, namespace: str, condemned_for: str | None) -> str | None:
    """Return the reason that the operator wants on the pod's Slurm node, or None when it wants no
    drain.
    """
    if condemned_for is not None:
        return reasons.of_operator(
            f"Pod ({namespace}/{pod.name}) is{reasons.PENDING_TERMINATION}{condemned_for}"
        )
    if pod.kube_node_cordon is not None:
        return reasons.of_operator(pod.kube_node_cordon)
    if pod.cordon == "user":
        return reasons.of_operator(f"Pod ({namespace}/{pod.name}) was cordoned")
    if pod.drain_requested:
        return reasons.of_operator(f"Pod ({namespace}/{pod.name}) was asked to be cordoned")
    return None


def needs_mark(pod: WorkerPod, node: Node | None) -> bool | None:
    """Return whether the pod's Slurm node is or will be drained for the cordon of its Kubernetes
    node or for a request, or None if unknown.
    """
    if pod.kube_node_cordon is None and not pod.drain_requested:
        return False
    return _is_ours(node) if node is not None else None


def common_reason(desired: DesiredPods, condemned_for: str) -> str:
    """Return the drain reason that many pods share which are deleted for one cause."""
    whose = f"{desired.namespace}/{desired.name}"
    return reasons.of_operator(
        f"Pods of NodeSet ({whose}) are{reasons.PENDING_TERMINATION}{condemned_for}"
    )


def should_drain(node: Node, accepted: Collection[str]) -> bool:
    """Return whether to drain the node, or to replace the operator's own reason by one of those
    `accepted`.
    """
    if (
        owner_of(node) is Owner.OPERATOR
        and reasons.unmarked(own_words(node.reason)) not in accepted
    ):
        return True
    return not states.is_drain(node.states) and owner_of(node) in reasons.REPLACEABLE


def should_close(node: Node) -> bool:
    """Return whether a node that must take no more jobs has to be drained with its present reason,
    which is not ours.

    A DOWN node needs it too: Slurm may return it to service at any moment.
    """
    return not states.is_drain(node.states) and owner_of(node) not in reasons.REPLACEABLE


def _is_ours(node: Node) -> bool:
    """Return whether no one else has drained it or set its reason. slurmctld's own reason ends when
    the node responds.
    """
    found = owner_of(node)
    return found in (Owner.NOBODY, Owner.OPERATOR) or (
        not states.is_drain(node.states) and found in (Owner.POD, Owner.SLURMCTLD)
    )


def should_undrain(node: Node, pod: WorkerPod) -> bool:
    """Return whether to lift the drain: one of the operator's, or one that an earlier pod of this
    name asked for.

    On a record that another pod left behind only once this pod is ready: earlier no slurmd may run
    there.
    """
    if not states.is_drain(node.states):
        return False
    facts = pod_facts(node.extra)
    own = facts is not None and facts.pod_uid == pod.uid
    owner = owner_of(node)
    if owner is Owner.OPERATOR:
        return own or pod.ready
    if owner is Owner.SLURMCTLD:
        # The drain is that of `should_close`: to drain a node itself, slurmctld replaces these
        # words (_drain_node), and scontrol refuses a drain without a reason. slurmctld doesn't
        # replace those about a reboot.
        return pod.ready and node.reason == reasons.NOT_RESPONDING
    return owner is Owner.POD and facts is not None and not own and pod.ready


def should_resume(node: Node, pod: WorkerPod) -> bool:
    """Return whether to return a DOWN node to service, once a slurmd of the pod answers.

    Its reason is of this product, or slurmctld's about a reboot, which it gives when slurmd
    registers after one: the jobs have ended with the host. Or it is slurmctld's about a start by
    power saving that took too long, and slurmd has registered since: the node isn't powered down.
    slurmctld does that itself with ReturnToService=2 only. `node` lifts the drains of its own pod.
    """
    if not states.is_down(node.states) or "NOT_RESPONDING" in node.states or not pod.ready:
        return False
    owner = owner_of(node)
    if states.is_drain(node.states):
        return owner is Owner.OPERATOR
    late = node.reason == reasons.RESUME_TIMEOUT and not states.is_powered_down(node.states)
    over = late or node.reason == reasons.UNEXPECTEDLY_REBOOTED
    return owner in reasons.OURS or (owner is Owner.SLURMCTLD and over)


def is_busy(pod: WorkerPod, slurm: SlurmView) -> bool:
    """Return whether Slurm reports a job on the pod's node."""
    node = slurm.nodes.get(pod.slurm_node)
    return node is not None and states.is_busy(node.states)


def is_deleted_soon(pod: WorkerPod, slurm: SlurmView) -> bool:
    """Return whether the Slurm node is being drained and has no job. An annotation would only delay
    its deletion.
    """
    record = slurm.nodes.get(pod.slurm_node)
    stays = pod.kube_node_cordon is not None or pod.drain_requested
    if record is None or slurm.problem is not None or stays:
        return False
    return not states.is_busy(record.states) and (
        not states.is_drain(record.states) or pod.slurm_node in slurm.unsettled
    )
