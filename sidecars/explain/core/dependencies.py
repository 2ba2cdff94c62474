"""What the jobs do that a pending job waits for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecars.explain.core.records import Finding, Level
from sidecars.slurm.job_reasons import words

if TYPE_CHECKING:
    from sidecars.explain.core.records import Seen, Waiting
    from sidecars.slurm.details import JobDetail

SHOWN = 3
"""Jobs that are shown one by one."""
_JOB = re.compile(r"(?<![A-Za-z0-9])([0-9]+)(?:_[0-9*]+)?\(unfulfilled\)")


def of_job(job: JobDetail, seen: Seen) -> list[Finding]:
    """Find that a job which it waits for is itself pending or runs. Return [] for a job that waits
    for no other.
    """
    if job.pending is None or job.reason != "Dependency":
        return []
    found: list[Finding] = []
    for name in dict.fromkeys(_JOB.findall(job.pending.dependency)):
        waits = next((it for it in seen.slurm.waiting or () if _is(it.job, name)), None)
        if waits is not None:
            found.append(_pending(waits, seen))
            continue
        runs = next((it for it in seen.slurm.running or () if _is(it.job, name)), None)
        if runs is not None:
            event = f"job {runs.job} reaches its time limit" if runs.at is not None else ""
            text = f"It runs on {runs.nodes}."
            found.append(
                Finding("Running", Level.SHOWS, f"job {name}", text, event=event, at=runs.at)
            )
    return found[:SHOWN]


def _pending(job: Waiting, seen: Seen) -> Finding:
    """Return why the other job is pending itself."""
    known = words(job.reason)
    number = job.job.partition("_")[0]
    level = Level.WAITS if known.waits else Level.BLOCKS
    text = f"It is pending itself ({job.reason}): {known.cause}"
    own = Finding(
        job.reason or "None", level, f"job {number}", text, f"kubectl slurm explain job {number}"
    )
    if job.reason in ("JobHeldUser", "JobHeldAdmin"):
        return replace(
            own, remedy="Release it.", commands=(seen.command(f"scontrol release {number}"),)
        )
    return own


def _is(job: str, name: str) -> bool:
    return job.partition("_")[0].partition("+")[0] == name
