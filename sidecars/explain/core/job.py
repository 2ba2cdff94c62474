"""Why a job waits, on both sides: Slurm's reason, and the nodes and pods that it could use."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecars.contract.reservations import is_closing
from sidecars.explain.core import (
    guard,
    node,
    nodeset_partitions,
    objects,
    pending,
    pod_trouble,
    resources,
    timeline,
)
from sidecars.explain.core.records import Answer, Finding, Level, ranked
from sidecars.slurm.job_reasons import words

if TYPE_CHECKING:
    from sidecars.explain.core.records import Seen
    from sidecars.slurm.details import JobDetail
    from sidecars.slurm.records import Node

_ENDED = {
    "COMPLETED": "The job ended with exit code 0.",
    "CANCELLED": "The job was cancelled.",
    "FAILED": "The job failed.",
    "TIMEOUT": "The job reached its time limit.",
    "NODE_FAIL": "A node of the job failed.",
    "OUT_OF_MEMORY": "The job used more memory than it requested.",
    "PREEMPTED": "Another job preempted it.",
    "DEADLINE": "The job reached its deadline.",
    "BOOT_FAIL": "Its nodes didn't start.",
}
SHOWN = 5
NO_FILES = 53
"""Slurm's signal number of a job whose files could not be set up."""


def explain(seen: Seen, job_id: str) -> Answer:
    """Return the answer for a job, a task of an array (`12_3`) or a component of a heterogeneous
    job (`12+1`).
    """
    about = f"job {job_id}"
    seen = _with_reservations(seen)
    jobs = seen.slurm.jobs
    if jobs is None:
        findings = [*resources.daemons(seen), *resources.full_quotas(seen)]
        state = "unknown: Slurm did not report the job"
        return Answer(about, state, ranked(findings), missing=seen.missing, known=False)
    job = _chosen(jobs)
    if job is None:
        text = (
            "Slurm has no such job. slurmctld forgets a job MinJobAge seconds after its end "
            "(default 300)."
        )
        finding = Finding(
            "NotFound",
            Level.BLOCKS,
            about,
            text,
            "Ask the accounting.",
            (seen.command(f"sacct -j {job_id}"),),
        )
        return Answer(about, "not in the queue", (finding,), missing=seen.missing, known=False)
    findings = _components(jobs, job, about)
    would_start: tuple[str, ...] = ()
    if job.pending is not None:
        found, would_start = _pending(jobs, job, seen, about)
        findings += found
    else:
        findings += _started(job, seen, about)
    return Answer(
        about, _state(job), ranked(findings), would_start, timeline.of_job(job, seen), seen.missing
    )


def _with_reservations(seen: Seen) -> Seen:
    """Have the reservations that have begun in the records of their nodes. slurmctld shows them
    there a moment later.
    """
    begun: dict[str, str] = {}
    for it in seen.slurm.reservations or ():
        if not is_closing(it.name) and it.start_time <= seen.now < it.end_time:
            begun |= dict.fromkeys(pending.names(it.node_list), it.name)
    if seen.slurm.nodes is None or not begun:
        return seen
    nodes = tuple(
        replace(it, reservation=begun[it.name]) if it.name in begun and not it.reservation else it
        for it in seen.slurm.nodes
    )
    return replace(seen, slurm=replace(seen.slurm, nodes=nodes))


def _chosen(jobs: tuple[JobDetail, ...]) -> JobDetail | None:
    """Return the one that waits, else one that runs, else the last."""
    for wanted in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
        for job in jobs:
            if wanted in job.states:
                return job
    return jobs[-1] if jobs else None


def _state(job: JobDetail) -> str:
    state = "+".join(sorted(job.states)) or "UNKNOWN"
    if job.pending is not None:
        return f"{state} ({job.reason or 'None'}) in partition {job.partition}"
    return f"{state} on {job.nodes}" if job.nodes else state


def _components(jobs: tuple[JobDetail, ...], job: JobDetail, about: str) -> list[Finding]:
    """Return the other records of an array or a heterogeneous job."""
    if len(jobs) < 2:
        return []
    counts = Counter(next(iter(sorted(it.states)), "UNKNOWN") for it in jobs)
    text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return [
        Finding(
            "Components",
            Level.SHOWS,
            about,
            f"It has {len(jobs)} records: {text}. This is about {job.job_id}.",
        )
    ]


