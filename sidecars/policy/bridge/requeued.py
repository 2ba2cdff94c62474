"""Pods that never ran: when the job that they have is of no use to them, they are queued again. Pure.

Such a pod loses its job's id, and nothing else. A job that no pod has is cancelled, and the pods get another one when
it has ended. So a restart after each of these steps leads to the same end.
"""

from collections.abc import Iterator

from sidecars.policy.bridge.records import Job, Obstacle, Pod, Report, Requeue, View, Why

RELEASE_SECONDS = 60.0
"""For so long a job may run while something without a known end keeps its pods from being released."""

BY_SLURM = frozenset({"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "TIMEOUT"})
"""The states of jobs that nobody has cancelled. A job that its owner or an administrator cancels is CANCELLED."""


def ended_by_slurm(job: Job) -> bool:
    """Whether Slurm has ended the job, or a component of it: its other components are CANCELLED then."""
    return any(BY_SLURM.intersection(it.state.split(",")) for it in job.components)


def overdue(job: Job, view: View) -> Obstacle | None:
    """What has kept the pods of the job for too long. Only its user ends a job that the user has submitted."""
    found = view.obstacles.get(job.job_id)
    if found is None or found.seconds < RELEASE_SECONDS or job.comment.by_user:
        return None
    return found


def queued_again(job: Job, members: list[Pod], message: str, node: str = "") -> Iterator[Requeue]:
    """The pods that wait. `node`: the one to avoid."""
    for pod in members:
        if pod.gated and pod.job is not None:
            yield Requeue(pod, pod.job, message, node)


def waits_for_end(job: Job, waiting: list[Pod]) -> Iterator[Report]:
    """Pods that are queued again wait until their former job has ended."""
    for pod in waiting:
        text = f"job {job.job_id} of this group, an earlier one, has not ended yet"
        yield Report(pod, Why.INCOMPLETE, text)
