"""The decision about one NodeSet: from what it asks for and what is observed to what is to be
done.

`PARTS` has its parts in their order. Each gets the memory that the one before it has left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sidecars.policy.nodeset import (
    actions,
    drain,
    lost,
    maintenance,
    needs,
    node_records,
    partitions,
    power,
    revisions,
    worker_pods,
)
from sidecars.policy.nodeset.desired import deletion_deadline
from sidecars.policy.nodeset.parts import (
    Part,
    are_pods_gone,
    earliest,
    may_abandon_records,
)
from sidecars.policy.nodeset.report import Progress, report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecars.policy.conditions import Condition
    from sidecars.policy.nodeset.actions import Action
    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.needs import Need
    from sidecars.policy.nodeset.records import Desired, Observed


@dataclass(frozen=True, slots=True)
class Decision:
    """What one step has decided. While `needs` isn't empty, nothing else of it counts."""

    memory: Memory
    """For the next pass."""
    actions: tuple[Action, ...] = ()
    """In the order in which they are to be applied."""
    conditions: tuple[Condition, ...] = ()
    """status.conditions with the pods as observed; `report` has them with the pods as they are
    later.
    """
    status: Mapping[str, Any] = field(default_factory=dict)
    """The other fields of the status, likewise, as a merge patch."""
    needs: tuple[Need, ...] = ()
    """What must be read first. Step again with the answers in `Observed.answers`."""
    look_again: float | None = None
    """Seconds until time alone may have changed the decision."""
    progress: Progress = field(default_factory=Progress)
    """For `report`."""


def decide(desired: Desired, observed: Observed, memory: Memory, now: float) -> Decision:
    """Take one step. `memory` is that of the last pass, also when the step is repeated; `now` is
    seconds since the epoch.
    """
    answers = (observed.answers.get(it) for it in needs.NAMES)
    seen = replace(observed, slurm=drain.with_jobs(observed.slurm, *answers))
    parts: list[Part] = []
    later = memory.at(now)
    for decided_by in PARTS:
        part = decided_by(desired, seen, later, now)
        parts.append(part)
        later = part.memory
    asked = dict.fromkeys(need for part in parts for need in part.needs)
    if asked:
        return Decision(memory, needs=tuple(asked))
    progress = Progress(pods_gone=are_pods_gone(later))
    for part in parts:
        progress = part.report(progress)
    conditions, status = report(desired, observed, progress, now)
    released = () if any(part.keeps for part in parts) else (actions.ReleaseNodeSet(),)
    return Decision(
        memory=later,
        actions=(
            *(it for part in parts for it in part.actions),
            *released,
            *(it for part in parts for it in part.later),
        ),
        conditions=conditions,
        status=status,
        look_again=earliest(*(part.look_again for part in parts), desired.look_again),
        progress=progress,
    )


def _end(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Remember since when a NodeSet that is being deleted has no pods, but overdue ones."""
    left = [pod for pod in observed.pods if not (desired.pods.forced and lost.is_overdue(pod, now))]
    since = memory.pods_gone_since
    if not desired.pods.deleting or left:
        since = None
    elif since is None:
        since = now
    return Part(replace(memory, pods_gone_since=since), keeps=since is None or not observed.settled)


def _old_revisions(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Delete stored revisions beyond spec.revisionHistoryLimit."""
    stored, limit = observed.revisions, desired.nodeset.spec.revision_history_limit
    if not desired.creatable or not observed.settled or len(stored) <= limit:
        return Part(memory)
    in_use = {pod.revision for pod in observed.pods}
    surplus = revisions.surplus(stored, desired.pods.revision, in_use, limit)
    prunes = tuple(actions.PruneRevision(name) for name in surplus)
    if may_abandon_records(desired, memory, now):
        return Part(memory, later=prunes)
    return Part(memory, actions=prunes)


def _time(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Look again when time alone changes a decision for the pods or the NodeSet."""
    hints: list[float] = []
    if any(pod.ready and not pod.available for pod in observed.pods):
        hints.append(desired.nodeset.spec.min_ready_seconds + 1.0)
    if observed.pods and desired.pods.forced:
        hints.append(lost.OVERDUE_SECONDS)
    deadline = deletion_deadline(desired.nodeset)
    if deadline is not None and deadline > now:
        hints.append(deadline - now)
    return Part(memory, look_again=earliest(*hints))


PARTS: tuple[Callable[[Desired, Observed, Memory, float], Part], ...] = (
    _end,
    worker_pods.part,
    power.part,
    maintenance.part,
    partitions.part,
    node_records.part,
    _old_revisions,
    _time,
)
"""Their actions are applied in this order. After `worker_pods`, `Memory.records_since` shows
whether the node records have to be read again first. A NodeSet that is being deleted ends when no
part keeps it.
"""
