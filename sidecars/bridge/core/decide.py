"""What to do about pods and their placeholder jobs. Pure.

The order of the steps for one group of pods, each of which a restart may follow:

    Submit a held job → Label the pods → Start the job → Slurm runs it → Release the pods → … → its
    end → DeletePod

A pod that never ran is not deleted when its job can't start it, or was ended by Slurm: it is queued
again (`requeued`).

A held job never runs. Therefore a job that was submitted twice, or whose answer was lost, is found
in Slurm's list and adopted or cancelled before it can use anything.

What keeps two owners from one core, byte or device: Slurm frees the resources of an external job in
the moment in which it ends, while its pods still run, and its cores while it is suspended. No pod
is released to a node where a pod of such a job exists, and none to a node of which running jobs
have more CPUs than it has. `View.jobs` has to show the states at a time *after* those when the
slots of the running jobs were read.

Unequal pods of one group have a heterogeneous job: each component is for equal pods. All of it
runs, or none of it: pods are released when every component runs, and when one of them has ended,
the others are cancelled.

A user may have submitted the job of a group, such as a component of a heterogeneous job. It names
the group in its comment, and may run before the pods exist. The bridge doesn't start it, and
cancels it only when a pod can't be bound.

Unknown is never an end: a job that Slurm doesn't list, or that has another owner than the pod's
group, deletes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from sidecars.bridge.core import adoption, grants, orphans, requeued
from sidecars.bridge.core.adoption import difference, is_for, is_theirs, parts_of, refuse
from sidecars.bridge.core.guards import kind_of
from sidecars.bridge.core.pods import condition_message
from sidecars.bridge.core.records import (
    Action,
    Cancel,
    DeletePod,
    Disruption,
    GroupKey,
    Job,
    Label,
    Name,
    Obstacle,
    Part,
    Phase,
    Pod,
    Release,
    Report,
    Start,
    Submit,
    View,
    Why,
    avoid_key,
    concerns,
)
from sidecars.bridge.core.shape import Shape
from sidecars.bridge.core.twice import given_twice, without_place
from sidecars.contract import bridge, queued
from sidecars.policy.conditions import timestamp
from sidecars.slurm.job_reasons import UNKNOWN, is_final
from sidecars.slurm.job_reasons import words as words_of

MOST_PARTS = 32
"""Components of a heterogeneous job."""

NO_NODE_FITS = "BadConstraints"
"""Slurm's reason of a job that it has blocked, because no node fitted it, and that it doesn't look
at again.

A job that someone has blocked by hand has other reasons.
"""

NOT_STARTED = frozenset({"", "None", "JobHeldUser", "JobHeldAdmin"})
"""Slurm's reasons of a job that the bridge has not started, or that Slurm has not looked at since.
"""

START_ROUNDING = 600
"""Seconds to which the expected start of a job is rounded."""


BIND_SECONDS = 15.0
"""A pod that the scheduler can't bind within this time after its release costs its job, and its
node is avoided.
"""

UNTRIED_SECONDS = 300.0
"""The same for a pod that the scheduler has not tried to bind.

