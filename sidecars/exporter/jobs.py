"""Samples of jobs: of all, by partition, user and account, and of single jobs. Pure.

Jobs are sorted into groups first, because tens of thousands of jobs differ in few ways.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from sidecars.autoscaling.queue import waits_for_nodes
from sidecars.contract.text import printable
from sidecars.exporter import compatible, families
from sidecars.exporter.families import Grouped
from sidecars.exporter.nodes import MEBIBYTE, UNRECOGNIZED
from sidecars.exporter.samples import Samples
from sidecars.slurm import gres
from sidecars.slurm.job_states import BASE_STATES, FLAGS
from sidecars.slurm.usage import JobUsage

AGES = (60, 600, 3600, 21_600, 86_400)
"""Seconds by which waiting jobs are counted."""

_HAS_RESOURCES = frozenset({"RUNNING", "SUSPENDED"})
_REASON = re.compile(r"[A-Za-z0-9_]{1,64}")
_MOST_REASONS = 400
_LONGEST_NAME = 128


class _Key(NamedTuple):
    """In what jobs of a group agree."""

    states: frozenset[str]
    reason: str
    released: bool
    partition: str
    user: str
    user_id: int
    account: str
    age: int
    """How many of `AGES` it has waited for."""


class _Group:
    """Sums over jobs that agree."""

    __slots__ = ("cpus", "gpus", "memory", "most_nodes", "oldest", "records", "tasks")

    def __init__(self) -> None:
        self.records = self.tasks = self.cpus = self.memory = self.most_nodes = self.oldest = 0
        self.gpus: Counter[str] = Counter()


class _Totals:
    """Sums over groups."""

    def __init__(self) -> None:
        self.records = self.cpus = self.memory = 0
        self.unreleased = self.pending_cpus = self.most_nodes = self.oldest = 0
        self.unreleased_records = 0
        self.states: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.record_words: Counter[str] = Counter()
        self.shown: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.older = [0] * len(AGES)
        self.gpus: Counter[str] = Counter()

    def add(self, key: _Key, group: _Group) -> None:
        """Add a group."""
        self.records += group.records
        self.cpus += group.cpus if not key.states.isdisjoint(_HAS_RESOURCES) else 0
        self.memory += group.memory
        self.gpus.update(group.gpus)
        self.states[base_state(key.states)] += group.tasks
        for word in key.states:
            self.words[word] += group.tasks
            self.record_words[word] += group.records
        self.shown[squeue_state(key.states)] += group.tasks
        if "PENDING" not in key.states:
            return
        self.reasons[key.reason] += group.tasks
        if not key.released:
            self.unreleased += group.tasks
            self.unreleased_records += group.records
            return
        self.pending_cpus += group.cpus
        self.most_nodes = max(self.most_nodes, group.most_nodes)
        if group.oldest and (not self.oldest or group.oldest < self.oldest):
            self.oldest = group.oldest
        for index in range(key.age):
            self.older[index] += group.tasks


def base_state(states: frozenset[str]) -> str:
    """Return the base state in lower case, or `unrecognized`."""
    found = states & BASE_STATES
    return min(found).lower() if found else UNRECOGNIZED


def squeue_state(states: frozenset[str]) -> str:
    """Return the state as `squeue` shows it in one word, for vpenso's names."""
    for word in ("COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED"):
        if word in states:
            return word.lower()
    return base_state(states)


