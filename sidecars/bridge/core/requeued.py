"""Pods that never ran: when the job that they have is of no use to them, they are queued again.
Pure.

Such a pod loses its job's id, and nothing else. A job that no pod has is cancelled, and the pods
get another one when it has ended. So a restart after each of these steps leads to the same end.

If the API server refuses to take the id off a pod, its job is cancelled all the same. The admin
comment of each job that the bridge gives up shows that: the pod is to be queued again as soon as
that is possible.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sidecars.bridge.core.records import (
    Cancel,
    Disruption,
    Job,
    Obstacle,
    Pod,
    Report,
    Requeue,
    View,
    Why,
)

RELEASE_SECONDS = 60.0
"""For so long a job may run while something without a known end keeps its pods from being released.
"""

BY_SLURM = frozenset({"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "TIMEOUT"})
"""The states of jobs that nobody has cancelled. A job that its owner or an administrator cancels is
CANCELLED.
"""


_DISRUPTED = (
    (Disruption.PREEMPTED, frozenset({"PREEMPTED"})),
    (Disruption.NODE_FAIL, frozenset({"NODE_FAIL", "BOOT_FAIL"})),
)
"""The states of jobs whose pods count as disrupted."""


def ended_by_slurm(job: Job) -> bool:
    """Return whether Slurm has ended the job, or a component of it. Its other components are
    CANCELLED then.
    """
    return any(BY_SLURM.intersection(it.state.split(",")) for it in job.components)


def is_queued_again(job: Job) -> bool:
    """Return whether pods that never ran outlive the job, which has ended."""
    return ended_by_slurm(job) or job.comment.given_up


def is_stuck(again: Iterable[Requeue], view: View) -> bool:
    """Return whether the API server has refused one of these: its job would have its nodes until
    its time limit.
    """
    return any(view.stuck.get(it.pod.uid) == it.job for it in again)


def with_words(cancel: Cancel, job: Job) -> Cancel:
    """Cancel the job, whose admin comment then shows that its owner didn't: pods that wait are
    queued again later if they still have its id, and the others are disrupted.

    Whatever becomes of the job of a user, the user has submitted it.
    """
    if job.comment.by_user:
        return cancel
    return replace(cancel, note=replace(job.comment, given_up=True))


def disruption_of(job: Job) -> Disruption | None:
    """Return why the pods that are deleted end with the job; None for an end that its owner, an
    administrator or its time limit has caused.
    """
    states = {state for it in job.components for state in it.state.split(",")}
    return next(
        (reason for reason, its in _DISRUPTED if its & states),
        Disruption.GIVEN_UP if job.comment.given_up else None,
    )


def overdue(job: Job, view: View) -> Obstacle | None:
    """Return what has kept the pods of the job for too long. Only its user ends a job that the user
    has submitted.
    """
    found = view.obstacles.get(job.job_id)
    if found is None or found.seconds < RELEASE_SECONDS or job.comment.by_user:
        return None
    return found


def queued_again(job: Job, members: list[Pod], message: str, node: str = "") -> Iterator[Requeue]:
    """Yield the pods that wait. `node`: the one to avoid."""
    for pod in members:
        if pod.gated and pod.job is not None:
            yield Requeue(pod, pod.job, message, node)


def waits_for_end(job: Job, waiting: list[Pod]) -> Iterator[Report]:
    """Report that pods that are queued again wait until their former job has ended."""
    for pod in waiting:
        text = f"job {job.job_id} of this group, an earlier one, has not ended yet"
        yield Report(pod, Why.INCOMPLETE, text)
