"""Slurm node records that pods of a NodeSet left behind."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sidecars.contract import reasons
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import actions, needs
from sidecars.policy.nodeset.parts import (
    MAX_LOOKUPS,
    Part,
    Questions,
    are_pods_gone,
    earliest,
    may_abandon_records,
)
from sidecars.policy.reasons import RecordsReleased
from sidecars.slurm import states
from sidecars.slurm.owners import must_be_drained, own_words, pod_of, reason_to_write, why_retained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sidecars.policy.nodeset.actions import Action
    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.records import Desired, Observed
    from sidecars.slurm.records import Node

KEPT_SECONDS = 30.0
"""Seconds between reads of the jobs while one of them, or a reservation, keeps a record."""

_SHOWN = 5

ORPHANED_SECONDS = 5.0
"""How long a node record must have been without its pod before it is deleted: longer than a watch
event takes.
"""


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """What to do about node records without a pod."""

    delete: tuple[str, ...] = ()
    down: Mapping[str | None, tuple[str, ...]] = field(default_factory=dict)
    """Nodes to set DOWN by reason. None doesn't change the reason; these are drained as well."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Who names a node, such as `job 17`, by node: these records stay until nobody does."""
    look_again: float | None = None
    """Seconds until time alone may have changed this; None when no record is left to be deleted
    now.
    """


def due(orphans: Iterable[Node], orphaned_since: Mapping[str, float], now: float) -> bool:
    """Return whether one of these records may be deleted if nobody names its node. Times as of
    `orphaned_records`.
    """
    gone = [
        node for node in orphans if now - orphaned_since.get(node.name, now) >= ORPHANED_SECONDS
    ]
    return any(not why_retained(node) for node in gone)


def orphaned_records(
    orphans: Iterable[Node],
    orphaned_since: Mapping[str, float],
    now: float,
    named: Mapping[str, str] | None,
) -> RecordPlan:
    """Decide what to do about node records that carry the uid of a deleted pod.

    `named`: who names a node, by node, None while it is unknown: then no record is deleted.
    `orphaned_since`: when each was first seen so. One that is missing in it is seen for the first
    time.

    A record with a foreign state or reason, or a reservation, is set DOWN and left to the
    administrator. If it isn't only reserved, it is drained too, so that no later pod of its name
    returns it to service. A busy one is set DOWN, which ends its jobs in Slurm, and deleted once it
    is free. One that a job or a reservation names is set DOWN, too, with a reason that names it.
    """
    delete: list[str] = []
    kept: dict[str, str] = {}
    down: dict[str | None, list[str]] = {}
    wait: list[float] = []
    for node in orphans:
        age = now - orphaned_since.get(node.name, now)
        if age < ORPHANED_SECONDS:
            wait.append(ORPHANED_SECONDS - age)
            continue
        busy = states.is_busy(node.states)
        retain = bool(why_retained(node))
        by = None if named is None else named.get(node.name)
        reason = reason_to_write(
            node, reasons.kept(reasons.RECORD_ORPHANED, by) if by else reasons.RECORD_ORPHANED
        )
        stays = retain or busy or by is not None
        unsaid = by is not None and reason is not None and own_words(node.reason) != reason
        if stays and (not states.is_down(node.states) or must_be_drained(node) or unsaid):
            down.setdefault(reason, []).append(node.name)
        if retain:
            continue
        if busy or named is None:
            wait.append(1.0)
        elif by is not None:
            kept[node.name] = by
        else:
            delete.append(node.name)
    by_reason = {reason: tuple(names) for reason, names in down.items()}
    return RecordPlan(tuple(delete), by_reason, kept, min(wait, default=None))


def planned(
    desired: Desired, observed: Observed, memory: Memory, now: float, questions: Questions
) -> RecordPlan:
    """Plan the deletion of the NodeSet's own records whose pods are deleted."""
    if not _are_deleted(desired, observed):
        return RecordPlan()
    since = _orphaned_since(observed, memory, now)
    named = None
    if due(observed.orphans, since, now):
        answers = [questions.ask(it) for it in needs.NAMES]
        known = all(isinstance(it, needs.Known) for it in answers)
        named = observed.slurm.named if known and not observed.slurm.jobs_problem else None
    return orphaned_records(observed.orphans, since, now, named)


