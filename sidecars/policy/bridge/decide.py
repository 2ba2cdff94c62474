"""What to do about pods and their placeholder jobs. Pure.

The order of the steps for one group of pods, each of which a restart may follow:

    Submit a held job → Label the pods → Start the job → Slurm runs it → Release the pods → … → its end → DeletePod

A held job never runs. Therefore a job that was submitted twice, or whose answer was lost, is found in Slurm's list and
adopted or cancelled before it can use anything.

What keeps two owners from one core, byte or device: Slurm frees the resources of an external job in the moment in
which it ends, while its pods still run. No pod is released to a node where a pod of such a job exists. `View.jobs`
has to show the states at a time *after* those when the slots of the running jobs were read.

Unknown is never an end: a job that Slurm doesn't list, or that has another owner than the pod's group, deletes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from sidecars.policy.bridge.records import (
    Action,
    Cancel,
    DeletePod,
    GroupKey,
    Job,
    Label,
    Phase,
    Pod,
    Release,
    Report,
    Start,
    Submit,
    View,
    Why,
    avoid_key,
)

BIND_SECONDS = 15.0
"""A released pod has to be bound within this time. Otherwise its job is cancelled, and its node is avoided."""


def decide(view: View) -> tuple[Action, ...]:
    """The actions, in an order in which they may be applied at the same time. None while Slurm is unknown."""
    if not view.known:
        return ()
    groups: defaultdict[GroupKey, list[Pod]] = defaultdict(list)
    for pod in view.pods:
        groups[pod.key].append(pod)
    actions: list[Action] = []
    submitted: defaultdict[GroupKey, list[Job]] = defaultdict(list)
    for job in view.jobs.values():
        if job.phase is Phase.SUBMITTED and _is_theirs(job, view):
            submitted[_key(job)].append(job)
    blockers, used = _blockers(view), _present(view)
    adoptable: set[int] = set()
    for key, pods in groups.items():
        actions += _group(key, sorted(pods, key=lambda it: it.name), view, submitted[key], blockers, used, adoptable)
    actions += _orphans(view, adoptable)
    return tuple(it for it in actions if not isinstance(it, Report) or it.pod.reported != (it.why.value, it.message))


def _key(job: Job) -> GroupKey:
    return GroupKey(job.comment.namespace, job.comment.group)


def _is_theirs(job: Job, view: View) -> bool:
    """Whether the job's user is the one of the namespace that it names: its comment is then no forgery of others."""
    return view.users.get(job.comment.namespace) == job.user and not job.root


def job_of(pod: Pod, view: View) -> Job | None:
    """The job that the pod's label names; None for an unknown one, and for one of another group."""
    job = view.jobs.get(pod.job) if pod.job is not None else None
    return job if job is not None and (_key(job) == pod.key) else None


def _blockers(view: View) -> dict[str, str]:
    """The nodes with a pod whose job has ended or is unknown, each with the pod's name."""
    found: dict[str, str] = {}
    for pod in view.pods:
        if not pod.present or pod.job is None:
            continue
        job = job_of(pod, view)
        if job is not None and job.phase is not Phase.ENDED:
            on = {node for node, _ in job.slots}
            if not pod.node or not on or pod.node in on:
                continue
        # What a cache still shows gated may have been released a moment ago: all of the job's nodes count.
        nodes = {pod.node} if pod.node else {node for node, _ in job.slots} if job is not None else set()
        for node in nodes:
            found.setdefault(node, f"{pod.namespace}/{pod.name}")
    return found


def _present(view: View) -> dict[int, list[Pod]]:
    """The pods that may use resources, by the job of their label."""
    found: defaultdict[int, list[Pod]] = defaultdict(list)
    for pod in view.pods:
        if pod.job is not None and pod.present:
            found[pod.job].append(pod)
    return found


def _group(
    key: GroupKey,
    pods: list[Pod],
    view: View,
    submitted: list[Job],
    blockers: Mapping[str, str],
    used: Mapping[int, list[Pod]],
    adoptable: set[int],
) -> Iterator[Action]:
    live = [pod for pod in pods if pod.live]
    labelled: list[tuple[Pod, Job]] = []
    waiting: list[Pod] = []
    for pod in live:
        if pod.job is None:
            if pod.gated:
                waiting.append(pod)
            continue
        job = job_of(pod, view)
        if job is None:
            text = f"Slurm doesn't know job {pod.job} of this pod. If it has ended, delete the pod."
            yield Report(pod, Why.JOB_UNKNOWN, text)
        elif job.phase is Phase.ENDED:
            yield DeletePod(pod, f"Slurm job {job.job_id} has ended ({job.state})", job.state)
        else:
            labelled.append((pod, job))
    if labelled:
        job = min((job for _, job in labelled), key=lambda it: it.job_id)
        members = [pod for pod, its in labelled if its is job]
        adoptable.add(job.job_id)
        its = [pod for pod in used.get(job.job_id, ()) if pod.key == key]
        yield from _with_job(job, members, waiting, view, blockers, its)
    elif waiting:
        yield from _without_job(key, waiting, pods, view, submitted, adoptable)


