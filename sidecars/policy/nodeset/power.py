"""Slurm's power saving of a NodeSet: which ordinals need a pod, and what becomes of the node
records.

The state of a node record is Slurm's request, and all that is decided here follows from it: a node
that is POWERING_UP or up needs its pod, one that is POWERING_DOWN or POWERED_DOWN doesn't. So no
request is lost while nobody looks.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sidecars.contract import reasons, reservations
from sidecars.contract.reasons import Owner
from sidecars.policy.conditions import Condition
from sidecars.policy.node_autoscalers import ASK_SECONDS, Answer, gives_up_at
from sidecars.policy.nodeset import actions
from sidecars.policy.nodeset.needs import Jobs, Known
from sidecars.policy.nodeset.parts import Part, Questions
from sidecars.policy.reasons import PowerSaving
from sidecars.slurm import states, versions
from sidecars.slurm.errors import Malformed
from sidecars.slurm.owners import has_less_than_its_record, is_free, owner_of
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import ResourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sidecars.policy.nodeset.actions import Action
    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.records import Desired, Observed, SlurmView, WorkerPod
    from sidecars.slurm.records import Node
    from sidecars.workloads.resources import NodeSet

STALE_SECONDS = 30.0
"""A pod that has been ready for so long while its node is POWERING_UP was started before Slurm's
request.
"""

JOBS_AGAIN = 1.0
"""Seconds until the jobs, which could not be read, are read again."""

PLAN_SECONDS = 30.0
"""How often the planned starts of jobs are read, while a powered-down node is planned for one: as
often as the backfill scheduler plans (bf_interval).
"""

CLOSED_SECONDS = 15.0
"""Within so many seconds the records of nodes show that they are closed."""

REFUSED_SECONDS = 60.0
"""A record that Slurm has refused is created again so many seconds later."""

_NAMED = 3
"""Nodes that a message names."""


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """What to do about the node records. All are names of Slurm nodes, in the order of their
    ordinals.
    """

    create: Mapping[str, str] = field(default_factory=dict)
    """Records to be created, with the rest of their line in slurm.conf."""
    replace: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the line to be created: records of powered-down nodes that are out of date, with the line
    that each shows.
    """
    start: tuple[str, ...] = ()
    """Nodes that have to run whether or not Slurm needs them, or that a job is planned to start on
    soon.
    """
    stop: tuple[str, ...] = ()
    """Nodes that are being started and whose pod can't start."""
    jobs: tuple[int, ...] = ()
    """The jobs that wait for these."""
    close: actions.Close | None = None
    """The nodes to be closed, so that Slurm uses other NodeSets."""
    because: str = ""
    """Why pods can't start."""
    reopen: str = ""
    """The reservation to be deleted, because the NodeSet has no such nodes from now on."""
    open: tuple[str, ...] = ()
    """Powered-down nodes with a drain by which another version has closed them, or with the reason
    of a drain that Slurm ended.
    """
    resume: tuple[str, ...] = ()
    """Powered-down nodes that are DOWN because they didn't start in time, or for a former pod."""
    release: tuple[str, ...] = ()
    """Nodes without work that have been idle for long enough, or whose records are to be
    replaced.
    """
    condition: Condition | None = None
    needs_jobs: bool = False
    """What it would start or stop depends on the jobs, which have to be read first."""
    planned: Mapping[str, float] | None = None
    """When jobs are planned to start on the nodes; None if that wasn't read."""
    look_again: float | None = None
    """Seconds until time alone may have changed this."""


def with_offer(nodeset: NodeSet, pods: Iterable[WorkerPod], slurm: SlurmView) -> NodeSet:
    """Return the NodeSet with status.nodeConf as its workers have registered, if one has registered
    a record of its own.

    If the status was lost, the records of power saving have it.
    """
    if not nodeset.spec.power_saving.enabled or slurm.problem is not None:
        return nodeset
    nodes = (slurm.nodes.get(pod.slurm_node) for pod in pods if pod.ready and not pod.terminating)
    found = next((it for node in nodes if node is not None and (it := render.registered(node))), "")
    if not found and not nodeset.status.node_conf and not nodeset.spec.power_saving.node:
        known = (slurm.nodes.get(name) for name in slots(nodeset))
        found = next(
            (
                render.offered(it)
                for it in known
                if it is not None and "CLOUD" in it.states and it.cpus
            ),
            "",
        )
    return replace(nodeset, status=replace(nodeset.status, node_conf=found)) if found else nodeset