def part(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Delete the records that pods of the NodeSet left behind, or set their nodes DOWN."""
    questions = Questions(observed.answers)
    plan = planned(desired, observed, memory, now, questions)
    found, left = _due_now(plan, observed, memory, questions)
    if _are_deleted(desired, observed):
        memory = replace(memory, orphaned_since=_orphaned_since(observed, memory, now))
    abandoned = may_abandon_records(desired, memory, now)
    if are_pods_gone(memory) and observed.settled:
        may_have_records = observed.connected or not observed.controller_deleted
        if may_have_records and observed.slurm.problem is not None:
            left = 1.0
        if abandoned or desired.nodeset.spec.node_records == "Keep":
            left = None
    return Part(
        memory,
        actions=() if abandoned else found,
        later=found if abandoned else (),
        needs=questions.unanswered,
        look_again=earliest(left, KEPT_SECONDS if plan.kept else None),
        keeps=left is not None,
        report=lambda progress: replace(progress, records_kept=condition(plan.kept)),
    )


def _are_deleted(desired: Desired, observed: Observed) -> bool:
    """Return whether records without a pod are deleted, as far as Slurm's answers can be
    trusted.
    """
    keep = desired.nodeset.spec.node_records == "Keep"
    return observed.connected and observed.slurm.problem is None and not keep


def _orphaned_since(observed: Observed, memory: Memory, now: float) -> dict[str, float]:
    return {node.name: memory.orphaned_since.get(node.name, now) for node in observed.orphans}


def _due_now(
    plan: RecordPlan, observed: Observed, memory: Memory, questions: Questions
) -> tuple[tuple[Action, ...], float | None]:
    """Return what to do about records without a pod, and seconds until it is done, None when it
    is.
    """
    names = {*plan.delete, *(name for names in plan.down.values() for name in names)}
    if names and memory.records_since is not None:
        # The records have to be read again first.
        return (), 1.0
    pods = {
        node.name: facts.pod
        for node in observed.orphans
        if node.name in names and (facts := pod_of(node))
    }
    free = {
        name
        for name in sorted(names)[:MAX_LOOKUPS]
        if not pods.get(name) or needs.is_no(questions.ask(needs.IsHidden(pods[name])))
    }
    found: list[Action] = []
    for reason, down in plan.down.items():
        if some := tuple(name for name in down if name in free):
            found.append(actions.SetDown(reason, some))
    if some := tuple(name for name in plan.delete if name in free):
        found.append(actions.DeleteRecords(some))
    return tuple(found), 1.0 if len(free) < len(names) else plan.look_again


def is_left(node: Node, exists: Callable[[str, str, str], bool]) -> bool:
    """Return whether a record is one of ours whose pod and NodeSet are gone.

    `exists`: whether one of them may exist, given the namespace of both, the NodeSet's uid and the
    pod's. The node is DOWN with a reason of ours about the end of its pod: in a Slurm cluster that
    workers of several Kubernetes clusters share, a record of another one may look so, whose
    operator would delete it as well.
    """
    if (
        not states.is_down(node.states)
        or not reasons.is_for_the_end(node.reason)
        or why_retained(node)
    ):
        return False
    facts = pod_of(node)
    if (
        facts is None
        or not facts.nodeset_uid
        or "CLOUD" in node.states
        or states.is_busy(node.states)
    ):
        return False
    return not exists(facts.namespace, facts.nodeset_uid, facts.pod_uid)


def is_cloud_left(node: Node, exists: Callable[[str, str, str], bool]) -> bool:
    """Return whether a record is one of power saving whose pod and NodeSet are gone, as far as this
    Kubernetes cluster knows.

    `exists` as for `is_left`. Slurm may give such a record to a job, which would wait for a worker
    that nothing creates. The NodeSet may be one of another Kubernetes cluster: that it isn't,
    `PodFacts.namespace_uid` proves alone.
    """
    if states.is_busy(node.states) or why_retained(node):
        return False
    stopped = states.is_powered_down(node.states) or states.is_down(node.states)
    return stopped and is_cloud_orphan(node, exists)


def is_cloud_orphan(node: Node, exists: Callable[[str, str, str], bool]) -> bool:
    """Return the same as `is_cloud_left`, whether or not the record may be deleted now."""
    facts = pod_of(node)
    if "CLOUD" not in node.states or facts is None:
        return False
    if not facts.nodeset_uid or not facts.namespace_uid:
        return False
    return not exists(facts.namespace, facts.nodeset_uid, facts.pod_uid)


def condition(kept: Mapping[str, str]) -> Condition | None:
    """Return the condition RecordsReleased while node records are kept for those who name the
    nodes.
    """
    if not kept:
        return None
    shown = [f"{node} ({by})" for node, by in sorted(kept.items())[:_SHOWN]]
    more = f" and {len(kept) - _SHOWN} more" if len(kept) > _SHOWN else ""
    message = (
        "these Slurm nodes have no worker and stay DOWN, because jobs or reservations name them: "
        f"{', '.join(shown)}{more}. Scale the NodeSet out, or cancel or change what names them"
    )
    return Condition("RecordsReleased", "False", RecordsReleased.NAMED, message)
