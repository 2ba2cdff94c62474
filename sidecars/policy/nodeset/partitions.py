"""When a NodeSet's partition may be removed from slurm.conf.

The jobs of a partition that slurm.conf lacks are lost: at the next reconfigure or start Slurm 26.05
ends those that run or pend there as NODE_FAIL. Older releases crash over job records that still
name it, finished ones too, and crash again at each start. So a partition is first closed
(State=INACTIVE: it accepts no job and starts none, https://slurm.schedmd.com/slurm.conf.html), and
its line stays until no job record names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import needs
from sidecars.policy.nodeset.parts import Part, Questions, are_pods_gone, earliest
from sidecars.policy.reasons import PartitionsReleased
from sidecars.slurm.job_states import has_ended
from sidecars.workloads.config import CLOSED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.records import Desired, Observed
    from sidecars.slurm.records import Job, Partition

FINISHED_FOR = 330.0
"""Seconds for which the record of a finished job may block: MinJobAge's 300, and the interval of
the purge.
"""

LOOK_AGAIN = 5.0
"""Seconds between reads of the jobs while they block a partition."""

BEING_READ = "its jobs are being read"

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class BlockedPartition:
    """A partition that can't be removed yet."""

    partition: str
    why: str
    look_again: float = LOOK_AGAIN
    """Seconds until time alone may have changed that."""


def blocked(
    removed: Sequence[str], partitions: Iterable[Partition], jobs: Iterable[Job], now: float
) -> tuple[BlockedPartition, ...]:
    """Return which of the `removed` partitions have to stay, given Slurm's partitions and all
    jobs.
    """
    known = {partition.name: partition for partition in partitions}
    # One that is closed may be removed next, by another NodeSet.
    staying = {it.name for it in known.values() if it.name not in removed and not is_closed(it)}
    everything = tuple(jobs)
    found = []
    for name in removed:
        if name in known and not is_closed(known[name]):
            found.append(BlockedPartition(name, "Slurm has not closed it yet", look_again=1.0))
            continue
        waiting = sorted(job.job_id for job in everything if _needs(job, name, staying))
        if waiting:
            found.append(
                BlockedPartition(name, f"{_jobs(waiting)} would be lost: cancel or move them")
            )
            continue
        ages = [
            now - job.end_time for job in everything if _names(job, name) and has_ended(job.states)
        ]
        recent = [age for age in ages if age < FINISHED_FOR]
        if recent:
            left = FINISHED_FOR - min(recent)
            why = f"Slurm keeps the records of {len(recent)} finished jobs for some minutes"
            found.append(BlockedPartition(name, why, look_again=min(left, 30.0)))
    return tuple(found)


def part(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Decide which removed partitions have to stay in slurm.conf."""
    nodeset, gone = desired.nodeset, are_pods_gone(memory)
    own = {nodeset.slurm_name} if nodeset.spec.partition.enabled else set()
    current = set() if gone else own
    removed = tuple(sorted({*nodeset.status.partitions, *(own if gone else ())} - current))
    unbound = desired.pods.forced or (desired.pods.deleting and observed.controller_deleted)
    if not removed or unbound or nodeset.spec.force_removal:
        return Part(
            replace(memory, removed_partitions=(), closed_since={}),
            report=lambda progress: replace(progress, partitions=tuple(sorted(current))),
        )
    questions = Questions(observed.answers)
    staying, memory = _staying(removed, observed, memory, now, questions)
    declared = tuple(sorted(current | {it.partition for it in staying}))
    return Part(
        memory,
        needs=questions.unanswered,
        look_again=earliest(*(it.look_again for it in staying)),
        keeps=bool(staying),
        report=lambda progress: replace(
            progress, partitions=declared, partitions_blocked=condition(staying)
        ),
    )


def _staying(
    removed: tuple[str, ...],
    observed: Observed,
    memory: Memory,
    now: float,
    questions: Questions,
) -> tuple[tuple[BlockedPartition, ...], Memory]:
    def all_of(why: str, look_again: float = LOOK_AGAIN) -> tuple[BlockedPartition, ...]:
        return tuple(BlockedPartition(name, why, look_again) for name in removed)

    if not observed.connected or observed.slurm.problem is not None:
        return all_of(f"its jobs are unknown: {observed.slurm.problem}"), memory
    if memory.removed_partitions != removed:
        # Earlier answers don't show what slurmctld has read since these are to be removed.
        memory = replace(memory, removed_partitions=removed, removed_since=observed.clock)
    found = questions.ask(needs.Partitions(memory.removed_since))
    if isinstance(found, needs.Known):
        opened = {it.name for it in found.value if not is_closed(it)}
        before = memory.closed_since
        closed = {name: before.get(name, found.at) for name in removed if name not in opened}
        memory = replace(memory, closed_since=closed)
        jobs = questions.ask(needs.Jobs())
        if isinstance(jobs, needs.Known):
            if any(at > jobs.value.asked_at for at in closed.values()):
                # Until it was closed it accepted jobs that an older list lacks.
                return all_of(BEING_READ, 1.0), memory
            return blocked(removed, found.value, jobs.value.jobs, now), memory
        found = jobs
    failed = isinstance(found, needs.Failed)
    return all_of(f"its jobs can't be read: {found.why}" if failed else BEING_READ), memory


def is_closed(partition: Partition) -> bool:
    """Return whether it accepts no job."""
    return CLOSED in partition.states


def condition(blocked: Sequence[BlockedPartition]) -> Condition | None:
    """Return the condition PartitionsReleased while partitions are blocked."""
    return (
        Condition("PartitionsReleased", "False", PartitionsReleased.JOBS_REFER, message(blocked))
        if blocked
        else None
    )


def _needs(job: Job, partition: str, staying: Collection[str]) -> bool:
    """Return whether the job would be lost with the partition. A pending one may name others too,
    of which one has to stay.
    """
    if not _names(job, partition) or has_ended(job.states):
        return False
    return "PENDING" not in job.states or not any(it in staying for it in job.partition.split(","))


def _names(job: Job, partition: str) -> bool:
    return partition in job.partition.split(",")


def _jobs(ids: Sequence[int]) -> str:
    some = ", ".join(map(str, ids[:_SHOWN]))
    return (
        f"{len(ids)} job{'s' if len(ids) > 1 else ''} ({some}{', …' if len(ids) > _SHOWN else ''})"
    )


def message(blocked: Sequence[BlockedPartition]) -> str:
    """Describe for a condition what the partitions wait for, with the remedy."""
    each = "; ".join(
        f"partition {it.partition} is being closed and stays while {it.why}" for it in blocked
    )
    return f"{each}. To remove it with its jobs, set spec.forceRemoval"