It binds tens of pods a second, and thousands may be released at once. It reports nothing while a
volume is provided, too.
"""

AWAY_SECONDS = 3600.0
"""The same while the scheduler does nothing at all, such as during an upgrade of the control plane:
every other node would be as useless.
"""


class Decision(NamedTuple):
    """What to do, and what keeps the pods of running jobs, for the next view."""

    actions: tuple[Action, ...]
    obstacles: Mapping[int, Obstacle]


@dataclass(frozen=True, slots=True)
class _Blocked:
    job: int
    obstacle: Obstacle


@dataclass(frozen=True, slots=True)
class _Blockers:
    words: Mapping[str, str]
    """See `_blockers`."""
    lasting: AbstractSet[str]
    """The nodes on which something blocks whose end is not known."""


_Step = Action | _Blocked


def decide(view: View) -> tuple[Action, ...]:
    """Return the actions, in an order in which they may be applied at the same time. None while
    Slurm is unknown.
    """
    return decided(view).actions


def decided(view: View) -> Decision:
    """Return the actions, and the obstacles. While Slurm is unknown, the obstacles remain those of
    the view.
    """
    if not view.known:
        return Decision((), view.obstacles)
    groups: defaultdict[GroupKey, list[Pod]] = defaultdict(list)
    for pod in view.pods:
        groups[pod.key].append(pod)
    steps: list[_Step] = []
    submitted: defaultdict[GroupKey, list[Job]] = defaultdict(list)
    for job in view.jobs.values():
        if job.phase is Phase.SUBMITTED and is_theirs(job, view):
            submitted[job.key].append(job)
    words = _blockers(view)
    blockers = _Blockers(words, _lasting(view, words))
    adoptable: set[int] = set()
    for key, pods in groups.items():
        steps += _group(
            key, sorted(pods, key=lambda it: it.name), view, submitted[key], blockers, adoptable
        )
    steps += _unnamed(view)
    steps += grants.unused(view)
    steps += orphans.cancelled(view, adoptable)
    actions = [it for it in steps if not isinstance(it, _Blocked)]
    obstacles = {it.job: it.obstacle for it in steps if isinstance(it, _Blocked)}
    return Decision(
        tuple(it for it in actions if not isinstance(it, Report) or not is_reported(it)), obstacles
    )


def _unnamed(view: View) -> Iterator[Name]:
    """Have the jobs that an earlier bridge has started name their Kubernetes cluster."""
    for job in view.jobs.values() if view.cluster else ():
        if job.confirmed and not job.comment.cluster and job.phase is not Phase.ENDED:
            yield Name(job)


def is_reported(report: Report) -> bool:
    """Return whether the condition of the pod shows it already."""
    return report.pod.reported == (report.why.value, condition_message(report.message))


def job_of(pod: Pod, view: View) -> Job | None:
    """Return the job that the pod's label names, or None for an unknown one, and for one of another
    group.
    """
    found = _found(pod, view)
    return found[0] if found is not None else None


def _found(pod: Pod, view: View) -> tuple[Job, Job] | None:
    """Return the job that the pod's label names, and its component."""
    found = view.components.get(pod.job) if pod.job is not None else None
    return found if found is not None and _fits(pod, found[0]) else None


def _fits(pod: Pod, job: Job) -> bool:
    return concerns(job.comment, pod.key)


def _blockers(view: View) -> dict[str, str]:
    """Return the nodes with a pod whose job has ended, is unknown or is suspended, each with words
    about the pod.

    Slurm gives the cores of a suspended job to others.
    """
    found: dict[str, str] = {}
    for node, _, words in _blocking(view):
        found.setdefault(node, words)
    return {**given_twice(view), **found}


def _lasting(view: View, words: Mapping[str, str]) -> set[str]:
    """Return the nodes that are blocked by something without a known end, such as a pod whose grace
    period is over.
    """
    if not words:  # as most of the time
        return set()
    found = given_twice(view).keys() | {
        node for node, pod, _ in _blocking(view) if not pod.deleting or pod.overdue
    }
    return found & words.keys()


def _blocking(view: View) -> Iterator[tuple[str, Pod, str]]:
    misplaced = without_place(view)
    for pod in view.pods:
        if not pod.present or pod.job is None:
            continue
        found_job = _found(pod, view)
        phase = found_job[0].phase if found_job is not None else Phase.ENDED
        alive = phase not in (Phase.ENDED, Phase.STOPPED)
        if alive and pod.uid not in misplaced:
            continue
        # What a cache still shows gated may have been released a moment ago: all of the job's nodes
        # count.
        nodes = (
            {pod.node}
            if pod.node
            else {node for node, _ in (found_job[1].slots if found_job else ())}
        )
        for node in nodes:
            blocks = queued.SUSPENDED_POD if phase is Phase.STOPPED else queued.ENDED_POD
            if alive:
                blocks = queued.MISPLACED_POD
            yield node, pod, blocks.write(namespace=pod.namespace, name=pod.name)