def _without_job(
    key: GroupKey, waiting: list[Pod], pods: list[Pod], view: View, submitted: list[Job], adoptable: set[int]
) -> Iterator[Action]:
    first = waiting[0]
    wrong = next((pod for pod in waiting if pod.shape is None), None)
    if wrong is not None:
        for pod in waiting:
            yield Report(pod, Why.REFUSED, wrong.problem if pod is wrong else f"{wrong.name}: {wrong.problem}")
        return
    shapes = {pod.shape for pod in waiting}
    shape = first.shape
    if shape is None or len(shapes) > 1:
        for pod in waiting:
            text = "the pods of this group request different things: pods of one group must be equal"
            yield Report(pod, Why.REFUSED, text)
        return
    others = [pod for pod in pods if pod.present and pod.job is not None]
    if len(waiting) < shape.pods or any(pod.blocked for pod in waiting) or others:
        text = f"{len(waiting)} of {shape.pods} pods of group {key.group.removeprefix('group/')} exist"
        if others:
            text = f"pod {others[0].name} of an earlier job of this group still exists"
        elif any(pod.blocked for pod in waiting):
            text = "another scheduling gate is on the pod"
        for pod in waiting:
            yield Report(pod, Why.INCOMPLETE, text)
        return
    if len(waiting) > shape.pods:
        for pod in waiting[shape.pods :]:
            yield Report(pod, Why.REFUSED, f"the group has more pods than its size, which is {shape.pods}")
        waiting = waiting[: shape.pods]
    fitting = [job.job_id for job in submitted if job.comment.digest == shape.digest and job.user == shape.user]
    if fitting:
        adoptable.add(min(fitting))
        for pod in waiting:
            yield Label(pod, min(fitting))
    elif key not in view.submitting:
        yield Submit(key, shape, view.avoided.get(avoid_key(first), ()))


def _with_job(
    job: Job, members: list[Pod], waiting: list[Pod], view: View, blockers: Mapping[str, str], used: list[Pod]
) -> Iterator[Action]:
    size = next((pod.shape.pods for pod in (*members, *waiting) if pod.shape is not None), 1)
    free = max(0, size - len(used))
    for index, pod in enumerate(waiting):
        if index < free and pod.shape is not None:
            yield Label(pod, job.job_id)
        else:
            text = pod.problem or f"job {job.job_id} of this group has as many pods as it is for"
            yield Report(pod, Why.REFUSED if pod.problem else Why.INCOMPLETE, text)
    if job.phase is Phase.SUBMITTED:
        if len(members) >= size:
            yield Start(job)
            return
        for pod in members:
            text = f"{len(members)} of {size} pods of group {job.comment.group.removeprefix('group/')} exist"
            yield Report(pod, Why.INCOMPLETE, text)
        return
    if job.phase is Phase.RUNNING:
        yield from _running(job, members, used, view, blockers)
        return
    for pod in members:
        if pod.gated:
            yield Report(pod, Why.WAITING, waiting_words(job))


def waiting_words(job: Job) -> str:
    """Why the job waits."""
    if job.phase is Phase.STARTING:
        return f"Slurm job {job.job_id} is starting"
    if job.phase is Phase.STOPPED:
        return f"Slurm job {job.job_id} is suspended"
    return f"Slurm job {job.job_id} waits: {job.reason or 'Slurm has not looked at it yet'}"


def _running(
    job: Job, members: list[Pod], used: Iterable[Pod], view: View, blockers: Mapping[str, str]
) -> Iterator[Action]:
    late = next((it for it in members if not it.gated and not it.bound and it.unbound_seconds >= BIND_SECONDS), None)
    if late is not None:
        reason = late.unbound_reason or "the scheduler gives no reason"
        text = f"pod {late.name} was not bound to {late.node} within {BIND_SECONDS:.0f} s: {reason}"
        yield Cancel(job.job_id, text, (avoid_key(late), late.node) if late.node else None)
        return
    for pod in members:
        # A pod that has never waited needs no condition.
        if not pod.gated and pod.reported[0] not in ("", Why.RELEASED.value):
            yield Report(pod, Why.RELEASED, f"Slurm job {job.job_id} runs")
    taken = Counter(pod.node for pod in used if pod.node)
    places = [node for node, slots in job.slots for _ in range(slots - taken[node])]
    gated = [pod for pod in members if pod.gated]
    # A release that was sent, and that isn't seen yet, is sent again to the same node, whose place it has.
    pairs = [(pod, pod.node) for pod in gated if pod.node]
    pairs += zip([pod for pod in gated if not pod.node], places, strict=False)
    for _, node in pairs:
        fault = view.nodes.get(node, f"Kubernetes has no node {node}")
        if not fault and node in blockers:
            fault = f"pod {blockers[node]} of an ended job is still on node {node}"
        if fault:
            for pod in gated:
                yield Report(pod, Why.NODE_NOT_FREE, f"Slurm job {job.job_id} has its nodes, but {fault}")
            return
    for pod, node in pairs:
        yield Release(pod, job.job_id, node, job.end_time)
    placed = {pod.uid for pod, _ in pairs}
    for pod in (it for it in gated if it.uid not in placed):
        yield Report(pod, Why.NODE_NOT_FREE, f"Slurm job {job.job_id} has no place left for this pod")


def _orphans(view: View, adoptable: AbstractSet[int]) -> Iterator[Action]:
    """Cancel the jobs none of whose pods exists, and superfluous held jobs. Terminating pods keep their job."""
    present = {pod.job for pod in view.pods if pod.present and pod.job is not None}
    for job in view.jobs.values():
        if job.phase is Phase.ENDED or job.job_id in adoptable:
            continue
        if job.root and view.users.get(job.comment.namespace) == job.user:
            yield Cancel(job.job_id, f"its user {job.user} has uid 0")
            continue
        if not _is_theirs(job, view) and not job.confirmed:
            continue
        if job.phase is Phase.SUBMITTED and job.job_id in present:
            continue
        if job.job_id not in present:
            yield Cancel(job.job_id, "none of its pods exists")
