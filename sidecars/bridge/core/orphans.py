"""The jobs that are cancelled: none of their pods exists, or they are superfluous. Pure."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sidecars.bridge.core import adoption
from sidecars.bridge.core.adoption import is_theirs
from sidecars.bridge.core.records import Cancel, GroupKey, Job, Phase, Pod, View, concerns
from sidecars.contract.bridge import Comment


def cancelled(view: View, adoptable: AbstractSet[int]) -> Iterator[Cancel]:
    """Cancel the jobs none of whose pods exists, and those that wait for their start but are not
    `adoptable`.

    Terminating pods keep their job. Pods of which it isn't known yet what they wait for keep one
    that isn't started.
    """
    unread = {
        key
        for pod in view.pods
        if pod.gated and pod.live and pod.job is None and _is_unread(pod, view)
        # Its object may turn out to have no group for it.
        for key in (pod.key, GroupKey(pod.namespace, pod.uid))
    }
    # The cache may show first that the job's other pods are gone.
    labelling = {
        view.labelling.get(pod.uid) for pod in view.pods if pod.present and pod.job is None
    }
    for job in view.jobs.values():
        if job.phase is Phase.ENDED:
            if job.remaining and (is_theirs(job, view) or job.confirmed):
                text = f"a component of this heterogeneous job has ended ({job.state})"
                yield Cancel(job.remaining[0], text, rest=job.remaining[1:])
            continue
        if job.job_id in adoptable or job.comment.by_user:
            continue
        misnamed, user = view.misnamed.get(job.key, (None, ""))
        if job is misnamed:
            yield Cancel(
                job.job_id, adoption.misnamed_words(job, user), rest=job.ids[1:], refused=job.key
            )
            continue
        if not is_theirs(job, view) and not job.confirmed:
            continue
        if job.phase is Phase.SUBMITTED and not unread.isdisjoint(_keys(job)):
            continue
        if not labelling.isdisjoint(job.ids):
            continue
        # Pods of other groups have the ids of a state that Slurm has lost.
        if not any(
            concerns(job.comment, pod.key)
            for job_id in job.ids
            for pod in view.labelled.get(job_id, ())
        ):
            yield replace(cancel(job, "none of its pods exists"), note=_end(job, view))


def _end(job: Job, view: View) -> Comment | None:
    """Return the admin comment with the end of the pods of a job: for Slurm, the job is
    cancelled in any case. Return None unless the end of each pod is known.
    """
    codes = [code for job_id in job.ids for code in view.exit_codes.get(job_id, ())]
    if not job.confirmed or len(codes) < job.comment.pods:
        return None
    return replace(job.comment, exit_code=max(codes))


def _is_unread(pod: Pod, view: View) -> bool:
    return view.kinds is None or pod.namespace in view.unwritable or not (pod.size or pod.problem)


def cancel(job: Job, message: str) -> Cancel:
    """Cancel all components of the job."""
    return Cancel(
        job.whole or job.job_id, message, rest=(job.job_id,) if job.whole else job.ids[1:]
    )


def _keys(job: Job) -> set[GroupKey]:
    """Return the job's group, and the objects of which that may be a part: see `concerns`."""
    words = job.comment.group.split("/")
    return {
        GroupKey(job.comment.namespace, "/".join(words[:count]))
        for count in range(1, len(words) + 1)
    }