def _group(
    key: GroupKey,
    pods: list[Pod],
    view: View,
    submitted: list[Job],
    blockers: _Blockers,
    adoptable: set[int],
) -> Iterator[_Step]:
    live = [pod for pod in pods if pod.live]
    labelled: defaultdict[GroupKey, list[tuple[Pod, Job]]] = defaultdict(list)
    waiting: list[Pod] = []
    for pod in live:
        if pod.job is None:
            if pod.gated:
                waiting.append(pod)
            continue
        job = job_of(pod, view)
        if job is None:
            text = f"Slurm doesn't know job {pod.job} of this pod. If it has ended, delete the pod."
            if pod.job not in view.unanswered:
                yield Report(pod, Why.JOB_UNKNOWN, text)
        elif (
            job.phase is Phase.ENDED
            and pod.gated
            and not job.comment.by_user
            and requeued.is_queued_again(job)
        ):
            text = f"Slurm job {job.job_id} has ended before this pod could start ({job.state})"
            yield from requeued.queued_again(job, [pod], text)
        elif job.phase is Phase.ENDED:
            text = f"Slurm job {job.job_id} has ended ({job.state})"
            yield DeletePod(pod, text, job.state, requeued.disruption_of(job))
        elif job.guard and job.phase is Phase.PENDING and (job.completing or not pod.gated):
            # Its user can have it queued again. Until its pods are gone, its former nodes are
            # COMPLETING.
            text = f"Slurm job {job.job_id} was queued again"
            yield from (
                requeued.queued_again(job, [pod], text)
                if pod.gated
                else (DeletePod(pod, text, job.state, Disruption.REQUEUED),)
            )
        else:
            labelled[job.key].append((pod, job))
    # Until their object is read, the pods of all of its parts have the same key, and those that
    # wait have no size.
    for part, theirs in labelled.items():
        job = min(
            (job for _, job in theirs), key=lambda it: (it.phase is Phase.SUBMITTED, it.job_id)
        )
        adoptable.add(job.job_id)
        for pod, its in theirs:
            if its is not job and pod.gated:
                text = (
                    f"other pods of this group have job {job.job_id}, this one has {its.job_id}: "
                    "delete this pod"
                )
                yield Report(pod, Why.INCOMPLETE, text)
        members = [pod for pod, its in theirs if its is job]
        yield from _with_job(job, members, waiting if part == key else [], view, blockers)
    if waiting and key not in labelled:
        yield from _without_job(_Waiting(key, waiting, pods, view, submitted, adoptable))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Pods of one group that have no job."""

    key: GroupKey
    waiting: list[Pod]
    pods: list[Pod]
    """All of the group, by name."""
    view: View
    submitted: list[Job]
    adoptable: set[int]

    def report(self, why: Why, text: str) -> tuple[Action, ...]:
        """Return the same condition for each of them."""
        return tuple(Report(pod, why, text) for pod in self.waiting)


def _without_job(group: _Waiting) -> Iterator[Action]:
    for rule in _RULES_WITHOUT_JOB:
        found = rule(group)
        if found is not None:
            yield from found
            return
    first = group.waiting[0]
    for pod in group.waiting[first.size :]:
        yield Report(
            pod, Why.REFUSED, f"{first.group} has more pods than its size, which is {first.size}"
        )
    yield from _complete(replace(group, waiting=group.waiting[: first.size]))


def _unwritable(group: _Waiting) -> tuple[Action, ...] | None:
    """Return a job whose id can't be written on its pods would wait for ever."""
    if group.key.namespace not in group.view.unwritable:
        return None
    text = group.view.unwritable[group.key.namespace]
    return group.report(Why.REFUSED, text) if text else ()


def _without_size(group: _Waiting) -> tuple[Action, ...] | None:
    unsized = next((pod for pod in group.waiting if not pod.size and not pod.problem), None)
    if unsized is None:
        return None
    return group.report(Why.INCOMPLETE, unsized.unsized) if unsized.unsized else ()


def _without_shape(group: _Waiting) -> tuple[Action, ...] | None:
    wrong = next((pod for pod in group.waiting if pod.shape is None), None)
    if wrong is None:
        return None
    text = f"{wrong.name}: {wrong.problem}"
    return tuple(
        Report(pod, Why.REFUSED, wrong.problem if pod is wrong else text) for pod in group.waiting
    )


