"""Why jobs wait: all pending jobs of a cluster, grouped by Slurm's reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.explain.core import resources
from sidecars.explain.core.records import Answer, Finding, Level, ranked
from sidecars.slurm.job_reasons import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecars.explain.core.records import Seen, Waiting

ABOUT = "pending jobs"
EXPLAIN = "kubectl slurm explain job"
SHOWN = 10
"""Jobs that a group names; the others are counted."""


def explain(seen: Seen, _: str = "", command: str = EXPLAIN) -> Answer:
    """Return the answer for all pending jobs: a finding for each reason, with its jobs in the order
    of their priority. First those that nothing starts without a remedy, then the most jobs.

    `command`: what explains the one job whose id follows it.
    """
    waiting = seen.slurm.waiting
    daemons = resources.daemons(seen)
    if waiting is None:
        state = "unknown: Slurm did not report the queue"
        return Answer(ABOUT, state, ranked(daemons), missing=seen.missing, known=False)
    groups: dict[str, list[Waiting]] = {}
    for it in waiting:
        groups.setdefault(it.reason or "None", []).append(it)
    ordered = sorted(groups.items(), key=lambda it: -len(it[1]))
    findings = [*daemons, *(_finding(reason, jobs, command) for reason, jobs in ordered)]
    blocked = sum(len(jobs) for reason, jobs in ordered if not words(reason).waits)
    state = f"{len(waiting)}, of which {blocked} need a remedy" if waiting else "none"
    return Answer(ABOUT, state, ranked(findings), missing=seen.missing)


def _finding(reason: str, jobs: Sequence[Waiting], command: str) -> Finding:
    found, first = words(reason), jobs[0]
    about = f"job {first.job}" if len(jobs) == 1 else f"{len(jobs)} jobs"
    named = ", ".join(f"{it.job} of {it.user}" for it in jobs[:SHOWN])
    more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    return Finding(
        reason,
        Level.WAITS if found.waits else Level.BLOCKS,
        about,
        f"{found.cause} {named}{more}.",
        found.remedy.replace("JOB", first.job).replace("USER", first.user),
        (f"{command} {first.job}",),
        found.event,
    )