def line(nodeset: NodeSet) -> tuple[str, str]:
    """Compose the line of the node records, without NodeName; "" while it is unknown what a worker
    offers. Return also why it can't be composed.
    """
    try:
        return render.cloud_record(nodeset), ""
    except ResourceError as error:
        return "", str(error)


def slots(nodeset: NodeSet) -> dict[str, int]:
    """Return the Slurm nodes of a NodeSet with power saving, by name, with their ordinals."""
    return {render.hostname(nodeset, ordinal): ordinal for ordinal in range(nodeset.spec.replicas)}


def ordinals(
    nodeset: NodeSet,
    pods: Iterable[WorkerPod],
    slurm: SlurmView,
    *,
    offered: bool,
    problem: str = "",
) -> frozenset[int]:
    """Return the ordinals that need a pod. While Slurm is unknown these are the ones that have one.

    `offered`: it is known what a worker offers. Otherwise one worker registers to show it. With a
    `problem` of what is declared none does, and workers stay that have a record of their own.
    """
    numbered = [pod for pod in pods if pod.mode == "StatefulSet" and pod.ordinal >= 0]
    if slurm.problem is not None:
        return frozenset(pod.ordinal for pod in numbered)
    named = slots(nodeset)
    found = {0} if named and not offered and not problem else set[int]()
    for pod in numbered:
        node = slurm.nodes.get(pod.slurm_node)
        # Of a running slurmd without a record, it isn't known what it does: `lost` decides.
        unknown = pod.started and node is None
        own = node is not None and "CLOUD" not in node.states
        if pod.slurm_node in named and (unknown or (problem and own)):
            found.add(pod.ordinal)
    for name, ordinal in named.items():
        node = slurm.nodes.get(name)
        if node is not None and "CLOUD" in node.states and not states.is_powered_down(node.states):
            found.add(ordinal)
    # From `replicas` on, a job that waits for its node would be lost. When it has begun, the pod is
    # drained.
    awaited = (
        it
        for it in slurm.nodes.values()
        if states.is_awaited(it.states) and nodeset.metadata.uid in it.extra
    )
    found |= {it for node in awaited if (it := render.ordinal_of(nodeset, node.name)) is not None}
    return frozenset(found)


def retained(nodeset: NodeSet) -> Callable[[Node], bool]:
    """Return whether a record without a pod is that of a node which Slurm has powered down, or is
    powering up.
    """
    saves = nodeset.spec.power_saving.enabled and not nodeset.metadata.deletion_timestamp
    named = slots(nodeset) if saves else {}
    kept, awaited = states.is_under_power_saving, states.is_awaited
    return lambda node: kept(node.states) if node.name in named else saves and awaited(node.states)


