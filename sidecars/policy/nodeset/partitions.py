"""When a NodeSet's partition may be removed from slurm.conf.

The jobs of a partition that slurm.conf lacks are lost: at the next reconfigure or start Slurm 26.05 ends those that run
or pend there as NODE_FAIL. Older releases crash over job records that still name it, finished ones too, and crash again
at each start. So a partition is first closed (State=INACTIVE: it accepts no job and starts none,
https://slurm.schedmd.com/slurm.conf.html), and its line stays until no job record names it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import PartitionsReleased
from sidecars.slurm.records import Job, Partition
from sidecars.slurm.states import JOB_ENDED
from sidecars.workloads.config import CLOSED

FINISHED_FOR = 330.0
"""Seconds for which the record of a finished job may block: MinJobAge's 300, and the interval of the purge."""

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
    """Which of the `removed` partitions have to stay, given Slurm's partitions and all jobs."""
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
            found.append(BlockedPartition(name, f"{_jobs(waiting)} would be lost: cancel or move them"))
            continue
        ages = [now - job.end_time for job in everything if _names(job, name) and not job.states.isdisjoint(JOB_ENDED)]
        recent = [age for age in ages if age < FINISHED_FOR]
        if recent:
            left = FINISHED_FOR - min(recent)
            why = f"Slurm keeps the records of {len(recent)} finished jobs for some minutes"
            found.append(BlockedPartition(name, why, look_again=min(left, 30.0)))
    return tuple(found)


def is_closed(partition: Partition) -> bool:
    """Whether it accepts no job."""
    return CLOSED in partition.states


def condition(blocked: Sequence[BlockedPartition]) -> Condition | None:
    """The condition PartitionsReleased while partitions are blocked."""
    return (
        Condition("PartitionsReleased", "False", PartitionsReleased.JOBS_REFER, message(blocked)) if blocked else None
    )


def _needs(job: Job, partition: str, staying: Collection[str]) -> bool:
    """Whether the job would be lost with the partition: a pending one may name others too, of which one has to stay."""
    if not _names(job, partition) or not job.states.isdisjoint(JOB_ENDED):
        return False
    return "PENDING" not in job.states or not any(it in staying for it in job.partition.split(","))


def _names(job: Job, partition: str) -> bool:
    return partition in job.partition.split(",")


def _jobs(ids: Sequence[int]) -> str:
    some = ", ".join(map(str, ids[:_SHOWN]))
    return f"{len(ids)} job{'s' if len(ids) > 1 else ''} ({some}{', …' if len(ids) > _SHOWN else ''})"


def message(blocked: Sequence[BlockedPartition]) -> str:
    """What the partitions wait for, with the remedy, for a condition."""
    each = "; ".join(f"partition {it.partition} is being closed and stays while {it.why}" for it in blocked)
    return f"{each}. To remove it with its jobs, set spec.forceRemoval"