def _pending(
    jobs: tuple[JobDetail, ...], job: JobDetail, seen: Seen, about: str
) -> tuple[list[Finding], tuple[str, ...]]:
    """Explain each pending component of a heterogeneous job, which start together, or the job."""
    parts = [it for it in jobs if it.pending is not None and it.pending.het_job_id]
    if job.pending is None or not job.pending.het_job_id or len(parts) < 2:
        return pending.of_job(job, seen, about)
    leader = job.pending.het_job_id
    findings: list[Finding] = []
    for it in parts:
        number = f"job {leader}+{it.job_id - leader}"
        findings += pending.of_job(it, seen, number)[0]
    return findings, ()


def _of_hosts(nodes: list[Node], seen: Seen) -> list[Finding]:
    """Find why the nodes that Slurm has given to a job aren't ready: in Slurm, and their pods."""
    found: list[Finding] = []
    for it in nodes[:SHOWN]:
        found += node.trouble(it, seen)
        worker = node.worker_of(seen, it, it.name)
        if worker is not None:
            found += pod_trouble.trouble(worker, seen)
    owners = nodeset_partitions.by_node(seen)
    own = {owners.get(it.name) for it in nodes}
    for nodeset in seen.kube.nodesets or ():
        if objects.name(nodeset) in own and resources.waiting_workers(nodeset, seen):
            found += resources.refused_pods(nodeset, seen)
            found += resources.scaling(nodeset)
    return found


def _started(job: JobDetail, seen: Seen, about: str) -> list[Finding]:
    by_name = {it.name: it for it in seen.slurm.nodes or ()}
    nodes = [by_name[it] for it in sorted(pending.names(job.nodes)) if it in by_name]
    if "CONFIGURING" in job.states:
        text = (
            f"Slurm has given it {job.nodes}, and waits until these nodes and the prolog are ready."
        )
        found = [Finding("Configuring", Level.WAITS, about, text, event="its nodes become ready")]
        return found + _of_hosts(nodes, seen)
    if guard.waits_for_pods(job):
        return (
            guard.of_job(job, about)
            + guard.left(seen)
            + [it for each in nodes for it in node.trouble(each, seen)]
        )
    if "COMPLETING" in job.states:
        text = f"It has ended, and its nodes clean up: {job.nodes}."
        found = [
            Finding(
                "Completing",
                Level.WAITS,
                about,
                text,
                "See the epilog and processes that don't end, on these nodes.",
                event="the epilog ends",
            )
        ]
        return found + [it for each in nodes for it in node.trouble(each, seen)]
    if "RUNNING" in job.states or "SUSPENDED" in job.states:
        ends = (
            float(job.start_time + 60 * job.time_limit)
            if job.time_limit is not None and job.start_time
            else None
        )
        what = "is suspended" if "SUSPENDED" in job.states else "runs"
        event = "it reaches its time limit" if ends is not None and ends > seen.now else ""
        found = [
            Finding(
                "Running",
                Level.SHOWS,
                about,
                f"It {what} on {job.nodes}.",
                event=event,
                at=ends if event else None,
            )
        ]
        found += guard.of_job(job, about)
        return found + [
            replace(it, level=Level.SHOWS) for each in nodes for it in node.trouble(each, seen)
        ]
    return [_ended(job, about)]


def _ended(job: JobDetail, about: str) -> Finding:
    """Return how a job ended."""
    state = next((it for it in _ENDED if it in job.states), "")
    if state == "FAILED" and job.exit_signal == NO_FILES:
        text = (
            f"The job failed before its script began (exit code 0:{NO_FILES}): its worker could "
            f"not open its output {job.output}, or not enter {job.working_directory}."
        )
        remedy = (
            "Use folders that exist on all workers and in which the user may write, such as those "
            "of a shared volume."
        )
        return Finding(state, Level.SHOWS, about, text, remedy)
    text = _ENDED.get(state, f"Its state is {'+'.join(sorted(job.states)) or 'unknown'}.")
    if job.reason not in ("", "None") and state != "COMPLETED":
        text += f" {words(job.reason).cause}"
    if job.exit_code:
        text += f" Exit code {job.exit_code}."
    return Finding(state or "Ended", Level.SHOWS, about, text)
