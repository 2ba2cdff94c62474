"""The decision about one NodeSet: from what it asks for and what is observed to what is to be done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sidecars.policy.nodeset import (
    actions,
    claims,
    drain,
    lost,
    maintenance,
    needs,
    node_records,
    partitions,
    pods,
    power,
    revisions,
)
from sidecars.policy.nodeset.desired import deletion_deadline
from sidecars.policy.nodeset.failures import failures
from sidecars.policy.nodeset.records import Deletion, Waiting
from sidecars.policy.nodeset.report import Progress, report
from sidecars.policy.reasons import EventReason
from sidecars.slurm import owners

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecars.policy.conditions import Condition
    from sidecars.policy.nodeset.actions import Action
    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.needs import Answer, Need
    from sidecars.policy.nodeset.pods import PodPlan
    from sidecars.policy.nodeset.records import Desired, Observed

LIVE_SECONDS = 1.0
"""Up to this age a node record counts as read at this moment."""

VALID_SECONDS = 2.0
"""How long a pod may be deleted because of what was read for it alone."""

RECORDS_SECONDS = 60.0
"""How long a NodeSet that is being deleted waits for the deletion of its node records, from its last pod on."""

MAX_LOOKUPS = 256
"""Pods, node records or Kubernetes nodes that one pass reads one by one."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What one step has decided. While `needs` isn't empty, nothing else of it counts."""

    memory: Memory
    """For the next pass."""
    actions: tuple[Action, ...] = ()
    """In the order in which they are to be applied."""
    conditions: tuple[Condition, ...] = ()
    """status.conditions with the pods as observed; `report` has them with the pods as they are later."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """The other fields of the status, likewise, as a merge patch."""
    needs: tuple[Need, ...] = ()
    """What must be read first. Step again with the answers in `Observed.answers`."""
    look_again: float | None = None
    """Seconds until time alone may have changed the decision."""
    progress: Progress = field(default_factory=Progress)
    """For `report`."""


def decide(desired: Desired, observed: Observed, memory: Memory, now: float) -> Decision:
    """One step. `memory` is that of the last pass, also when the step is repeated; `now` is seconds since the epoch."""
    this = _Step(desired, observed, memory.at(now), now)
    plan = this.plan_pods()
    record_actions, records_left = this.orphaned_records()
    blocked, declared = this.removed_partitions()
    reservation = this.maintenance_step()
    powered = this.power_step()
    if this.needs:
        return Decision(memory, needs=tuple(this.needs))
    progress = Progress(
        waiting=plan.waiting,
        deleted=frozenset(deletion.pod.uid for deletion in plan.delete),
        problems=plan.problems,
        partitions=declared,
        partitions_blocked=partitions.condition(blocked),
        records_kept=node_records.condition(this.records.kept),
        reservation=reservation.condition,
        power_saving=powered.condition,
        absent_since=this.memory.absent_since,
        spared=this.spared,
        pods_gone=this.pods_gone,
    )
    release, release_wait = this.release(blocked, reservation, records_left)
    conditions, status = report(desired, observed, progress, now)
    hints = (
        plan.look_again,
        records_left if not desired.pods.deleting else release_wait,
        min((it.look_again for it in blocked), default=None),
        *(it.look_again for it in (reservation, desired, powered)),
        this.time_alone(),
    )
    return Decision(
        memory=this.memory,
        actions=(
            *this.pod_actions(plan),
            *power.actions_of(powered),
            *reservation.actions,
            *(release if this.may_abandon_records else ()),
            *record_actions,
            *this.prunes(),
            *(release if not this.may_abandon_records else ()),
        ),
        conditions=conditions,
        status=status,
        look_again=min((it for it in (*hints, *this.hints) if it is not None), default=None),
        progress=progress,
    )


class _Step:
    """One step in the making. The methods are called in the order in which they stand here."""

    def __init__(self, desired: Desired, observed: Observed, memory: Memory, now: float) -> None:
        self.desired = desired
        self.observed = observed
        self.now = now
        self.needs: dict[Need, None] = {}
        self.hints: list[float | None] = []
        """Seconds until time alone may have changed one of the decisions."""
        gone = [pod for pod in observed.pods if not (desired.pods.forced and lost.is_overdue(pod, now))]
        self.pods_gone = desired.pods.deleting and not gone
        self.stale = False  # the node records have to be read again before what is decided on them is done
        self.records = node_records.RecordPlan()
        self.spared: frozenset[str] = frozenset()
        self.slurm = drain.with_jobs(observed.slurm, *(observed.answers.get(it) for it in needs.NAMES))
        gone_since = None if not self.pods_gone else now if memory.pods_gone_since is None else memory.pods_gone_since
        self.memory = replace(memory, pods_gone_since=gone_since)
        waited = gone_since is not None and now >= gone_since + RECORDS_SECONDS
        self.may_abandon_records = waited or desired.pods.forced

    def ask(self, need: Need) -> Answer:
        """The answer to a need; until it has one, the step is repeated."""
        if need not in self.observed.answers:
            self.needs[need] = None
        return self.observed.answers.get(need, needs.Pending())

    def plan_pods(self) -> PodPlan:
        """Which pods to create, drain and delete."""
        plan = pods.plan(self.desired.pods, self.observed.pods, self.slurm, self.now)
        if self._order_depends_on_jobs(plan):
            busy = frozenset(pod.slurm_node for pod in self.observed.pods if drain.is_busy(pod, self.slurm))
            if isinstance(self.ask(needs.Deadlines(busy)), needs.Pending):
                plan = pods.undecided(plan)
        plan = self._with_lost(plan)
        if any(it.drained or (it.absent and it.pod.uid not in self.spared) for it in plan.delete):
            self.ask(needs.Jobs())
        plan = self._with_marks(plan)
        plan = self._read_live(plan)
        self._remember_failures(plan)
        return plan

    def _order_depends_on_jobs(self, plan: PodPlan) -> bool:
        """Whether pods are newly condemned, and whose jobs end first decides which."""
        wanted, everyone = self.desired.pods, self.observed.pods
        by_count = wanted.ordinals is None and not wanted.deleting
        choice = plan.cordon and len(everyone) > wanted.replicas > 0 and by_count
        return bool(choice and self.observed.connected and any(drain.is_busy(pod, self.slurm) for pod in everyone))

    def _with_lost(self, plan: PodPlan) -> PodPlan:
        everyone, slurm, others, now = self.observed.pods, self.observed.slurm, self.observed.others, self.now
        since = lost.absent(everyone, slurm, self.memory.absent_since, now)
        asked = lost.must_be_explained(everyone, plan.delete, slurm, since, now)
        start = self.ask(needs.SlurmctldStart()) if asked else None
        self.spared, kept = lost.spared(everyone, slurm, since, start, others, self.memory.spared)
        planned = {deletion.pod.name for deletion in plan.delete}
        stuck = lost.stuck(everyone, slurm, now, self.spared)
        unknown = lost.unregistered(everyone, slurm, since, self.spared, self.memory.replaced, others, now)
        self.hints += [stuck.look_again, unknown.look_again]
        replaced = lost.still_replaced({**{it.pod.uid: now for it in unknown.delete}, **self.memory.replaced}, now)
        self.memory = replace(self.memory, absent_since=since, replaced=replaced, spared=kept)
        more = [it for it in (*stuck.delete, *unknown.delete) if it.kube_node_lost or it.pod.name not in planned]
        return replace(plan, delete=(*plan.delete, *more)) if more else plan

    def _with_marks(self, plan: PodPlan) -> PodPlan:
        """The plan in which a pod is deleted once its node's reason shows whether a job or a reservation names it."""
        drained = [(it, self.slurm.nodes[it.pod.slurm_node]) for it in plan.delete if it.drained]
        # The record of a node under power saving stays anyway, and a drain would keep Slurm from starting it.
        leaving = [(it, node) for it, node in drained if "CLOUD" not in node.states]
        if leaving:
            self.ask(needs.Reservations())
        unmarked = {}
        drain_by: dict[str | None, tuple[str, ...]] = dict(plan.drain)
        for it, node in leaving:
            reason = drain.mark(node, self.slurm.named.get(node.name))
            if reason is not None:
                unmarked[it.pod.uid] = Waiting(it.pod, f"Slurm node {node.name} gets the reason {reason!r}", 1.0)
                drain_by[reason] = (*drain_by.get(reason, ()), node.name)
        return replace(
            plan,
            drain=drain_by,
            delete=tuple(it for it in plan.delete if it.pod.uid not in unmarked),
            waiting=(*plan.waiting, *unmarked.values()),
        )

    def _read_live(self, plan: PodPlan) -> PodPlan:
        """The plan with only those deletions and lifted drains that what is true at this moment allows."""
        self.records = self._plan_records()
        stale = self.stale = self._needs_records(plan)
        writes = plan.drain or plan.undrain or plan.resume
        lookups, waiting, first, later = 0, list[Waiting](), list[Deletion](), list[Deletion]()
        for deletion in plan.delete:
            if deletion.absent and deletion.pod.uid in self.spared:
                waiting.append(lost.waits_for_state(deletion.pod))
            elif deletion.absent or deletion.kube_node_lost:
                lookups += 1
                if lookups > MAX_LOOKUPS:
                    self.hints.append(0.1)
                elif self._is_true(deletion):
                    first.append(replace(deletion, valid_until=self.now + VALID_SECONDS))
                elif deletion.kube_node_lost:
                    self.hints.append(1.0)
                else:
                    waiting.append(lost.unread(deletion.pod, self.slurm))
            elif deletion.drained and stale:
                step = f"Slurm node {deletion.pod.slurm_node} is being read again"
                waiting.append(Waiting(deletion.pod, step, look_again=1.0))
            else:
                later.append(deletion)
        if waiting or (stale and writes):
            self.hints.append(1.0)
        elif not first and not lookups:
            return plan
        return replace(
            plan,
            delete=(*first, *later),
            drain={} if stale else plan.drain,
            undrain=() if stale else plan.undrain,
            resume=() if stale else plan.resume,
            waiting=(*plan.waiting, *waiting),
        )

    def _needs_records(self, plan: PodPlan) -> bool:
        """Whether the node records are too old for what is done because of them."""
        slurm, since = self.observed.slurm, self.memory.records_since
        deletes = self.records.delete or self.records.down or any(deletion.drained for deletion in plan.delete)
        read_at = self.observed.clock - slurm.age
        # What an administrator set a moment ago is neither lifted nor overwritten.
        drained = sum(len(names) for names in plan.drain.values())
        strict = plan.undrain or plan.resume or 0 < drained < pods.SHARED_REASON_PODS
        live = slurm.age <= (0.0 if strict else LIVE_SECONDS)
        if not (strict or drained or deletes) or live or (since is not None and read_at >= since):
            self.memory = replace(self.memory, records_since=None)
            return False
        since = self.observed.clock if since is None else since
        self.memory = replace(self.memory, records_since=since)
        self.ask(needs.NodeRecords(since))
        return True

    def _is_true(self, it: Deletion) -> bool:
        """Whether the cause of a deletion that Slurm's list or the cached Kubernetes node shows is true live."""
        if it.kube_node_lost:
            return needs.is_yes(self.ask(needs.IsLost(it.pod.kube_node or "")))
        return needs.is_yes(self.ask(needs.IsAbsent(it.pod.slurm_node))) and drain.has_no_job(it.pod, self.slurm)

    def _remember_failures(self, plan: PodPlan) -> None:
        late = {it.pod.uid for it in plan.delete if it.event is EventReason.SLURM_NODE_NOT_REGISTERED}
        found, wait = failures(
            self.memory.failures, self.observed.pods, self.now, unregistered=late, absent=self.memory.absent_since
        )
        self.memory = replace(self.memory, failures=found)
        self.hints.append(wait)

    def _plan_records(self) -> node_records.RecordPlan:
        slurm, retained = self.observed.slurm, self.desired.nodeset.spec.node_records == "Keep"
        if not self.observed.connected or slurm.problem is not None or retained:
            return node_records.RecordPlan()
        before, orphans = self.memory.orphaned_since, self.observed.orphans
        since = {node.name: before.get(node.name, self.now) for node in orphans}
        self.memory = replace(self.memory, orphaned_since=since)
        named = None
        if node_records.due(orphans, since, self.now):
            answers = [self.ask(it) for it in needs.NAMES]
            known = all(isinstance(it, needs.Known) for it in answers)
            named = self.slurm.named if known and not self.slurm.jobs_problem else None
        return node_records.orphaned_records(orphans, since, self.now, named)

    def orphaned_records(self) -> tuple[list[Action], float | None]:
        """What to do about records without a pod, and seconds until it is done; None when it is."""
        plan, orphans = self.records, self.observed.orphans
        self.hints.append(node_records.KEPT_SECONDS if plan.kept else None)
        due = {*plan.delete, *(name for names in plan.down.values() for name in names)}
        if due and self.stale:
            return [], 1.0
        pods = {node.name: facts.pod for node in orphans if node.name in due and (facts := owners.pod_of(node))}
        chosen = sorted(due)[:MAX_LOOKUPS]
        free = {name for name in chosen if not pods.get(name) or needs.is_no(self.ask(needs.IsHidden(pods[name])))}
        found: list[Action] = []
        for reason, names in plan.down.items():
            if some := tuple(name for name in names if name in free):
                found.append(actions.SetDown(reason, some))
        if some := tuple(name for name in plan.delete if name in free):
            found.append(actions.DeleteRecords(some))
        return found, 1.0 if len(free) < len(due) else plan.look_again

    def removed_partitions(self) -> tuple[tuple[partitions.BlockedPartition, ...], tuple[str, ...]]:
        """The removed partitions that have to stay in slurm.conf, and status.partitions."""
        nodeset, deleted = self.desired.nodeset, self.pods_gone
        own = {nodeset.slurm_name} if nodeset.spec.partition.enabled else set()
        current = set() if deleted else own
        removed = tuple(sorted({*nodeset.status.partitions, *(own if deleted else ())} - current))
        unbound = self.desired.pods.forced or (self.desired.pods.deleting and self.observed.controller_deleted)
        if not removed or unbound or nodeset.spec.force_removal:
            self.memory = replace(self.memory, removed_partitions=(), closed_since={})
            return (), tuple(sorted(current))
        blocked = self._blocked(removed)
        return blocked, tuple(sorted(current | {it.partition for it in blocked}))

    def _blocked(self, removed: tuple[str, ...]) -> tuple[partitions.BlockedPartition, ...]:
        def all_of(why: str, look_again: float = partitions.LOOK_AGAIN) -> tuple[partitions.BlockedPartition, ...]:
            return tuple(partitions.BlockedPartition(name, why, look_again) for name in removed)

        if not self.observed.connected or self.observed.slurm.problem is not None:
            return all_of(f"its jobs are unknown: {self.observed.slurm.problem}")
        if self.memory.removed_partitions != removed:
            # Earlier answers don't show what slurmctld has read since these are to be removed.
            self.memory = replace(self.memory, removed_partitions=removed, removed_since=self.observed.clock)
        found = self.ask(needs.Partitions(self.memory.removed_since))
        if isinstance(found, needs.Known):
            opened = {it.name for it in found.value if not partitions.is_closed(it)}
            before = self.memory.closed_since
            closed = {name: before.get(name, found.at) for name in removed if name not in opened}
            self.memory = replace(self.memory, closed_since=closed)
            jobs = self.ask(needs.Jobs())
            if isinstance(jobs, needs.Known):
                if any(at > jobs.value.asked_at for at in closed.values()):
                    # Until it was closed it accepted jobs that an older list lacks.
                    return all_of(partitions.BEING_READ, 1.0)
                return partitions.blocked(removed, found.value, jobs.value.jobs, self.now)
            found = jobs
        failed = isinstance(found, needs.Failed)
        return all_of(f"its jobs can't be read: {found.why}" if failed else partitions.BEING_READ)

    def maintenance_step(self) -> maintenance.Outcome:
        """The next step towards the reservation of ScheduledUpdate, or away from it."""
        nodeset, wanted = self.desired.nodeset, self.desired.pods
        scheduled = maintenance.is_scheduled(nodeset) and wanted.replicas > 0 and not wanted.deleting
        if not scheduled and maintenance.FINALIZER not in nodeset.metadata.finalizers:
            return maintenance.Outcome()
        name = maintenance.name_of(nodeset.name)
        slurm = self.observed.slurm
        if not self.observed.connected or slurm.problem is not None:
            leaving = self.may_abandon_records and self.observed.controller_deleted
            if wanted.deleting and (not self.observed.connected or wanted.forced or leaving):
                return maintenance.Outcome(actions=(actions.RemoveReservation(name, reachable=False),))
            return maintenance.unknown(f"what becomes of the reservation is unknown: {slurm.problem}")
        if not scheduled:
            return maintenance.Outcome(actions=(actions.RemoveReservation(name),))
        answer = self.ask(needs.Reservations())
        if not isinstance(answer, needs.Known):
            return maintenance.failed(answer, self.observed.conditions)
        nodes = frozenset(pod.slurm_node for pod in self.observed.pods if pod.slurm_node in slurm.nodes)
        return maintenance.outcome(nodeset, nodes, answer.value, self.observed.conditions, self.now)

    def power_step(self) -> power.PowerPlan:
        """What to do about the node records of Slurm's power saving."""
        found = power.plan(self.desired, self.observed, self.memory, self.now)
        if found.needs_jobs:
            self.ask(needs.Jobs())
        if found.planned is not None:
            self.memory = replace(self.memory, planned_starts=found.planned, planned_at=self.now)
        return found

    def release(
        self, blocked: Iterable[object], reservation: maintenance.Outcome, records_left: float | None
    ) -> tuple[tuple[Action, ...], float | None]:
        """The last step of a NodeSet that is being deleted, or seconds until it may be due."""
        if not self.pods_gone or not self.observed.settled:
            return (), records_left
        may_have_records = self.observed.connected or not self.observed.controller_deleted
        left = 1.0 if may_have_records and self.observed.slurm.problem is not None else records_left
        if self.may_abandon_records or self.desired.nodeset.spec.node_records == "Keep":
            left = None
        # What is still to be deleted in this pass is no reason to wait for another.
        if any(True for _ in blocked) or reservation.look_again is not None or left is not None:
            return (), left
        return (actions.ReleaseNodeSet(),), None

    def time_alone(self) -> float | None:
        """Seconds until time alone changes a decision for the pods or the NodeSet."""
        found: list[float] = []
        observed, wanted = self.observed, self.desired.pods
        if any(pod.ready and not pod.available for pod in observed.pods):
            found.append(self.desired.nodeset.spec.min_ready_seconds + 1.0)
        if observed.pods and wanted.forced:
            found.append(lost.OVERDUE_SECONDS)
        deadline = deletion_deadline(self.desired.nodeset)
        if deadline is not None and deadline > self.now:
            found.append(deadline - self.now)
        return min(found, default=None)

    def pod_actions(self, plan: PodPlan) -> list[Action]:
        """Drains, then deletions, then creations. Nothing depends on the annotations, so nothing waits for them."""
        found: list[Action] = [actions.Drain(reason, names) for reason, names in plan.drain.items()]
        if plan.undrain:
            found.append(actions.Undrain(plan.undrain))
        if plan.resume:
            found.append(actions.Resume(plan.resume))
        changed = claims.changes(self.desired.nodeset, self.observed.claims, self.observed.pods, plan)
        if self.observed.settled:
            before = changed.before_deletion
            found += [actions.DeletePod(it, before.get(it.pod.uid, ())) for it in plan.delete]
            found += pods.creations(self.desired, plan, self.memory.failures, self.now)
        many = len(plan.cordon) >= pods.SHARED_REASON_PODS
        found += [
            actions.Cordon(pod) for pod in plan.cordon if not (many and drain.is_deleted_soon(pod, self.observed.slurm))
        ]
        found += [actions.Uncordon(pod) for pod in plan.uncordon]
        found += changed.others
        return found

    def prunes(self) -> list[Action]:
        """Stored revisions beyond spec.revisionHistoryLimit."""
        stored, limit = self.observed.revisions, self.desired.nodeset.spec.revision_history_limit
        if not self.desired.creatable or not self.observed.settled or len(stored) <= limit:
            return []
        in_use = {pod.revision for pod in self.observed.pods}
        surplus = revisions.surplus(stored, self.desired.pods.revision, in_use, limit)
        return [actions.PruneRevision(name) for name in surplus]