def add_jobs(
    samples: Samples,
    jobs: Sequence[JobUsage],
    partitions: Iterable[str],
    *,
    now: float,
    most_jobs: int,
) -> int:
    """Add all samples of jobs; returns how many running and pending jobs got no series of their
    own.

    `partitions`: those that exist, so that one without jobs has zeros. `now` is in seconds since
    the epoch.
    """
    cluster = _Totals()
    by_partition = {name: _Totals() for name in partitions}
    by_user: dict[str, _Totals] = {}
    by_account: dict[str, _Totals] = {}
    ids: dict[str, int] = {}
    for key, group in _grouped(samples, jobs, now).items():
        cluster.add(key, group)
        for partition in filter(None, key.partition.split(",")):
            by_partition.setdefault(partition, _Totals()).add(key, group)
        by_user.setdefault(key.user, _Totals()).add(key, group)
        by_account.setdefault(key.account, _Totals()).add(key, group)
        ids[key.user] = key.user_id
        samples.unreadable += group.records * (base_state(key.states) == UNRECOGNIZED)
    _add_cluster(samples, cluster)
    for name, totals in by_partition.items():
        _add_partition(samples, name, totals)
    for name, totals in by_user.items():
        _add_grouped(samples, families.USER, "user", name, totals)
        _add_reference(samples, "user_jobs", totals, str(ids[name]), name)
    for name, totals in by_account.items():
        _add_grouped(samples, families.ACCOUNT, "account", name, totals)
        _add_reference(samples, "account_jobs", totals, name)
    return _add_single(samples, jobs, most_jobs) if samples.serves(families.JOB_INFO) else 0


def _grouped(samples: Samples, jobs: Sequence[JobUsage], now: float) -> dict[_Key, _Group]:
    groups: dict[_Key, _Group] = {}
    reasons: set[str] = set()
    for job in jobs:
        pending = "PENDING" in job.states
        since = job.eligible_time or job.submit_time
        waits = pending and waits_for_nodes(job.reason) and 0 < since <= now
        age = bisect_right(AGES, now - since) if waits else 0
        reason = _reason(job.reason, reasons) if pending else ""
        key = _Key(
            job.states,
            reason,
            job.released or not pending,
            job.partition,
            job.user,
            job.user_id,
            job.account,
            age,
        )
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group()
        group.records += 1
        group.tasks += job.tasks
        group.cpus += job.cpus * job.tasks
        group.most_nodes = max(group.most_nodes, job.node_count)
        if pending:
            if since and since <= now and (not group.oldest or since < group.oldest):
                group.oldest = since
        elif not job.states.isdisjoint(_HAS_RESOURCES):
            group.memory += job.memory
            for type_, count in _gpus_of(job, samples).items():
                group.gpus[type_] += count
    return groups


def _reason(reason: str, seen: set[str]) -> str:
    if not _REASON.fullmatch(reason) or (reason not in seen and len(seen) >= _MOST_REASONS):
        return UNRECOGNIZED
    seen.add(reason)
    return reason


def _gpus_of(job: JobUsage, samples: Samples) -> Counter[str]:
    found: Counter[str] = Counter()
    for text in job.gres:
        try:
            found.update(_gpus(text))
        except gres.GresError:
            samples.unreadable += 1
    return found


@lru_cache(maxsize=8192)
def _gpus(text: str) -> dict[str, int]:
    """GPUs by type. Raises GresError. Don't change the result."""
    return {item.type: item.count for item in gres.total(gres.parse(text)) if item.name == "gpu"}


def _add_cluster(samples: Samples, totals: _Totals) -> None:
    add = samples.add
    for state in (*sorted(map(str.lower, BASE_STATES)), UNRECOGNIZED):
        add(families.JOBS, totals.states[state], state)
    for flag in sorted(FLAGS):
        add(families.JOBS_FLAGGED, totals.words[flag], flag.lower())
    others = sum(count for word, count in totals.words.items() if word not in FLAGS | BASE_STATES)
    add(families.JOBS_FLAGGED, others, UNRECOGNIZED)
    add(families.JOBS_UNRELEASED, totals.unreleased)
    for reason, count in totals.reasons.items():
        add(families.PENDING, count, reason)
    for age, count in zip(AGES, totals.older, strict=True):
        add(families.PENDING_OLDER, count, str(age))
    if totals.oldest:
        add(families.PENDING_OLDEST, totals.oldest)
    add(families.PENDING_CPUS, totals.pending_cpus)
    add(families.JOBS_CPUS, totals.cpus)
    add(families.JOBS_MEMORY, totals.memory * MEBIBYTE)
    for type_, count in totals.gpus.items():
        add(families.JOBS_GPUS, count, type_)
    _add_reference(samples, "jobs", totals)
    for word in compatible.VPENSO_QUEUE:
        samples.add_named(f"queue_{word}", totals.shown[word])
    samples.add_named("queue_pending_dependency", totals.reasons["Dependency"])


