"""When a NodeSet's partition may leave slurm.conf. Pure.

A partition that is not in slurm.conf any more takes its jobs along: Slurm 26.05 ends those that run or pend there as
NODE_FAIL at the next reconfigure or start, and older releases were seen to crash over job records that still name it,
finished ones too, and to crash again at each start. 26.05.5 lived on in each order that was tried: node records first,
lines first, and a start without the lines. So a partition that is to go is first closed (State=INACTIVE: takes no job
and starts none, https://slurm.schedmd.com/slurm.conf.html), and its line stays until no job record names it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sidecars.slurm.records import Job, Partition
from sidecars.workloads.config import CLOSED

FINISHED_FOR = 330.0
"""Seconds for which the record of a finished job may stand in the way: MinJobAge's 300, and the purge's pace."""

LOOK_AGAIN = 5.0
"""Seconds between looks at the jobs while they stand in the way."""

_SHOWN = 5

_OVER = frozenset(
    {
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
        *("DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED", "REVOKED"),
    }
)


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that has to stay yet, and why. `again`: seconds until time alone may have changed that."""

    partition: str
    why: str
    again: float = LOOK_AGAIN


def held(leaving: Sequence[str], partitions: Iterable[Partition], jobs: Iterable[Job], now: float) -> tuple[Held, ...]:
    """Which of the `leaving` partitions have to stay, given what Slurm says of them and of all jobs."""
    known = {partition.name: partition for partition in partitions}
    everything = tuple(jobs)
    found = []
    for name in leaving:
        if name in known and CLOSED not in known[name].states:
            found.append(Held(name, "Slurm has not closed it yet", again=1.0))
            continue
        waiting = sorted(job.job_id for job in everything if _needs(job, name, leaving))
        if waiting:
            found.append(Held(name, f"{_jobs(waiting)} would be lost: cancel or move them"))
            continue
        ages = [now - job.end_time for job in everything if _names(job, name) and not job.states.isdisjoint(_OVER)]
        recent = [age for age in ages if age < FINISHED_FOR]
        if recent:
            left = FINISHED_FOR - min(recent)
            said = f"Slurm keeps the records of {len(recent)} finished jobs for some minutes"
            found.append(Held(name, said, again=min(left, 30.0)))
    return tuple(found)


def _needs(job: Job, partition: str, leaving: Sequence[str]) -> bool:
    """Whether the job would be lost with the partition: a pending one may have others to go to."""
    if not _names(job, partition) or not job.states.isdisjoint(_OVER):
        return False
    return "PENDING" not in job.states or set(job.partition.split(",")) <= set(leaving)


def _names(job: Job, partition: str) -> bool:
    return partition in job.partition.split(",")


def _jobs(ids: Sequence[int]) -> str:
    some = ", ".join(map(str, ids[:_SHOWN]))
    return f"{len(ids)} job{'s' if len(ids) > 1 else ''} ({some}{', …' if len(ids) > _SHOWN else ''})"


def said(held: Sequence[Held]) -> str:
    """What is waited for, with the remedy, for a condition."""
    each = "; ".join(f"partition {it.partition} is being closed and stays while {it.why}" for it in held)
    return f"{each}. spec.forceRemoval lets it go all the same"