def _without_nodes(group: _Waiting) -> tuple[Action, ...] | None:
    if group.view.kinds is not None:
        return None
    return group.report(Why.INCOMPLETE, "Slurm's nodes are not known yet")


def _of_different_sizes(group: _Waiting) -> tuple[Action, ...] | None:
    sizes = sorted({pod.size for pod in group.waiting})
    if len(sizes) == 1:
        return None
    text = (
        f"the pods of {group.waiting[0].group} have different sizes of their group, such as "
        f"{sizes[0]} and {sizes[1]}"
    )
    return group.report(Why.REFUSED, text)


def _incomplete(group: _Waiting) -> tuple[Action, ...] | None:
    first, count = group.waiting[0], len(group.waiting)
    others = [pod for pod in group.pods if pod.present and pod.job is not None]
    earlier = group.view.started.get(group.key, ())
    if others:
        text = f"pod {others[0].name} of an earlier job of this group still exists"
    elif earlier:
        text = f"job {earlier[0]} of this group, an earlier one, has not ended yet"
    elif any(pod.blocked for pod in group.waiting):
        text = "another scheduling gate is on the pod"
    elif count < first.size:
        text = f"{count} of {first.size} pods of {first.group} exist"
    else:
        return None
    return group.report(Why.INCOMPLETE, text)


def _of_several_controllers(group: _Waiting) -> tuple[Action, ...] | None:
    """Return that the pods are those of controllers which use one name for their groups: a job of
    some pods of each would have the others wait in vain.
    """
    first, live = group.waiting[0], [pod for pod in group.pods if pod.live]
    owners = sorted({pod.owner for pod in live if pod.owner})
    labelled = group.key.group.startswith(bridge.group_id(""))
    if not labelled or len(live) <= first.size or len(owners) < 2:
        return None
    text = (
        f"{len(live)} pods of {len(owners)} controllers have the label of {first.group}, whose "
        f"size is {first.size}: use a name for each, or the label {bridge.GROUP_SIZE_LABEL} alone"
    )
    return group.report(Why.REFUSED, text)


_RULES_WITHOUT_JOB: tuple[Callable[[_Waiting], tuple[Action, ...] | None], ...] = (
    _unwritable,
    _without_size,
    _without_shape,
    _without_nodes,
    _of_different_sizes,
    _of_several_controllers,
    _incomplete,
)
"""Why the pods of a group get no job yet. The first one that applies decides, also that nothing is
reported; None: the next one is asked.
"""


def _complete(group: _Waiting) -> Iterator[Action]:
    """Find or submit the job of a group whose pods all exist."""
    waiting, view = group.waiting, group.view
    parts = parts_of(waiting)
    theirs = view.by_user.get(group.key)
    if theirs is not None or not all(pod.submit for pod in waiting):
        yield from _with_job_of_user(group.key, theirs, waiting, parts)
        return
    # Slurm places no two components on one node. It keeps nodes free for a heterogeneous job that
    # waits, even for ever.
    most = MOST_PARTS if view.places is None else max(1, min(MOST_PARTS, view.places))
    if len(parts) > most:
        text = (
            f"the pods of {waiting[0].group} request {len(parts)} different things, each of which "
            "needs a node of its own"
        )
        yield from group.report(Why.REFUSED, f"{text}: at most {most} are possible")
        return
    guard, problem = kind_of(waiting, parts, view.kinds or {})
    problem = problem or _without_fit(parts, view, guard=guard)
    if problem:
        yield from group.report(Why.REFUSED, problem)
        return
    yield from _found_or_submitted(group, parts, guard=guard)


def _without_fit(parts: Sequence[Part], view: View, *, guard: bool) -> str:
    """Return why no node can run the pods of a part, "" if one can, or none is known yet."""
    places = view.places_of.get(guard, frozenset())
    for part in parts:
        unfit = view.unfit.get(part.shape.needs, {})
        if places and places <= unfit.keys():
            first = min(places)
            more = f" and {len(places) - 1} others" if len(places) > 1 else ""
            return f"no Kubernetes node of Slurm can run the pod: {first}{more}: {unfit[first]}"
        if part.shape.alone:
            text = f"{part.pods} pods {part.shape.alone}, and need a node each"
            left = len(places - unfit.keys())
            if places and part.pods > left:
                return f"{text}: Slurm has {left} that can run them"
            if 0 < part.shape.max_nodes < part.pods:
                return f"{text}: annotation max-nodes is {part.shape.max_nodes}"
    return ""


