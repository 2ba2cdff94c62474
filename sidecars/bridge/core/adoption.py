"""What the bridge would submit for the pods of a group, and whether a held job with their comment
is that. Pure.

The Slurm user of a namespace can submit a job with such a comment too, and change one of the bridge
while it waits. What Slurm gives to the job counts in the end (`alone`, and the places of the job):
this only keeps pods from waiting for a job that could never run them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sidecars.bridge.core.records import (
    Allow,
    Cancel,
    GroupKey,
    Job,
    Part,
    Pod,
    Report,
    View,
    Why,
    avoid_key,
)
from sidecars.bridge.core.shape import counts_of
from sidecars.bridge.core.tenants import root_problems


def parts_of(pods: Iterable[Pod]) -> tuple[Part, ...]:
    """Group the equal ones among the pods, in an order that doesn't depend on their names: the
    smallest first.

    Slurm places one component after the other, each on as many nodes as it may have.
    """
    counts = Counter(pod.shape for pod in pods if pod.shape is not None)
    found = [Part(shape, count) for shape, count in counts.items()]
    return tuple(sorted(found, key=lambda it: (it.pods * it.shape.cpus, it.shape.digest)))


def is_for(job: Job, parts: Sequence[Part], *, guard: bool) -> bool:
    """Return whether the job has the components for these parts, by their comments: its user can
    write each of them.
    """
    components = [(it.digest, it.size) for it in job.components]
    wanted = [(it.shape.digest, it.pods) for it in parts]
    return (components, job.user, job.guard) == (wanted, parts[0].shape.user, guard)


def is_theirs(job: Job, view: View) -> bool:
    """Return whether the job's user is the one of the namespace that it names. Its comment is then
    no forgery of others.
    """
    return job.is_of(view.users.get(job.comment.namespace))


def difference(job: Job, parts: Sequence[Part]) -> str:
    """Return what the job lacks of that which the bridge would submit for these parts, "" for
    nothing.

    More than that is no difference: a plugin of slurmctld may add to each submission. Neither are
    the account and the QOS, which Slurm itself restricts.
    """
    for its, part in zip(job.components, parts, strict=True):
        shape, asked = part.shape, its.asked
        if asked is None:
            continue
        if shape.partition and shape.partition not in asked.partitions:
            return f"job {its.job_id} is not in partition {shape.partition}"
        numbers = [("tasks", asked.tasks, part.pods), ("CPUs for each pod", asked.cpus, shape.cpus)]
        numbers.append(("MiB for each pod", asked.memory, shape.memory))
        has = counts_of(asked.gres)
        numbers += [
            (f"{name} for each pod", has.get(name, 0), count)
            for name, count in counts_of(shape.gres).items()
        ]
        for what, number, wanted in numbers:
            if number < wanted:
                return f"job {its.job_id} requests {number} {what}, and its pods need {wanted}"
    return ""


def refuse(
    key: GroupKey, jobs: Iterable[Job], waiting: Iterable[Pod], parts: Sequence[Part]
) -> Iterator[Cancel | Report]:
    """Cancel the jobs of the group, each of which lacks something, and submit another one after a
    while.
    """
    text = ""
    for job in jobs:
        text = difference(job, parts)
        yield Cancel(job.job_id, text, rest=job.ids[1:], refused=key)
    text = f"{text}: it is cancelled, and another one is submitted"
    for pod in waiting:
        yield Report(pod, Why.REFUSED, text)


def misnamed_words(job: Job, user: str) -> str:
    """Return why a job that the bridge has submitted for this user gets no pods: Slurm shows it as
    a job of another one.

    slurmrestd looks up the name of a job's uid. It is no proof of a job's user that another name
    has the same uid.
    """
    if job.root:
        return root_problems([user])[user]
    shown = f"user {job.user}" if job.user else "no user"
    remedy = (
        f"an administrator maps namespace {job.comment.namespace} to the user name that Slurm shows"
    )
    if not job.user:
        remedy = "an administrator has slurmrestd find the user's name by the uid"
    return f"Slurm shows {shown} for a job of user {user}: {remedy}"


def allow(job: Job, members: Iterable[Pod], view: View) -> Iterator[Allow]:
    """Let the job that waits have all nodes but those that its pods avoid now, and those that can't
    run them.
    """
    if not view.unfit and not any(it.excluded for it in job.components):  # as most jobs
        return
    theirs = {(pod.job, pod.shape.needs) for pod in members if pod.shape is not None}
    unfit = {
        it.job_id: {
            node
            for job_id, needs in theirs
            if job_id == it.job_id
            for node in view.unfit.get(needs, ())
        }
        for it in job.components
    }
    changing = [it for it in job.components if it.excluded or unfit[it.job_id]]
    avoided = {node for pod in members for node in view.avoided.get(avoid_key(pod), ())}
    for it in changing:
        less = tuple(node for node in it.excluded if node in avoided or node in unfit[it.job_id])
        more = tuple(sorted(unfit[it.job_id].difference(less)))
        wanted = (*less, *more)
        # Slurm takes no job that has no node left. It waits then for one that comes back.
        if view.places_of.get(job.guard, frozenset()) <= {*wanted}:
            wanted = less
        if wanted != it.excluded:
            yield Allow(it, wanted)