def part(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Decide about the node records of Slurm's power saving."""
    questions = Questions(observed.answers)
    found = plan(desired, observed, memory, now)
    if found.needs_jobs:
        questions.ask(Jobs())
    if found.planned is not None:
        memory = dataclasses.replace(memory, planned_starts=found.planned, planned_at=now)
    if found.close is not None and found.because:
        memory = dataclasses.replace(memory, closed_at=now, closed_because=found.because)
    return Part(
        memory,
        actions=tuple(actions_of(found)),
        needs=questions.unanswered,
        look_again=found.look_again,
        report=lambda progress: dataclasses.replace(progress, power_saving=found.condition),
    )


def plan(desired: Desired, observed: Observed, memory: Memory, now: float) -> PowerPlan:
    """Plan what to do about the node records, nothing for a NodeSet without power saving, or that
    is being deleted.
    """
    if desired.pods.ordinals is None or desired.pods.deleting:
        return PowerPlan(reopen=_closing(desired.nodeset, observed.slurm))
    if observed.slurm.problem is not None:
        return PowerPlan(
            condition=Condition(
                "PowerSaving", "Unknown", PowerSaving.NO_ANSWER, observed.slurm.problem
            )
        )
    outdated = versions.too_old(observed.slurm.release, versions.POWER_SAVING, "power saving")
    if outdated:
        return PowerPlan(
            condition=Condition("PowerSaving", "False", PowerSaving.SLURM_TOO_OLD, outdated)
        )
    if desired.record_problem:
        condition = Condition("PowerSaving", "False", PowerSaving.INVALID, desired.record_problem)
        return dataclasses.replace(
            _Planner(desired, observed, memory, now).plan(), condition=condition
        )
    if not desired.record_line:
        message = (
            "no worker of this NodeSet has registered yet: one is started to show what workers "
            "offer"
        )
        return PowerPlan(
            condition=Condition("PowerSaving", "False", PowerSaving.FIRST_WORKER, message)
        )
    return _Planner(desired, observed, memory, now).plan()


def actions_of(plan: PowerPlan) -> list[Action]:
    """Return the actions of a plan, in the order in which they are to be applied."""
    lines: dict[str, list[str]] = {}
    for name, line in plan.create.items():
        lines.setdefault(line, []).append(name)
    found: list[Action] = [
        actions.CreateRecords(line, tuple(names)) for line, names in lines.items()
    ]
    if plan.reopen:
        found.append(actions.Reopen(plan.reopen))
    if plan.close and not plan.stop:
        found.append(plan.close)
    if plan.open:
        found.append(actions.Undrain(plan.open))
    if plan.resume:
        found.append(actions.Resume(plan.resume))
    if plan.stop:
        found.append(actions.PowerDown(plan.stop, plan.jobs, plan.because, plan.close))
    if plan.release:
        found.append(actions.PowerDownWhenIdle(plan.release))
    if plan.start:
        found.append(actions.PowerUp(plan.start))
    return [
        *found,
        *(actions.ReplaceRecords(line, former) for line, former in plan.replace.items()),
    ]


def _closing(nodeset: NodeSet, slurm: SlurmView) -> str:
    """Return the reservation that closes nodes of the NodeSet, as their records show it, "" for
    none.
    """
    name = reservations.closed_name(nodeset.slurm_name)
    known = () if slurm.problem is not None else slurm.nodes.values()
    return name if any(name in it.reservation.split(",") for it in known) else ""


class _Planner:
    def __init__(self, desired: Desired, observed: Observed, memory: Memory, now: float) -> None:
        self.closing = reservations.closed_name(desired.nodeset.slurm_name)
        self.reported = observed.conditions
        self.saving = desired.nodeset.spec.power_saving
        self.slots = slots(desired.nodeset)
        self.lines = dict.fromkeys(self.slots, desired.record_line) if desired.record_line else {}
        self.pods = {pod.slurm_node: pod for pod in observed.pods}
        self.slurm = observed.slurm
        self.jobs = observed.answers.get(Jobs())
        self.memory = memory
        self.now = now
        self.nodes = [
            it for name in self.slots if (it := self.slurm.nodes.get(name)) and "CLOUD" in it.states
        ]
        self.shown_closed = [
            it.name for it in self.slurm.nodes.values() if self.closing in it.reservation.split(",")
        ]
        self.settled = [it for it in self.nodes if it.name not in self.slurm.unsettled]
        self.waits: list[float] = []
        self.unread = False
        self.read: Mapping[str, float] | None = None
        self.refused = {
            line: why for line in set(self.lines.values()) if (why := self._refusal(line))
        }

    def plan(self) -> PowerPlan:
        off = [
            it
            for it in self.settled
            if states.is_powered_down(it.states) and "POWERED_DOWN" in it.states
        ]
        unused = [
            it
            for it in off
            if it.name not in self.pods and "IDLE" in it.states and not states.is_busy(it.states)
        ]
        stale, stuck = self._stale(), self._stuck()
        planned = self._planned()
        closed = bool(stuck) or self._is_closed()
        kept_closed = self.slots.keys() & set(self.shown_closed)
        jobs = self._waiting_jobs({*stale, *stuck})
        stop = tuple(it for it in (*stale, *stuck)) if jobs is not None else ()
        free = [it for it in unused if is_free(it) and not closed and not it.reservation]
        outdated: dict[str, dict[str, str]] = {}
        for node in free:
            if self._is_outdated(node):
                outdated.setdefault(self.lines[node.name], {})[node.name] = render.shown(node)
        replaced = {name for former in outdated.values() for name in former}
        wanted = [
            it.name
            for it in free
            if self.slots[it.name] < self.saving.min or self._starts_soon(it, planned)
        ]
        return PowerPlan(
            create={name: line for name, line in self.lines.items() if self._is_missing(name)},
            replace=outdated,
            start=tuple(name for name in wanted if name not in replaced),
            stop=stop,
            jobs=jobs or (),
            close=self._close(stuck) if stop or not stuck else None,
            because=next(iter(stuck.values()), ""),
            reopen=self.closing if self.shown_closed and not kept_closed else "",
            open=tuple(it.name for it in off if self._may_open(it)),
            resume=tuple(it.name for it in off if self._may_resume(it)),
            release=tuple(
                it.name for it in self.settled if self._may_release(it) or self._is_idle(it)
            ),
            condition=self._condition(stuck, closed=closed),
            needs_jobs=jobs is None or self.unread,
            planned=self.read,
            look_again=min(
                [*self.waits, *([JOBS_AGAIN] if jobs is None or self.unread else [])], default=None
            ),
        )

    def _is_missing(self, name: str) -> bool:
        return (
            name not in self.slurm.nodes
            and name not in self.pods
            and self.lines[name] not in self.refused
        )

    def _refusal(self, line: str) -> str:
        """Return how Slurm lately refused a record with this line, "" if it is to be tried."""
        at, why = self.memory.refused_records.get(line, (-math.inf, ""))
        return "" if self._is_over(at + REFUSED_SECONDS) else why

    def _is_outdated(self, node: Node) -> bool:
        line = self.lines.get(node.name)
        if (
            line is None
            or line in self.refused
            or self.memory.created_records.get(node.name) == line
        ):
            return False
        return not render.is_current(node, line)

    def _powering_up(self) -> list[tuple[Node, WorkerPod]]:
        starting = [
            it for it in self.settled if states.is_powering_up(it.states) and it.name in self.pods
        ]
        return [(it, self.pods[it.name]) for it in starting]

    def _stale(self) -> list[str]:
        """Return the nodes whose pod was started before Slurm asked for it."""
        found = []
        for node, pod in self._powering_up():
            if (
                pod.ready
                and pod.ready_since is not None
                and self._is_over(pod.ready_since + STALE_SECONDS)
            ):
                found.append(node.name)
        return found

    def _stuck(self) -> dict[str, str]:
        """Return the nodes whose pod finds no Kubernetes node or no image, with the reason."""
        found = {}
        wait = self.saving.capacity_wait_seconds or self.saving.start_seconds // 2
        for node, pod in self._powering_up():
            why = "" if pod.started or pod.terminating else pod.unscheduled or pod.no_image
            if not why:
                continue
            notice = pod.notice if pod.unscheduled else None
            if pod.unscheduled:
                # Nothing wakes this pass when a node autoscaler reports.
                self.waits.append(ASK_SECONDS)
            if self._is_over(gives_up_at(pod.created, wait, notice)):
                refused = notice is not None and notice.answer is Answer.REFUSED
                found[node.name] = (notice.text if notice and refused else "") or why
        return found

    def _planned(self) -> Mapping[str, float]:
        """Return when jobs are planned to start on the nodes, as far as that is known and
        counts.
        """
        planned = any(
            "PLANNED" in it.states and states.is_powered_down(it.states) for it in self.settled
        )
        if not self.saving.start_ahead_seconds or not planned:
            return {}
        if not self._is_over(self.memory.planned_at + PLAN_SECONDS):
            return self.memory.planned_starts
        self.unread = not isinstance(self.jobs, Known)
        found: dict[str, float] = {}
        try:
            for job in self.jobs.value.jobs if isinstance(self.jobs, Known) else ():
                if "PENDING" in job.states and job.scheduled_nodes and job.start_time:
                    for name in self.slots.keys() & job.planned_names():
                        found[name] = min(job.start_time, found.get(name, math.inf))
        except Malformed:
            self.unread = True
        if self.unread:
            return {}
        self.read = found
        self.waits.append(PLAN_SECONDS)
        return found

    def _starts_soon(self, node: Node, planned: Mapping[str, float]) -> bool:
        """Return whether a job is planned to start on the node within `startAheadSeconds`. Plans of
        the past don't count.
        """
        at = planned.get(node.name)
        if at is None or "PLANNED" not in node.states or at < self.now - PLAN_SECONDS:
            return False
        return self._is_over(at - self.saving.start_ahead_seconds)

    def _is_closed(self) -> bool:
        """Return whether the powered-down nodes are closed. For a moment their records don't show
        it.
        """
        return bool(self.shown_closed) or not self._is_over(self.memory.closed_at + CLOSED_SECONDS)

    def _close(self, stuck: Mapping[str, str]) -> actions.Close | None:
        """Return the nodes to be closed: with those that are `stuck`, all that are powered down.
        None if the present ones stay.

        One that is up, or is being started and isn't stuck, is left to its jobs. A record that is
        closed can't be deleted, so those beyond `replicas` are taken out.
        """
        if stuck:
            off = (it.name for it in self.nodes if states.is_powered_down(it.states))
            names = tuple(sorted({*stuck, *off}, key=self.slots.__getitem__))
            return actions.Close(
                self.closing, names, math.ceil(self.now) + self.saving.retry_seconds
            )
        kept = tuple(name for name in self.shown_closed if name in self.slots)
        changed = kept and len(kept) < len(self.shown_closed)
        return actions.Close(self.closing, kept) if changed else None

    def _why_closed(self) -> str:
        """Return why they are closed. The former condition shows it after a restart of the
        operator.
        """
        if self.memory.closed_because:
            return self.memory.closed_because
        found = next((it for it in self.reported if it.get("type") == "PowerSaving"), {})
        if found.get("reason") != PowerSaving.NO_CAPACITY:
            return f"reservation {self.closing}"
        return str(found.get("message", "")).partition(": ")[2]

    def _waiting_jobs(self, nodes: set[str]) -> tuple[int, ...] | None:
        """Return the jobs that wait for these nodes, or None while that is unknown."""
        if not nodes:
            return ()
        if not isinstance(self.jobs, Known):
            return None
        try:
            return tuple(
                job.job_id
                for job in self.jobs.value.jobs
                if "CONFIGURING" in job.states and not nodes.isdisjoint(job.node_names())
            )
        except Malformed:
            return None

    def _may_release(self, node: Node) -> bool:
        """Return whether the desired record would suit the worker that has less than the present
        one shows.
        """
        small = has_less_than_its_record(node) and states.is_drained(node.states)
        if not small or states.is_powered_down(node.states) or "POWER_DOWN" in node.states:
            return False
        return node.name in self.lines and render.would_suffice(node, self.lines[node.name])

    def _is_idle(self, node: Node) -> bool:
        """Return whether the node is idle and free for `idleSeconds`, and is none that always runs.

        One that Slurm plans for a job, that is reserved or drained, stays.
        """
        pod = self.pods.get(node.name)
        if pod is None or not node.last_busy or self.slots[node.name] < self.saving.min:
            return False
        unused = states.is_unused(node.states) and "NOT_RESPONDING" not in node.states
        if not unused or node.reservation or not is_free(node):
            return False
        # It has been up for as long, whatever the clock of slurmctld showed then.
        since = max(node.last_busy, pod.ready_since or self.now)
        return self._is_over(since + self.saving.idle_seconds)

    def _may_open(self, node: Node) -> bool:
        if node.reason.startswith(reasons.NO_CAPACITY):
            return True
        # Slurm ends a drain when it powers the node down, and keeps the reason. While a pod exists,
        # its own drain may come at any moment.
        drained = states.is_drain(node.states) or states.is_down(node.states)
        return owner_of(node) in reasons.OURS and not drained and node.name not in self.pods

    def _may_resume(self, node: Node) -> bool:
        if (
            not states.is_down(node.states)
            or node.name in self.pods
            or states.is_drain(node.states)
        ):
            return False
        owner = owner_of(node)
        if node.reason == reasons.RESUME_TIMEOUT and owner is Owner.SLURMCTLD:
            return self._is_over(node.reason_changed_at + self.saving.retry_seconds)
        return owner in reasons.OURS or owner is Owner.SLURMCTLD

    def _condition(self, stuck: Mapping[str, str], *, closed: bool) -> Condition:
        for line, why in self.refused.items():
            message = (
                f"slurmctld refused a node record with `{line}`, and its log has the cause: {why}"
            )
            return Condition("PowerSaving", "False", PowerSaving.INVALID, message)
        if closed:
            why = next(iter(stuck.values()), "") or self._why_closed()
            message = f"Slurm uses other NodeSets for {self.saving.retry_seconds} s: {why}"
            return Condition("PowerSaving", "False", PowerSaving.NO_CAPACITY, message)
        small = [
            it for it in self.nodes if has_less_than_its_record(it) and states.is_drain(it.states)
        ]
        if small:
            message = (
                f"slurmctld has drained {_named([it.name for it in small])}, whose workers offer "
                f"less than their records: {small[0].reason}; set spec.powerSaving.node to what "
                "the smallest worker offers"
            )
            return Condition("PowerSaving", "False", PowerSaving.WORKER_TOO_SMALL, message)
        late = [
            it.name
            for it in self.nodes
            if it.reason == reasons.RESUME_TIMEOUT and states.is_down(it.states)
        ]
        if late:
            message = (
                f"{_named(late)} did not register within {self.saving.start_seconds} s; "
                f"they are used again {self.saving.retry_seconds} s later"
            )
            return Condition("PowerSaving", "False", PowerSaving.RESUME_TIMEOUT, message)
        up = sum(1 for node in self.nodes if not states.is_powered_down(node.states))
        message = f"{up} of {len(self.slots)} Slurm nodes are powered up"
        return Condition("PowerSaving", "True", PowerSaving.FOLLOWING, message)

    def _is_over(self, at: float) -> bool:
        """Return whether that time has come. If not, another plan is due then."""
        if at <= self.now:
            return True
        self.waits.append(at - self.now)
        return False


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"Slurm nodes {', '.join(names[:_NAMED])}{more}"
