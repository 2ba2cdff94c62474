"""The pending jobs in the order in which Slurm takes them, bundled by what they request.

`Queue` looks only at the jobs that changed, so that one job among 50,000 costs little. It has no
clock: `look` is given the time, at which jobs with a later begin time begin to count.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING

from sidecars.autoscaling.needs import Needs, Unreadable, read, rounded
from sidecars.autoscaling.order import Entry, Order
from sidecars.autoscaling.records import Excluded, Settings
from sidecars.policy.reasons.autoscaling import NotCounted
from sidecars.slurm.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecars.autoscaling.order import Bundle, Key, Run
    from sidecars.slurm.records import JobRequest, Pending, QueuedJob, QueuedJobs

MANY = 4
"""All jobs are sorted again when more than one in so many has changed."""
MOST_REQUESTS = 10_000
"""So many requests of jobs that are gone are remembered."""
SHOWN = 10
"""Ids of jobs in a message."""
NO_SETTINGS = Settings()
"""Those of a cluster whose partitions are all alike."""

_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?::([0-9]{1,9}))?")
_STARTS = frozenset(
    {
        "None",
        "",
        "Priority",
        "Resources",
        "NodeDown",
        "ReqNodeNotAvail",
        "SchedDefer",
        "PartitionConfig",
    }
)
"""Slurm's reasons of jobs that more nodes may start. PartitionConfig is that of a partition with
too few nodes.
"""
_REASONS = {
    "JobHeldAdmin": NotCounted.NOT_RELEASED,
    "JobHeldUser": NotCounted.NOT_RELEASED,
    "JobHoldMaxRequeue": NotCounted.NOT_RELEASED,
    "Dependency": NotCounted.DEPENDENCY,
    "DependencyNeverSatisfied": NotCounted.DEPENDENCY_NEVER_SATISFIED,
    "BeginTime": NotCounted.BEGIN_TIME,
    "Licenses": NotCounted.LICENSES,
    "PartitionDown": NotCounted.PARTITION,
    "PartitionInactive": NotCounted.PARTITION,
    "PartitionNodeLimit": NotCounted.PARTITION,
    "PartitionTimeLimit": NotCounted.PARTITION,
    "Reservation": NotCounted.RESERVATION,
    "ReservationDeleted": NotCounted.RESERVATION,
    "ReservationInvalid": NotCounted.RESERVATION,
    "JobArrayTaskLimit": NotCounted.ARRAY_LIMIT,
    "AccountingPolicy": NotCounted.LIMIT,
    "AccountNotAllowed": NotCounted.LIMIT,
    "AssociationJobLimit": NotCounted.LIMIT,
    "AssociationResourceLimit": NotCounted.LIMIT,
    "AssociationTimeLimit": NotCounted.LIMIT,
}
_HAS_CPUS = frozenset({"RUNNING", "COMPLETING"})
_LIMITS = ("QOS", "Assoc", "Max", "InvalidAccount", "InvalidQOS")


_Group = tuple["JobRequest", str, str, str]


@dataclass(frozen=True, slots=True)
class Look:
    """The queue at a time."""

    runs: tuple[Run, ...]
    excluded: tuple[Excluded, ...]


class Queue:
    """The pending jobs of a Slurm cluster with these settings.

    `exclusive_known`: whether the jobs' records show which are exclusive.
    """

    def __init__(
        self,
        jobs: Iterable[QueuedJob] = (),
        settings: Settings = NO_SETTINGS,
        *,
        exclusive_known: bool = True,
    ) -> None:
        self._settings = settings
        self._exclusive_known = exclusive_known
        self._last: tuple[QueuedJob, ...] = ()
        """All jobs as they were replaced last; () after an update."""
        self._listed: dict[int, QueuedJob] = {}
        """All jobs."""
        self._jobs: dict[int, QueuedJob] = {}
        """The pending ones, and tasks of arrays with resources."""
        self._needs: dict[tuple[JobRequest, int, str], Needs | Unreadable] = {}
        self._by_user = "USER" in settings.exclusive.values()
        """Whether a job may exclude other users from its nodes."""
        self._running: Counter[int] = Counter()
        """Tasks with resources, by array."""
        self._arrays: dict[int, set[int]] = {}
        """Pending records, by array."""
        self._components: dict[int, set[int]] = {}
        """Pending components, by leader."""
        self._order = Order()
        self._limited: dict[_Group, dict[int, str]] = {}
        """Jobs for which Slurm names a limit, and its words."""
        self._avoided: Mapping[JobRequest, frozenset[str]] = {}
        """See `avoid`."""
        self._refused: Mapping[JobRequest, str] = {}
        """See `refuse`."""
        self._in_use: dict[int, tuple[str, tuple[str, ...], int]] = {}
        """Running jobs of partitions with MaxCPUsPerNode: partition, nodes, CPUs of each."""
        self._keys: dict[int, Key] = {}
        """Of the jobs that count."""
        self._excluded: dict[tuple[NotCounted, str], dict[int, int]] = {}
        """The tasks of the jobs that don't."""
        self._reports: dict[tuple[NotCounted, str], Excluded] = {}
        """Those of `_excluded` that haven't changed since."""
        self._why: dict[int, tuple[NotCounted, str]] = {}
        self._later: dict[int, int] = {}
        """Begin times that were in the future."""
        self._now = 0.0
        self._timed = False
        self.update(jobs)

    @property
    def worn(self) -> bool:
        """Whether so many requests of former jobs are remembered that a new queue, and a new
        planner, are due.
        """
        return len(self._needs) > MOST_REQUESTS + 2 * len(self._jobs)

    def replace(self, listed: QueuedJobs) -> None:
        """Have all jobs as in an answer of Slurm's. Cheap if the unchanged ones are the same
        objects (`get_queue`).
        """
        former, now = self._last, listed.jobs
        # Without a step of the interpreter for each of the many that are the same objects.
        differ = list(compress(range(len(now)), map(is_not, now, former)))
        new = [*(now[at] for at in differ), *now[len(former) :]]
        known = self._listed
        gone = (
            {it.job_id for it in (*(former[at] for at in differ), *former[len(now) :])}
            if former
            else set(known)
        )
        changed = [it for it in new if (old := known.get(it.job_id)) is not it and old != it]
        if listed.exclusive_known != self._exclusive_known:
            self._exclusive_known = listed.exclusive_known
            self._needs.clear()
            changed = list(now)
        self.update(changed, gone.difference([it.job_id for it in new]))
        self._last = now

    def update(self, changed: Iterable[QueuedJob], removed: Iterable[int] = ()) -> None:
        """Take over jobs that are new or changed, and forget others."""
        affected: set[int] = set()
        self._last, limited = (), set(self._limited)
        changed = tuple(changed)
        for job_id in removed:
            self._listed.pop(job_id, None)
            self._in_use.pop(job_id, None)
            affected |= self._take(job_id)
        for job in changed:
            self._listed[job.job_id] = job
            self._count(job)
            affected |= self._take(job.job_id)
            affected |= self._put(job)
        by_user = self._by_user
        self._by_user = by_user or any(map(_excludes_users, changed))
        if (
            self._by_user is not by_user
            or len(affected) > len(self._keys) // MANY
            or limited != self._limited.keys()
        ):
            self._sort_all()
            return
        for job_id in affected:
            self._sort_out(job_id)
            if job_id in self._jobs:
                self._sort_in(job_id)

    def look(self, now: float, *, timed: bool = False) -> Look:
        """Return the runs in Slurm's order, and the jobs that don't count. `timed`: the time limits
        of jobs matter.
        """
        self._now = max(self._now, now)
        if timed != self._timed:
            self._timed = timed
            self._sort_all()
        for job_id in [job_id for job_id, begin in self._later.items() if begin <= self._now]:
            self._sort_out(job_id)
            self._sort_in(job_id)
        for why, jobs in self._excluded.items():
            if why not in self._reports:
                self._reports[why] = Excluded(
                    *why, sum(jobs.values()), tuple(nsmallest(SHOWN, jobs))
                )
        return Look(self._order.runs(), tuple(self._reports.values()))

    @property
    def licensed(self) -> bool:
        """Whether a job may request licenses."""
        return any(isinstance(it, Needs) and it.licenses for it in self._needs.values())

    def pending(self, job_id: int) -> Pending | None:
        """Return why the job waits, None for one that doesn't."""
        job = self._jobs.get(job_id)
        return None if job is None else job.pending

    def requests(self) -> frozenset[JobRequest]:
        """Return what the pending jobs request."""
        return frozenset(it.pending.request for it in self._jobs.values() if it.pending is not None)

    def refuse(self, requests: Mapping[JobRequest, str]) -> None:
        """Don't count jobs with these requests, for Slurm's reason, and those with others again."""
        if requests != self._refused:
            self._refused = dict(requests)
            self._sort_all()

    def avoid(self, nodesets: Mapping[JobRequest, frozenset[str]]) -> None:
        """Let these NodeSets get no node for jobs with these requests."""
        if nodesets != self._avoided:
            self._avoided = dict(nodesets)
            self._needs.clear()
            self._sort_all()

    def cpus_in_use(self) -> Mapping[str, Mapping[str, int]]:
        """Return the CPUs that running jobs of partitions with MaxCPUsPerNode have, by node and
        partition.
        """
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for partition, nodes, cpus in self._in_use.values():
            for node in nodes:
                found[node][partition] += cpus
        return found

    # --- one job

    def _count(self, job: QueuedJob) -> None:
        self._in_use.pop(job.job_id, None)
        if job.partition in self._settings.max_cpus_per_node and job.states & _HAS_CPUS:
            try:
                nodes = tuple(job.node_names())
            except Malformed:
                nodes = ()
            if nodes:
                self._in_use[job.job_id] = job.partition, nodes, -(-job.cpus // len(nodes))

    def _put(self, job: QueuedJob) -> set[int]:
        """Add a record; the ids of those whose place depends on it."""
        pending = job.pending
        if pending is None:
            if job.array_job_id and job.states & {"RUNNING", "SUSPENDED", "COMPLETING"}:
                self._jobs[job.job_id] = job
                self._running[job.array_job_id] += 1
                return set(self._arrays.get(job.array_job_id, ()))
            return set()
        self._jobs[job.job_id] = job
        if _is_limit(pending.reason):
            self._limited.setdefault(_group(job, pending), {})[job.job_id] = pending.reason
        if pending.array_max_running:
            self._arrays.setdefault(job.array_job_id, set()).add(job.job_id)
        if pending.het_job_id:
            self._components.setdefault(pending.het_job_id, set()).add(job.job_id)
            return set(self._components[pending.het_job_id])
        return {job.job_id}

    def _take(self, job_id: int) -> set[int]:
        """Forget a record; the ids of those whose place depends on it, and its own."""
        job = self._jobs.pop(job_id, None)
        affected = {job_id}
        if job is None:
            return affected
        if job.pending is None:
            self._running[job.array_job_id] -= 1
            if not self._running[job.array_job_id]:
                del self._running[job.array_job_id]
            return affected | self._arrays.get(job.array_job_id, set())
        if _is_limit(job.pending.reason):
            group = _group(job, job.pending)
            self._limited[group].pop(job_id)
            if not self._limited[group]:
                del self._limited[group]
        _leave(self._arrays, job.array_job_id, job_id)
        return affected | _leave(self._components, job.pending.het_job_id, job_id)

    def _sort_all(self) -> None:
        self._keys.clear()
        self._excluded.clear()
        self._reports.clear()
        self._why.clear()
        self._later.clear()
        self._order = Order(filter(None, map(self._entry, self._jobs)))

    def _sort_out(self, job_id: int) -> None:
        key = self._keys.pop(job_id, None)
        if key is not None:
            self._order.remove(key)
        why = self._why.pop(job_id, None)
        if why is not None:
            jobs = self._excluded[why]
            del jobs[job_id]
            if not jobs:
                del self._excluded[why]
            self._reports.pop(why, None)
        self._later.pop(job_id, None)

    def _sort_in(self, job_id: int) -> None:
        entry = self._entry(job_id)
        if entry is not None:
            self._order.add(entry)

    def _entry(self, job_id: int) -> Entry | None:
        """Return the job's place in the order, or None for one that doesn't count."""
        job = self._jobs[job_id]
        pending = job.pending
        if pending is None:
            return None
        count = index_count(pending.array_tasks) or 1
        found = self._bundle(job)
        if isinstance(found, Unreadable):
            self._exclude(job_id, found.reason, found.detail, count)
            return None
        if pending.array_max_running:
            free = max(0, pending.array_max_running - self._running[job.array_job_id])
            if free < count:
                self._exclude(
                    job_id, NotCounted.ARRAY_LIMIT, f"%{pending.array_max_running}", count - free
                )
                count = free
        if not count or not found:
            return None
        tier = max(
            (self._settings.tiers.get(name, 1) for needs in found for name in needs.partitions),
            default=1,
        )
        key = (-tier, -pending.priority, job.submit_time, job_id)
        self._keys[job_id] = key
        return Entry(key, found, count)

    def _exclude(self, job_id: int, reason: NotCounted, detail: str, count: int) -> None:
        self._why[job_id] = reason, detail
        self._excluded.setdefault((reason, detail), {})[job_id] = count
        self._reports.pop((reason, detail), None)

    def _bundle(self, job: QueuedJob) -> Bundle | Unreadable:
        """Return what the job needs, () for a component that its leader counts."""
        own = self._needs_of(job)
        if isinstance(own, Unreadable):
            return own
        leader = job.pending.het_job_id if job.pending else 0
        if not leader:
            return (own,)
        parts = sorted(self._components[leader])
        if job.pending is not None and len(parts) < index_count(job.pending.het_job_ids):
            return Unreadable(NotCounted.HET_JOB_PART_MISSING, f"of job {leader}")
        found = [self._needs_of(self._jobs[part]) for part in parts]
        needs = tuple(it for it in found if isinstance(it, Needs))
        if len(needs) < len(found):
            return Unreadable(NotCounted.HET_JOB_PART_MISSING, f"of job {leader}")
        return needs if job.job_id == leader else ()

    def _needs_of(self, job: QueuedJob) -> Needs | Unreadable:
        pending = job.pending
        if pending is None:
            return Unreadable(NotCounted.HET_JOB_PART_MISSING, "")
        why = self._waits_for(job.job_id, pending)
        if why is not None:
            return why
        # Slurm tests limits only of jobs before which none waits.
        if pending.reason == "Priority" and self._limited:
            limits = self._limited.get(_group(job, pending))
            if limits is not None:
                return Unreadable(NotCounted.LIMIT, next(iter(limits.values())))
        if self._refused and (refused := self._refused.get(pending.request)) is not None:
            return Unreadable(NotCounted.NOT_STARTED, refused)
        minutes = rounded(job.time_limit) if self._timed else 0
        key = pending.request, minutes, job.user_name if self._by_user else ""
        found = self._needs.get(key)
        if found is None:
            found = read(
                pending.request,
                self._settings,
                minutes=minutes,
                exclusive_known=self._exclusive_known,
                avoid=self._avoided.get(pending.request, frozenset()),
                user=key[-1],
            )
            self._needs[key] = found
        return found

    def _may_use(self, request: JobRequest, partition: str) -> bool:
        """Return whether the partition allows the number of nodes."""
        least = self._settings.min_nodes.get(partition, 0)
        most = self._settings.max_nodes.get(partition, request.min_nodes)
        return request.min_nodes <= most and least <= (request.max_nodes or least)

    def _waits_for(self, job_id: int, pending: Pending) -> Unreadable | None:
        """Return why no node starts the job, whatever it requests."""
        reason, request = pending.reason, pending.request
        if request.external:
            return Unreadable(NotCounted.EXTERNAL, "")
        if pending.priority == 0 or _REASONS.get(reason) is NotCounted.NOT_RELEASED:
            return Unreadable(NotCounted.NOT_RELEASED, reason)
        if pending.eligible_time > self._now:
            self._later[job_id] = pending.eligible_time
            return Unreadable(NotCounted.BEGIN_TIME, "")
        if pending.dependency:
            never = reason == "DependencyNeverSatisfied"
            return Unreadable(
                NotCounted.DEPENDENCY_NEVER_SATISFIED if never else NotCounted.DEPENDENCY, ""
            )
        if request.reservation:
            return Unreadable(NotCounted.RESERVATION, request.reservation)
        if request.required_nodes:
            return Unreadable(NotCounted.NAMED_NODES, request.required_nodes)
        # A begin time that has come, and a limit of the array, are counted here: Slurm's word may
        # be old.
        if reason in _STARTS or reason in ("BeginTime", "JobArrayTaskLimit"):
            return None
        # Slurm's reason for more nodes than MaxNodes, and also for more than the partition has at
        # present.
        if reason == "PartitionNodeLimit" and any(
            map(partial(self._may_use, request), request.partitions)
        ):
            return None
        found = NotCounted.LIMIT if _is_limit(reason) else _REASONS.get(reason, NotCounted.OTHER)
        return Unreadable(found, reason)


def waits_for_nodes(reason: str) -> bool:
    """Return whether nodes that are free, or more of them, may start a job with Slurm's reason."""
    return reason in _STARTS


def _excludes_users(job: QueuedJob) -> bool:
    return job.pending is not None and "user" in job.pending.request.shared


def _is_limit(reason: str) -> bool:
    known = _REASONS.get(reason)
    return known is NotCounted.LIMIT if known is not None else reason.startswith(_LIMITS)


def _group(job: QueuedJob, pending: Pending) -> _Group:
    """Return the group of jobs to which the same limits apply, and in the same way."""
    return pending.request, job.user_name, pending.account, pending.qos


def _leave(groups: dict[int, set[int]], name: int, member: int) -> set[int]:
    """Remove a member from its group; the others. A group without members is forgotten."""
    rest = groups.get(name, set())
    rest.discard(member)
    if not rest:
        groups.pop(name, None)
    return rest


def index_count(text: str) -> int:
    """Count the numbers that a list such as `1-9:2,20` stands for, 0 for "".

    What can't be read counts as one number. Slurm may cut a list off with `...`: the numbers before
    it count.
    """
    count = 0
    for part in filter(None, text.split(",")):
        found = _RANGE.fullmatch(part)
        if found is None:
            count += part != "..."
            continue
        first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
        count += max(1, (last - first) // max(1, step) + 1)
    return count