def _with_job_of_user(
    key: GroupKey, job: Job | None, waiting: Sequence[Pod], parts: Sequence[Part]
) -> Iterator[Action]:
    """Yield all pods of the group get the job, if it exists. `parts`: the equal ones among them."""
    first = waiting[0]
    for pod in waiting:
        if len(parts) > 1:
            text = (
                f"the pods of {first.group} request different things, and the job of a user is "
                "for equal pods"
            )
            yield Report(pod, Why.REFUSED, text)
        elif job is not None:
            yield Label(pod, job.job_id)
        else:
            name = key.group.removeprefix(bridge.group_id(""))
            comment = f"{bridge.BY_USER}{key.namespace}/{name}"
            text = f"user {parts[0].shape.user} has no external job with the comment {comment}"
            yield Report(
                pod, Why.NO_JOB, f"{text}, and annotation {bridge.NO_SUBMISSION} asks for one"
            )


def _found_or_submitted(
    group: _Waiting, parts: tuple[Part, ...], *, guard: bool
) -> Iterator[Action]:
    """Adopt a job that was submitted before, refuse one that requests too little, or submit one."""
    key, waiting, view = group.key, group.waiting, group.view
    fitting = [job for job in group.submitted if is_for(job, parts, guard=guard)]
    adopted = [job for job in fitting if not difference(job, parts)]
    if fitting and not adopted:
        group.adoptable.update(job.job_id for job in fitting)
        yield from refuse(key, fitting, waiting, parts)
    elif adopted:
        job = min(adopted, key=lambda it: it.job_id)
        group.adoptable.add(job.job_id)
        for pod in waiting:
            its = next(
                it
                for it in job.components
                if pod.shape is not None and it.digest == pod.shape.digest
            )
            yield Label(pod, its.job_id)
    elif key in view.misnamed:
        yield from group.report(Why.REFUSED, adoption.misnamed_words(*view.misnamed[key]))
    elif key not in view.submitting:
        avoided = {node: None for pod in waiting for node in view.avoided.get(avoid_key(pod), ())}
        unfit = tuple(tuple(sorted(view.unfit.get(it.shape.needs, ()))) for it in parts)
        unfit = unfit if any(unfit) else ()
        yield Submit(key, parts, tuple(avoided), guard, unfit, tuple(waiting))


def _with_job(
    job: Job, members: list[Pod], waiting: list[Pod], view: View, blockers: _Blockers
) -> Iterator[_Step]:
    if job.phase is Phase.RUNNING and (job.confirmed or job.comment.by_user):
        given_up = tuple(_given_up(job, members, waiting, view))
        yield from given_up
        if given_up:
            return
    ids = (
        job.ids if waiting or any(pod.gated for pod in members) else ()
    )  # most jobs only have pods that run
    used = [pod for job_id in ids for pod in view.labelled.get(job_id, ()) if _fits(pod, job)]
    free = _free_places(job, used)
    yield from _labelled(job, waiting, used, free)
    if job.phase is Phase.RUNNING:
        yield from _unreplaced(job, waiting, used)
    if job.phase is Phase.SUBMITTED:
        yield from _not_started(job, members, used, free, view)
    elif job.phase is Phase.RUNNING and not job.confirmed and not job.comment.by_user:
        # Its user has let it start. Without an admin comment, the user could hide the job's end
        # from the bridge.
        yield Start(job)
    elif job.phase is Phase.RUNNING:
        yield from _running(job, members, used, view, blockers)
    else:
        yield from _pending(job, members, view)


def _free_places(job: Job, used: list[Pod]) -> dict[int, int]:
    """Return for how many more pods each component is."""
    taken = Counter(pod.job for pod in used)
    free = {it.job_id: it.size - taken[it.job_id] for it in job.components}
    if job.comment.by_user and used:
        # What it is for is known when it runs.
        free[job.job_id] = used[0].size - taken[job.job_id]
    return free