def _add_partition(samples: Samples, name: str, totals: _Totals) -> None:
    add = samples.add
    for state in (*sorted(map(str.lower, BASE_STATES)), UNRECOGNIZED):
        add(families.PARTITION_JOBS, totals.states[state], name, state)
    for reason, count in totals.reasons.items():
        add(families.PARTITION_PENDING, count, name, reason)
    for age, count in zip(AGES, totals.older, strict=True):
        add(families.PARTITION_PENDING_OLDER, count, name, str(age))
    if totals.oldest:
        add(families.PARTITION_PENDING_OLDEST, totals.oldest, name)
    add(families.PARTITION_PENDING_CPUS, totals.pending_cpus, name)
    add(families.PARTITION_PENDING_NODES_MAX, totals.most_nodes, name)
    samples.add_named("partition_jobs_pending", totals.states["pending"], name)
    _add_reference(samples, "partition_jobs", totals, name)
    samples.add_named("partition_jobs_pending_maxnodecount_total", totals.most_nodes, name)


def _add_grouped(samples: Samples, metrics: Grouped, word: str, name: str, totals: _Totals) -> None:
    for state in sorted({"pending", "running", *totals.states}):
        samples.add(metrics.jobs, totals.states[state], name, state)
    samples.add(metrics.cpus, totals.cpus, name)
    samples.add(metrics.memory, totals.memory * MEBIBYTE, name)
    for type_, count in totals.gpus.items():
        samples.add(metrics.gpus, count, name, type_)
    for state in ("pending", "running", "suspended"):
        samples.add_named(f"{word}_jobs_{state}", totals.states[state], name)
    samples.add_named(f"{word}_cpus_running", totals.cpus, name)


def _add_reference(samples: Samples, prefix: str, totals: _Totals, *labels: str) -> None:
    if not samples.serves(compatible.BY_NAME[f"slurm_{prefix}_total"]):
        return
    samples.add_named(f"{prefix}_total", totals.records, *labels)
    for word, state in compatible.JOB_STATES.items():
        samples.add_named(f"{prefix}_{word}_total", totals.record_words[state], *labels)
    samples.add_named(f"{prefix}_hold_total", totals.unreleased_records, *labels)
    samples.add_named(f"{prefix}_cpus_alloc_total", totals.cpus, *labels)
    samples.add_named(f"{prefix}_memory_alloc_bytes", totals.memory, *labels)


def _add_single(samples: Samples, jobs: Sequence[JobUsage], most: int) -> int:
    live = [job for job in jobs if not job.states.isdisjoint({"RUNNING", "SUSPENDED", "PENDING"})]
    live.sort(key=lambda job: ("PENDING" in job.states, job.job_id))
    for job in live[:most]:
        number = str(job.job_id)
        texts = (printable(job.name, _LONGEST_NAME), job.user, job.account, job.partition)
        samples.add(families.JOB_INFO, 1, number, *texts, base_state(job.states), job.reason)
        samples.add(families.JOB_CPUS, job.cpus, number)
        samples.add(families.JOB_NODES, job.node_count, number)
        if "PENDING" not in job.states:
            samples.add(families.JOB_MEMORY, job.memory * MEBIBYTE, number)
            for type_, count in _gpus_of(job, samples).items():
                samples.add(families.JOB_GPUS, count, number, type_)
        samples.add(families.JOB_SUBMITTED, job.submit_time, number)
        if job.start_time:
            samples.add(families.JOB_STARTED, job.start_time, number)
    return max(0, len(live) - most)
