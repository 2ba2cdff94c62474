"""The part of the decision that is about worker pods.

`pods` plans from what was observed. Here the plan gets the pods that nobody else brings back, and
loses what isn't known to be safe at this moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sidecars.policy.nodeset import actions, claims, drain, lost, needs, node_records, pods
from sidecars.policy.nodeset.failures import failures
from sidecars.policy.nodeset.parts import MAX_LOOKUPS, Part, Questions, earliest
from sidecars.policy.nodeset.records import Deletion, Waiting
from sidecars.policy.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Collection

    from sidecars.policy.nodeset.actions import Action
    from sidecars.policy.nodeset.failures import Failures
    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.node_records import RecordPlan
    from sidecars.policy.nodeset.pods import PodPlan
    from sidecars.policy.nodeset.records import Desired, DesiredPods, Observed, SlurmView
    from sidecars.policy.nodeset.report import Progress

LIVE_SECONDS = 1.0
"""Up to this age a node record counts as read at this moment."""

VALID_SECONDS = 2.0
"""How long a pod may be deleted because of what was read for it alone."""


def part(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Decide which pods to create, drain and delete."""
    questions = Questions(observed.answers)
    plan = pods.plan(desired.pods, observed.pods, observed.slurm, now)
    plan = _with_known_ends(plan, desired.pods, observed, questions)
    plan, spared, memory = _with_lost(plan, observed, memory, now, questions)
    if any(it.drained or (it.absent and it.pod.uid not in spared) for it in plan.delete):
        questions.ask(needs.Jobs())
    plan = _with_marks(plan, observed.slurm, questions)
    records = node_records.planned(desired, observed, memory, now, questions)
    since = None
    if _needs_records(plan, records, observed, memory):
        since = observed.clock if memory.records_since is None else memory.records_since
        questions.ask(needs.NodeRecords(since))
    plan = _as_true_live(plan, observed.slurm, spared, now, questions, stale=since is not None)
    failed, wait = _failures(plan, observed, memory, now)
    unanswered = questions.unanswered

    def report(progress: Progress) -> Progress:
        return replace(
            progress,
            waiting=plan.waiting,
            deleted=frozenset(deletion.pod.uid for deletion in plan.delete),
            problems=plan.problems,
            absent_since=memory.absent_since,
            spared=spared,
        )

    return Part(
        replace(memory, records_since=since, failures=failed),
        actions=() if unanswered else _actions(plan, desired, observed, failed, now),
        needs=unanswered,
        look_again=earliest(plan.look_again, wait),
        report=report,
    )


def _with_known_ends(
    plan: PodPlan, desired: DesiredPods, observed: Observed, questions: Questions
) -> PodPlan:
    """Return the plan that condemns no further pod until it is known whose jobs end first."""
    everyone = observed.pods
    by_count = desired.ordinals is None and not desired.deleting
    if not (plan.cordon and len(everyone) > desired.replicas > 0 and by_count):
        return plan
    busy = frozenset(pod.slurm_node for pod in everyone if drain.is_busy(pod, observed.slurm))
    if not busy or not observed.connected:
        return plan
    answer = questions.ask(needs.Deadlines(busy))
    return pods.undecided(plan) if isinstance(answer, needs.Pending) else plan


class _WithLost(NamedTuple):
    plan: PodPlan
    spared: frozenset[str]
    """uids of the pods that stay although Slurm has no node of them."""
    memory: Memory


def _with_lost(
    plan: PodPlan, observed: Observed, memory: Memory, now: float, questions: Questions
) -> _WithLost:
    """Return the plan with the deletion of pods that nobody else brings back."""
    everyone, slurm, others = observed.pods, observed.slurm, observed.others
    since = lost.absent(everyone, slurm, memory.absent_since, now)
    asked = lost.must_be_explained(everyone, plan.delete, slurm, since, now)
    start = questions.ask(needs.SlurmctldStart()) if asked else None
    spared, kept = lost.spared(everyone, slurm, since, start, others, memory.spared)
    stuck = lost.stuck(everyone, slurm, now, spared)
    unknown = lost.unregistered(everyone, slurm, since, spared, memory.replaced, others, now)
    replaced = lost.still_replaced(
        {**{it.pod.uid: now for it in unknown.delete}, **memory.replaced}, now
    )
    planned = {deletion.pod.name for deletion in plan.delete}
    more = [
        it
        for it in (*stuck.delete, *unknown.delete)
        if it.kube_node_lost or it.pod.name not in planned
    ]
    return _WithLost(
        replace(
            plan,
            delete=(*plan.delete, *more),
            look_again=earliest(plan.look_again, stuck.look_again, unknown.look_again),
        ),
        spared,
        replace(memory, absent_since=since, replaced=replaced, spared=kept),
    )