def _labelled(
    job: Job, waiting: list[Pod], used: list[Pod], free: dict[int, int]
) -> Iterator[Action]:
    """Give pods that wait a place of the job, and take these from `free`."""
    known = {(pod.job, pod.shape) for pod in used} if waiting else set()
    for pod in waiting:
        if job.guard and pod.unguarded:
            yield Report(pod, Why.REFUSED, f"{pod.name}: {pod.unguarded}")
            continue
        its = next(
            (it for it in job.components if free[it.job_id] > 0 and _is_for(it, pod, known)), None
        )
        if its is not None:
            free[its.job_id] -= 1
            yield Label(pod, its.job_id)
        else:
            text = f"job {job.job_id} of this group has as many pods as it is for"
            if any(it > 0 for it in free.values()):
                text = (
                    f"job {job.job_id} of this group has no place for what this pod requests: "
                    "delete the other pods of the group, and all of them get another job"
                )
            yield Report(pod, Why.REFUSED if pod.problem else Why.INCOMPLETE, pod.problem or text)


def _unreplaced(job: Job, waiting: list[Pod], used: list[Pod]) -> Iterator[_Blocked]:
    """Yield the pod whose end isn't known, and whose place another one of the group waits for: that
    of a dead node, which nobody reports as ended.
    """
    stays = next((pod for pod in used if pod.overdue), None)
    if waiting and stays is not None and len(used) >= sum(it.size for it in job.components):
        text = f"pod {stays.name} has not ended in its grace period, and another one waits for it"
        yield _Blocked(job.job_id, Obstacle(text, stays.node))


def _not_started(
    job: Job, members: list[Pod], used: list[Pod], free: Mapping[int, int], view: View
) -> Iterator[Action]:
    """Start a held job when all of its pods have its label."""
    size = sum(it.size for it in job.components)
    earlier = view.started.get(job.key, ())
    if len(members) >= size and not earlier:
        yield Start(job, _priority(members))
        stuck = next((it for it in job.rest if it.confirmed and it.phase is Phase.PENDING), None)
        if stuck is not None and stuck.reason not in NOT_STARTED:
            for pod in members:
                yield Report(pod, Why.WAITING, waiting_words(stuck))
        return
    if len(used) == len(members) < size and not any(it > 0 for it in free.values()):
        return  # the others get their label in this pass
    text = f"job {earlier[0]} of this group, an earlier one, has not ended yet" if earlier else ""
    for pod in members:
        yield Report(
            pod, Why.INCOMPLETE, text or f"{len(members)} of {size} pods of {pod.group} exist"
        )


def _priority(members: Iterable[Pod]) -> int:
    """Return the lowest priority that the pods set, 0 if one sets none."""
    wished = [pod.shape.priority if pod.shape is not None else 0 for pod in members]
    return min(wished, default=0)


def _pending(job: Job, members: list[Pod], view: View) -> Iterator[Action]:
    """Report why a job doesn't run yet, and help one that no node fits any longer."""
    if job.phase is Phase.PENDING and not job.comment.by_user:
        yield from adoption.allow(job, members, view)
    stuck = next(
        (it for it in job.components if it.phase is Phase.PENDING and it.reason == NO_NODE_FITS),
        None,
    )
    if stuck is not None and job.confirmed and job.job_id not in view.paused:
        yield Start(job, _priority(members))
    for pod in members:
        if pod.gated:
            yield Report(pod, Why.WAITING, waiting_words(stuck or job))


