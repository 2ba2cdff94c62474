"""The jobs beside which a pending job waits: those that Slurm tries first, and the first to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecars.explain.core.records import Ending, Seen, Waiting
    from sidecars.slurm.details import JobDetail

_TAKES = frozenset({"", "None", "Resources", "Priority", "NodeDown", "SchedDefer"})
"""Reasons of jobs that take nodes as soon as these are free."""


def ahead(job: JobDetail, seen: Seen, partitions: tuple[str, ...] = ()) -> list[Waiting]:
    """Return the pending jobs that Slurm tries before it, because of a higher priority or the tier
    of their partition, and that would use free nodes.

    `partitions`: in which it would be instead of its own.
    """
    if job.pending is None:
        return []
    own = set(partitions or job.pending.request.partitions)
    tiers = {it.name: it.tier for it in seen.slurm.partitions or ()}
    shared = own | {
        name
        for it in seen.slurm.nodes or ()
        if not own.isdisjoint(it.partitions)
        for name in it.partitions
    }
    tier = max((tiers.get(it, 1) for it in own), default=1)
    # A held job gets its priority when it is released.
    rank = tier, job.pending.priority or -1
    mine = str(job.array_job_id or job.pending.het_job_id or job.job_id)
    found = []
    for it in seen.slurm.waiting or ():
        theirs = shared & set(it.partitions) if it.partitions else own
        if it.reason not in _TAKES or not theirs or _leader(it.job) == mine:
            continue
        if (max(tiers.get(name, 1) for name in theirs), it.priority) > rank:
            found.append(it)
    return found


def first_to_end(job: JobDetail, seen: Seen) -> Ending | None:
    """Return the job of its partitions that reaches its time limit first."""
    own = set(job.pending.request.partitions) if job.pending is not None else set()
    return next(
        (
            it
            for it in seen.slurm.running or ()
            if it.at is not None and it.at > seen.now and (not it.partition or it.partition in own)
        ),
        None,
    )


def _leader(job: str) -> str:
    """`12` for `12_3`, `12_[4-9]` and `12+1`."""
    return job.partition("_")[0].partition("+")[0]
