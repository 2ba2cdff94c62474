"""Pods of a group whose job their user has submitted, such as a component of a heterogeneous job. Pure.

The job names the group in its comment, and may run before the pods exist. The bridge doesn't start it, and cancels it
only when a pod can't be bound.
"""

from collections.abc import Iterator, Sequence

from sidecars.contract import bridge
from sidecars.policy.bridge.records import Action, GroupKey, Job, Label, Part, Pod, Report, Why


def join(key: GroupKey, job: Job | None, waiting: Sequence[Pod], parts: Sequence[Part]) -> Iterator[Action]:
    """All pods of the group get the job, if it exists. `parts`: the equal ones among them."""
    first = waiting[0]
    for pod in waiting:
        if len(parts) > 1:
            text = f"the pods of {first.group} request different things, and the job of a user is for equal pods"
            yield Report(pod, Why.REFUSED, text)
        elif job is not None:
            yield Label(pod, job.job_id)
        else:
            name = key.group.removeprefix(bridge.group_id(""))
            comment = f"{bridge.BY_USER}{key.namespace}/{name}"
            text = f"user {parts[0].shape.user} has no external job with the comment {comment}"
            yield Report(pod, Why.NO_JOB, f"{text}, and annotation {bridge.NO_SUBMISSION} asks for one")


def unready(job: Job, gated: Sequence[Pod], used: Sequence[Pod], places: int) -> Iterator[Report] | None:
    """Why no pod of the running job can be released, if so. `used` are all with its label, of which `gated` wait."""
    if not job.comment.by_user:
        return None
    if len(gated) == len(used) < gated[0].size:
        text = f"{len(used)} of {gated[0].size} pods of {gated[0].group} have Slurm job {job.job_id}, which runs"
        return (Report(pod, Why.INCOMPLETE, text) for pod in gated)
    if places < len(gated):
        text = f"Slurm job {job.job_id} has places for {places} of {len(gated)} pods: request more tasks in it"
        return (Report(pod, Why.NODE_NOT_FREE, text) for pod in gated)
    return None
