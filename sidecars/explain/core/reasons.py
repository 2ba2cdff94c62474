"""Slurm's reason of a pending job as a finding: with the values that the job and the cluster
have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.explain.core import limits
from sidecars.explain.core.records import Finding, Level
from sidecars.slurm.job_reasons import words

if TYPE_CHECKING:
    from sidecars.explain.core.records import Seen
    from sidecars.slurm.details import JobDetail

_RELEASE = frozenset(
    {"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "BadConstraints", "JobLaunchFailure"}
)


def finding(job: JobDetail, reason: str, seen: Seen, about: str) -> Finding:
    """Return the finding for Slurm's reason of a pending job."""
    found = words(reason)
    pending = job.pending
    cause, remedy, event, at = found.cause, found.remedy, found.event, None
    remedy = (
        remedy.replace("JOB", str(job.job_id))
        .replace("USER", job.user_name)
        .replace("ACCOUNT", job.account)
    )
    level = Level.WAITS if found.waits else Level.BLOCKS
    commands: tuple[str, ...] = ()
    if job.description and job.description != reason:
        cause += f" Slurm adds: {job.description.replace('_', ' ')}."
    if reason == "Dependency" and pending is not None and pending.dependency:
        cause += f" Dependency: {pending.dependency}."
    if reason == "BeginTime" and pending is not None and pending.eligible_time:
        at = float(pending.eligible_time)
        if at <= seen.now:
            event, at = "at the scheduler's next cycle: its begin time has come", None
    if reason == "Licenses":
        cause += _licenses(job, seen)
    if reason == "Reservation":
        text, at = _reservation(job, seen)
        cause += text
    if reason in ("Resources", "Priority") and job.start_time > seen.now:
        event, at = (
            "Slurm expects to start it then, if other jobs use all their time",
            float(job.start_time),
        )
    if found.limit is not None:
        cause += _limit(job, seen, reason)
    if reason in _RELEASE:
        commands = (seen.command(f"scontrol release {job.job_id}"),)
    return Finding(reason, level, about, cause, remedy, commands, event, at)


def _licenses(job: JobDetail, seen: Seen) -> str:
    wanted = {
        it.partition(":")[0].partition("@")[0]
        for it in job.licenses.replace("|", ",").split(",")
        if it
    }
    found = [it for it in seen.slurm.licenses or () if it.name.partition("@")[0] in wanted]
    return "".join(
        f" {it.name}: {it.free} of {it.total} are free, and the job requests {job.licenses}."
        for it in found
    )


def _reservation(job: JobDetail, seen: Seen) -> tuple[str, float | None]:
    found = next((it for it in seen.slurm.reservations or () if it.name == job.reservation), None)
    if found is None:
        return (
            f" Slurm has no reservation {job.reservation}."
            if seen.slurm.reservations is not None and job.reservation
            else ""
        ), None
    if found.start_time > seen.now:
        return f" Reservation {found.name} has not begun.", float(found.start_time)
    return f" Reservation {found.name} has begun: its nodes are in use.", None


def _limit(job: JobDetail, seen: Seen, reason: str) -> str:
    limit = words(reason).limit
    if limit is None or seen.slurm.limits is None:
        return ""
    own = set(filter(None, job.partition.split(",")))
    qos = frozenset(
        {job.qos, *(it.qos for it in seen.slurm.partitions or () if it.name in own)} - {""}
    )
    values = limits.values(seen.slurm.limits, limit, job.user_name, job.account, qos)
    if not values:
        return (
            ""
            if limit.of_qos
            else " The association of the job and the accounts above it show no such limit."
        )
    return " " + "; ".join(map(str, values)) + "."