def waiting_words(job: Job) -> str:
    """Describe why the job waits, with Slurm's reason in words, and when Slurm expects it to start.

    The time is rounded up, because each new text is a write.
    """
    if job.phase is Phase.STARTING:
        return f"Slurm job {job.job_id} is starting"
    if job.phase is Phase.STOPPED:
        return f"Slurm job {job.job_id} is suspended"
    if job.reason in ("", "None"):
        text = f"Slurm job {job.job_id} waits: Slurm has not looked at it yet"
    else:
        text = queued.WAITS.write(job=job.job_id, reason=job.reason)
        known = words_of(job.reason)
        if known is not UNKNOWN:
            text += f". {known.cause.rstrip('.')}"
    # Slurm plans a time also for jobs that it then sets to priority 0.
    if job.start_time and not is_final(job.reason):
        by = timestamp(-(-job.start_time // START_ROUNDING) * START_ROUNDING)
        text += f". Slurm expects it to start by {by}"
    return text


def _is_for(component: Job, pod: Pod, known: AbstractSet[tuple[int | None, Shape | None]]) -> bool:
    """Return whether the component has requested what the pod does.

    `known`: what the pods with the label of a component request now. The requests of a namespace
    may have changed since the submission, and then theirs have, too. A pod that requests more than
    they do would have no place when the job runs, and the others would start without it.
    """
    if pod.shape is None:
        return False
    return (component.job_id, pod.shape) in known or component.digest == pod.shape.digest


def _given_up(job: Job, members: list[Pod], waiting: list[Pod], view: View) -> Iterator[_Step]:
    """Give the job up when a pod can't be bound, or can't be released. First those that wait lose
    the job, and then it is cancelled. One that is CANCELLED ends the pods that still have it.
    """
    late = next(
        (
            it
            for it in members
            if not it.gated and not it.bound and it.unbound_seconds >= _patience(it)
        ),
        None,
    )
    if late is not None:
        reason = late.unbound_reason or "the scheduler gives no reason"
        text = (
            f"pod {late.name} was not bound to {late.node} within {_patience(late):.0f} s: {reason}"
        )
        cancel = replace(
            orphans.cancel(job, text),
            avoid=(avoid_key(late), late.node) if late.node else None,
            unbound=late,
        )
        yield from _ended_early(job, members, waiting, cancel, view)
        return
    stays = _unstarted(job, members)
    if stays is not None and stays.starting is not None:
        text = (
            f"pod {stays.name} has not started on {stays.node} within "
            f"{stays.starting.patience:.0f} s: {stays.starting.words}"
        )
        cancel = replace(
            orphans.cancel(job, text), avoid=(avoid_key(stays), stays.node), unstarted=stays
        )
        yield from _ended_early(job, members, waiting, cancel, view)
        return
    obstacle = requeued.overdue(job, view)
    gated = [pod for pod in members if pod.gated]
    if obstacle is None or not (gated or waiting):
        return
    # Its end doesn't matter any longer: some of the pods may have lost the job already.
    yield _Blocked(job.job_id, obstacle)
    text = (
        f"job {job.job_id} had its nodes for {requeued.RELEASE_SECONDS:.0f} s: {obstacle.message}"
    )
    again = tuple(requeued.queued_again(job, gated, text, obstacle.node))
    yield from again
    if not again or requeued.is_stuck(again, view):
        yield requeued.with_words(orphans.cancel(job, text), job)
    yield from requeued.waits_for_end(job, waiting)


def _unstarted(job: Job, members: list[Pod]) -> Pod | None:
    """Return a pod that the kubelet should have started by now. Only its user ends a job that the
    user has submitted.
    """
    if job.comment.by_user:
        return None
    return next(
        (
            it
            for it in members
            if it.starting is not None and it.starting_seconds >= it.starting.patience
        ),
        None,
    )


def _ended_early(
    job: Job, members: list[Pod], waiting: list[Pod], cancel: Cancel, view: View
) -> Iterator[Action]:
    """Have the pods that wait queued again, and then cancel the job."""
    again = (
        () if job.comment.by_user else tuple(requeued.queued_again(job, members, cancel.message))
    )
    yield from again
    if not again or requeued.is_stuck(again, view):
        yield requeued.with_words(cancel, job)
    yield from requeued.waits_for_end(job, waiting)


def _running(
    job: Job, members: list[Pod], used: list[Pod], view: View, blockers: _Blockers
) -> Iterator[_Step]:
    for pod in members:
        # A pod that has never waited needs no condition.
        if not pod.gated and pod.reported[0] not in ("", Why.RELEASED.value):
            yield Report(pod, Why.RELEASED, f"Slurm job {job.job_id} runs")
    gated = [pod for pod in members if pod.gated]
    if not gated:
        return
    pairs = _pairs(job, gated, used)
    unready = _unready_job_of_user(job, gated, used, len(pairs))
    if unready is not None:
        yield from unready
        return
    blocked = tuple(_not_free(job, gated, pairs, view, blockers))
    if blocked:
        yield from blocked
        return
    plan = grants.plan(job, pairs, view)
    if plan.fault or plan.actions:
        nodes = {node for _, node in pairs}
        text = plan.fault or "its devices are not allocated"
        yield _Blocked(job.job_id, Obstacle(text, min(nodes) if len(nodes) == 1 else ""))
    if plan.fault:
        yield from _without_free_node(job, gated, f"has its nodes, but {plan.fault}")
        return
    yield from plan.actions
    for pod, node in pairs if not plan.actions else ():
        yield Release(pod, job.job_id, node, job.end_time)
        if pod.uid in view.refused:
            yield _Blocked(
                job.job_id,
                Obstacle(f"Kubernetes refuses to release a pod: {view.refused[pod.uid]}"),
            )
    placed = {pod.uid for pod, _ in pairs}
    for pod in (it for it in gated if it.uid not in placed):
        yield _Blocked(job.job_id, Obstacle("it has no place left"))
        yield from _without_free_node(job, [pod], "has no place left for this pod")


def _unready_job_of_user(
    job: Job, gated: Sequence[Pod], used: Sequence[Pod], places: int
) -> Iterator[Report] | None:
    """Return why no pod of a running job that a user has submitted can be released, None if they
    can. `used` are all with its label, of which `gated` wait.
    """
    if not job.comment.by_user:
        return None
    if len(gated) == len(used) < gated[0].size:
        text = (
            f"{len(used)} of {gated[0].size} pods of {gated[0].group} have Slurm job "
            f"{job.job_id}, which runs"
        )
        return (Report(pod, Why.INCOMPLETE, text) for pod in gated)
    if places < len(gated):
        text = (
            f"Slurm job {job.job_id} has places for {places} of {len(gated)} pods: request more "
            "tasks in it"
        )
        return (Report(pod, Why.NODE_NOT_FREE, text) for pod in gated)
    return None


def _pairs(job: Job, gated: list[Pod], used: list[Pod]) -> list[tuple[Pod, str]]:
    """Return the node of each pod that waits for its release."""
    # A release that was sent, and that isn't seen yet, is sent again to the same node, whose place
    # it has.
    pairs = [(pod, pod.node) for pod in gated if pod.node]
    for its in job.components:
        taken = Counter(pod.node for pod in used if pod.node and pod.job == its.job_id)
        places = [node for node, slots in its.slots for _ in range(slots - taken[node])]
        new = [pod for pod in gated if not pod.node and pod.job == its.job_id]
        # What has devices of a node already stays there.
        for pod, node in [(pod, grants.node_of(pod, its)) for pod in new]:
            if node in places:
                places.remove(node)
                new.remove(pod)
                pairs.append((pod, node))
        pairs += zip(new, places, strict=False)
    return pairs


def _not_free(
    job: Job, gated: list[Pod], pairs: list[tuple[Pod, str]], view: View, blockers: _Blockers
) -> Iterator[_Step]:
    """Yield what keeps the pods from the first of their nodes that they can't have, nothing if none
    does.
    """
    for _, node in pairs:
        fault = view.nodes.get(node, queued.NO_KUBE_NODE.write(node=node))
        if fault or node in blockers.lasting:
            yield _Blocked(
                job.job_id, Obstacle(fault or f"{blockers.words[node]} on node {node}", node)
            )
        if not fault and node in blockers.words:
            fault = f"{blockers.words[node]} on node {node}"
        if fault:
            yield from _without_free_node(job, gated, f"has its nodes, but {fault}")
            return


def _without_free_node(job: Job, pods: list[Pod], text: str) -> Iterator[Action]:
    for pod in pods:
        yield Report(pod, Why.NODE_NOT_FREE, f"Slurm job {job.job_id} {text}")


def _patience(pod: Pod) -> float:
    if pod.unbound_reason:
        return BIND_SECONDS
    return AWAY_SECONDS if pod.scheduler_away else UNTRIED_SECONDS