def _with_marks(plan: PodPlan, slurm: SlurmView, questions: Questions) -> PodPlan:
    """Return the plan in which a pod is deleted once its node's reason shows whether a job or a
    reservation names it.
    """
    drained = [(it, slurm.nodes[it.pod.slurm_node]) for it in plan.delete if it.drained]
    # The record of a node under power saving stays anyway, and a drain would keep Slurm from
    # starting it.
    leaving = [(it, node) for it, node in drained if "CLOUD" not in node.states]
    if leaving:
        questions.ask(needs.Reservations())
    unmarked = {}
    drain_by: dict[str | None, tuple[str, ...]] = dict(plan.drain)
    for it, node in leaving:
        reason = drain.mark(node, slurm.named.get(node.name))
        if reason is not None:
            unmarked[it.pod.uid] = Waiting(
                it.pod, f"Slurm node {node.name} gets the reason {reason!r}", 1.0
            )
            drain_by[reason] = (*drain_by.get(reason, ()), node.name)
    return replace(
        plan,
        drain=drain_by,
        delete=tuple(it for it in plan.delete if it.pod.uid not in unmarked),
        waiting=(*plan.waiting, *unmarked.values()),
    )


def _needs_records(plan: PodPlan, records: RecordPlan, observed: Observed, memory: Memory) -> bool:
    """Return whether the node records are too old for what is done because of them."""
    slurm, since = observed.slurm, memory.records_since
    deletes = records.delete or records.down or any(deletion.drained for deletion in plan.delete)
    read_at = observed.clock - slurm.age
    # What an administrator set a moment ago is neither lifted nor overwritten.
    drained = sum(len(names) for names in plan.drain.values())
    strict = plan.undrain or plan.resume or 0 < drained < pods.SHARED_REASON_PODS
    live = slurm.age <= (0.0 if strict else LIVE_SECONDS)
    read_since = since is not None and read_at >= since
    return bool(strict or drained or deletes) and not live and not read_since


def _as_true_live(
    plan: PodPlan,
    slurm: SlurmView,
    spared: Collection[str],
    now: float,
    questions: Questions,
    *,
    stale: bool,
) -> PodPlan:
    """Return the plan with only those deletions and lifted drains that what is true at this moment
    allows.

    `stale`: the node records have to be read again before what is decided on them is done.
    """
    lookups, waiting, first, later = 0, list[Waiting](), list[Deletion](), list[Deletion]()
    hints: list[float] = []
    for deletion in plan.delete:
        if deletion.absent and deletion.pod.uid in spared:
            waiting.append(lost.waits_for_state(deletion.pod))
        elif deletion.absent or deletion.kube_node_lost:
            lookups += 1
            if lookups > MAX_LOOKUPS:
                hints.append(0.1)
            elif _is_true(deletion, slurm, questions):
                first.append(replace(deletion, valid_until=now + VALID_SECONDS))
            elif deletion.kube_node_lost:
                hints.append(1.0)
            else:
                waiting.append(lost.unread(deletion.pod, slurm))
        elif deletion.drained and stale:
            step = f"Slurm node {deletion.pod.slurm_node} is being read again"
            waiting.append(Waiting(deletion.pod, step, look_again=1.0))
        else:
            later.append(deletion)
    if waiting or (stale and (plan.drain or plan.undrain or plan.resume)):
        hints.append(1.0)
    return replace(
        plan,
        delete=(*first, *later),
        drain={} if stale else plan.drain,
        undrain=() if stale else plan.undrain,
        resume=() if stale else plan.resume,
        waiting=(*plan.waiting, *waiting),
        look_again=earliest(plan.look_again, *hints),
    )


def _is_true(it: Deletion, slurm: SlurmView, questions: Questions) -> bool:
    """Return whether the cause of a deletion that Slurm's list or the cached Kubernetes node shows
    is true live.
    """
    if it.kube_node_lost:
        return needs.is_yes(questions.ask(needs.IsLost(it.pod.kube_node or "")))
    absent = needs.is_yes(questions.ask(needs.IsAbsent(it.pod.slurm_node)))
    return absent and drain.has_no_job(it.pod, slurm)


def _failures(
    plan: PodPlan, observed: Observed, memory: Memory, now: float
) -> tuple[dict[str, Failures], float | None]:
    late = {it.pod.uid for it in plan.delete if it.event is EventReason.SLURM_NODE_NOT_REGISTERED}
    return failures(
        memory.failures,
        observed.pods,
        now,
        unregistered=late,
        absent=memory.absent_since,
    )


def _actions(
    plan: PodPlan,
    desired: Desired,
    observed: Observed,
    failed: dict[str, Failures],
    now: float,
) -> tuple[Action, ...]:
    """Drains, then deletions, then creations. Nothing depends on the annotations, so nothing waits
    for them.
    """
    found: list[Action] = [actions.Drain(reason, names) for reason, names in plan.drain.items()]
    if plan.undrain:
        found.append(actions.Undrain(plan.undrain))
    if plan.resume:
        found.append(actions.Resume(plan.resume))
    changed = claims.changes(desired.nodeset, observed.claims, observed.pods, plan)
    if observed.settled:
        before = changed.before_deletion
        found += [actions.DeletePod(it, before.get(it.pod.uid, ())) for it in plan.delete]
        found += pods.creations(desired, plan, failed, now)
    many = len(plan.cordon) >= pods.SHARED_REASON_PODS
    found += [
        actions.Cordon(pod)
        for pod in plan.cordon
        if not (many and drain.is_deleted_soon(pod, observed.slurm))
    ]
    found += [actions.Uncordon(pod) for pod in plan.uncordon]
    found += changed.others
    return tuple(found)
