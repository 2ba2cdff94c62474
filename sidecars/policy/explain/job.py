"""Why a job waits, on both sides: Slurm's reason, and the nodes and pods that it could use."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecars.policy.explain import guard, node, nodesets, objects, reasons, resources, timeline
from sidecars.policy.explain.capacity import capacity
from sidecars.policy.explain.partition import excludes
from sidecars.policy.explain.records import Answer, Finding, Level, ranked
from sidecars.policy.explain.words import words
from sidecars.slurm import states
from sidecars.slurm.hostlists import HostlistError, expand

if TYPE_CHECKING:
    from sidecars.policy.explain.capacity import Capacity
    from sidecars.policy.explain.records import Object, Seen
    from sidecars.slurm.details import JobDetail
    from sidecars.slurm.records import Node

NEEDS_NODES = frozenset(
    {
        "",
        "None",
        "Resources",
        "Priority",
        "ReqNodeNotAvail",
        "NodeDown",
        "SchedDefer",
        "PartitionConfig",
        "BadConstraints",
        "PartitionNodeLimit",
    }
)
"""Reasons of jobs to which free nodes matter."""
_QUEUED = frozenset({"", "None", "Resources", "Priority", "ReqNodeNotAvail"})
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
_NUMBERS = re.compile(r"[0-9]+")
SHOWN = 5


def explain(seen: Seen, job_id: str) -> Answer:
    """The answer for a job, a task of an array (`12_3`) or a component of a heterogeneous job (`12+1`)."""
    about = f"job {job_id}"
    jobs = seen.slurm.jobs
    if jobs is None:
        findings = [*resources.daemons(seen), *resources.full_quotas(seen)]
        state = "unknown: Slurm did not report the job"
        return Answer(about, state, ranked(findings), missing=seen.missing, known=False)
    job = _chosen(jobs)
    if job is None:
        text = "Slurm has no such job. slurmctld forgets a job MinJobAge seconds after its end (default 300)."
        finding = Finding(
            "NotFound", Level.BLOCKS, about, text, "Ask the accounting.", (seen.command(f"sacct -j {job_id}"),)
        )
        return Answer(about, "not in the queue", (finding,), missing=seen.missing, known=False)
    findings = _components(jobs, job, about)
    would_start: tuple[str, ...] = ()
    if job.pending is not None:
        found, would_start = _pending(job, seen, about)
        findings += found
    else:
        findings += _started(job, seen, about)
    return Answer(about, _state(job), ranked(findings), would_start, timeline.of_job(job, seen), seen.missing)


def _chosen(jobs: tuple[JobDetail, ...]) -> JobDetail | None:
    """The one that waits, else one that runs, else the last."""
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
    """The other records of an array or a heterogeneous job."""
    if len(jobs) < 2:
        return []
    counts = Counter(next(iter(sorted(it.states)), "UNKNOWN") for it in jobs)
    text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return [
        Finding("Components", Level.SHOWS, about, f"It has {len(jobs)} records: {text}. This is about {job.job_id}.")
    ]


def _pending(job: JobDetail, seen: Seen, about: str) -> tuple[list[Finding], tuple[str, ...]]:
    reason = job.reason or "None"
    findings = [reasons.finding(job, reason, seen, about), *_excluded(job, seen, about), *guard.of_job(job, about)]
    if reason not in NEEDS_NODES:
        return findings, _would_start_when_released(job, reason, seen)
    found = capacity(job, seen)
    needed = _QUEUED if found is None or not found.now else frozenset[str]()
    returned = frozenset(found.returned) if found is not None else frozenset[str]()
    findings += _of_nodes(job, seen, returned, about)
    if reason in _QUEUED:
        findings += _of_queue(job, seen, about, alone=found is not None and found.now)
    if reason in needed or reason not in _QUEUED:
        findings += _of_nodesets(job, seen, found)
    would_start: tuple[str, ...] = ()
    if found is not None:
        extra, would_start = _of_capacity(job, found, seen, about)
        findings += extra
    return findings, would_start


def _excluded(job: JobDetail, seen: Seen, about: str) -> list[Finding]:
    """Why none of its partitions would start it; [] if one may."""
    own = [it for it in seen.slurm.partitions or () if it.name in job.partition.split(",")]
    causes = [excludes(it, job) for it in own]
    if not own or not all(causes):
        return []
    return [
        Finding(
            "PartitionExcludes",
            Level.BLOCKS,
            about,
            f"{cause[0].upper()}{cause[1:]}.",
            "Change the job, or submit it to another partition.",
        )
        for each in causes
        for cause in each
    ]


def _would_start_when_released(job: JobDetail, reason: str, seen: Seen) -> tuple[str, ...]:
    """A held job that would fit."""
    if reason not in ("JobHeldUser", "JobHeldAdmin") or (found := capacity(job, seen)) is None or not found.now:
        return ()
    return (f"released ({seen.command(f'scontrol release {job.job_id}')})",)


def _of_queue(job: JobDetail, seen: Seen, about: str, *, alone: bool) -> list[Finding]:
    findings = []
    priority = job.pending.priority if job.pending is not None else 0
    ahead = [
        it
        for it in seen.slurm.waiting or ()
        if it.priority > priority and it.job.partition("_")[0] != str(job.array_job_id or job.job_id)
    ]
    if ahead:
        first = ahead[0]
        text = (
            f"{len(ahead)} pending jobs of its partitions have a higher priority than {priority}; the first is "
            f"{first.job} of {first.user} ({first.priority}, {first.reason})."
        )
        findings.append(
            Finding("JobsAhead", Level.SHOWS, about, text, event="" if alone else "the jobs ahead of it start first")
        )
    ends = next((it for it in seen.slurm.running or () if it.at is not None and it.at > seen.now), None)
    if ends is not None and not alone:
        text = f"The first job to end in its partitions is {ends.job} of {ends.user} on {ends.nodes}."
        findings.append(
            Finding("FirstToEnd", Level.SHOWS, about, text, event=f"job {ends.job} reaches its time limit", at=ends.at)
        )
    return findings


def _of_nodes(job: JobDetail, seen: Seen, returned: frozenset[str], about: str) -> list[Finding]:
    """Its partitions' nodes that are out of service."""
    if seen.slurm.nodes is None or job.pending is None:
        return []
    wanted = job.pending.request.partitions
    nodes = nodesets.nodes_of(seen, wanted)
    if not nodes:
        text = f"Slurm has no node in partition {', '.join(wanted)}."
        return [Finding("NoNodes", Level.BLOCKS, about, text, "Scale a NodeSet of the partition out.")]
    named = _names(job.pending.request.required_nodes)
    findings: list[Finding] = []
    present = {it.name for it in seen.slurm.nodes}
    findings += [
        Finding(
            "NamedNodeMissing",
            Level.BLOCKS,
            about,
            f"It requests node {it}, which Slurm doesn't have.",
            "Request another one.",
        )
        for it in sorted(named - present)
    ]
    out = [it for it in nodes if _is_out(it)]
    first = sorted(out, key=lambda it: (it.name not in named, it.name not in returned))
    for it in first[:SHOWN]:
        decisive = it.name in named or it.name in returned
        findings += [f if decisive else replace(f, level=Level.SHOWS) for f in node.trouble(it, seen)]
    if len(out) > SHOWN:
        findings.append(
            Finding("NodesOut", Level.SHOWS, about, f"{len(out)} of {len(nodes)} nodes of its partitions take no jobs.")
        )
    return findings


def _is_out(it: Node) -> bool:
    out = {"NOT_RESPONDING", "INVALID", "INVALID_REG", "RESERVED", "MAINTENANCE"}
    return (
        states.is_drain(it.states) or states.is_down(it.states) or not it.states.isdisjoint(out) or bool(it.reservation)
    )


def _names(hostlist: str) -> set[str]:
    try:
        return set(expand(hostlist))
    except HostlistError:
        return set()


def _of_nodesets(job: JobDetail, seen: Seen, found: Capacity | None) -> list[Finding]:
    """The NodeSets that could run it: how many workers they have, and what their pods wait for."""
    if job.pending is None or (found is not None and found.impossible):
        return []
    findings: list[Finding] = []
    for it in nodesets.of_partitions(seen, job.pending.request.partitions):
        about = resources.about(it)
        scaled = isinstance(objects.dig(it, "spec", "autoscaling"), dict)
        if objects.dig(it, "spec", "replicas") == 0 and not scaled:
            scale = f"kubectl -n {seen.namespace} scale nodesets.slinky.slurm.net/{objects.name(it)} --replicas=1"
            findings.append(
                Finding(
                    "ScaledToZero",
                    Level.BLOCKS,
                    about,
                    "It has no workers: spec.replicas is 0.",
                    "Scale it out.",
                    (scale,),
                )
            )
        findings += resources.workers(it, seen)
        for condition in objects.conditions(it):
            if condition.type == "Autoscaled" and condition.message:
                findings.append(
                    Finding(condition.reason or condition.type, Level.SHOWS, about, f"Autoscaling: {condition.message}")
                )
    for controller in seen.kube.controllers or ():
        counted = objects.condition(controller, "JobsCounted")
        if counted is not None and counted.status == "False" and str(job.job_id) in _NUMBERS.findall(counted.message):
            text = f"Autoscaling doesn't count it: {counted.message}"
            findings.append(Finding(counted.reason, Level.SHOWS, resources.about(controller), text))
    return findings + resources.full_quotas(seen)


def _of_capacity(job: JobDetail, found: Capacity, seen: Seen, about: str) -> tuple[list[Finding], tuple[str, ...]]:
    if found.not_modelled:
        text = f"Where it would start is not computed: {found.not_modelled}."
        return [Finding("NotModelled", Level.SHOWS, about, text)], ()
    if found.now:
        text = "It fits on what is free now."
        if job.reason == "Priority":
            text += " Slurm reserves nodes for jobs ahead of it, or has not looked at it since."
        return [Finding("FitsNow", Level.SHOWS, about, text, event="the scheduler looks at it again")], ()
    findings = []
    if found.impossible:
        findings.append(
            Finding(
                "Impossible",
                Level.BLOCKS,
                about,
                f"No node of its partitions could run it: {found.impossible}.",
                "Request less, or add a NodeSet with such nodes.",
            )
        )
    elif found.reserved:
        findings.append(_of_reservations(found.reserved, seen, about))
    elif found.empty:
        findings.append(
            Finding(
                "Busy",
                Level.SHOWS,
                about,
                "It would fit if fewer jobs ran: the nodes that it could use are taken.",
                event="jobs on these nodes end",
            )
        )
    starts = [] if found.minutes is None else [f"with a time limit of {found.minutes} minutes (--time={found.minutes})"]
    starts += [f"with node {it} in service" for it in found.returned]
    if found.all_returned:
        starts.append(f"with all {found.all_returned} nodes in service that take no jobs now")
    for name, count in found.added.items():
        more = f"with {count} more node{'s' if count > 1 else ''} of NodeSet {name}"
        starts.append(f"{more} ({_how_to_scale(objects.named(seen.kube.nodesets, name), count, seen)})")
    starts += found.without
    starts += [f"in partition {it}" for it in found.elsewhere]
    return findings, tuple(starts)


def _of_reservations(nodes: tuple[str, ...], seen: Seen, about: str) -> Finding:
    """Reservations that begin before the job would end."""
    found = [
        it
        for it in seen.slurm.reservations or ()
        if it.start_time > seen.now
        and (not it.end_time or it.end_time > it.start_time)
        and not set(nodes).isdisjoint(it.node_names())
    ]
    names = ", ".join(it.name for it in found)
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    text = (
        f"It would fit on nodes that are free now, but they are reserved before it would end: "
        f"{', '.join(nodes[:SHOWN])}{more} (reservation {names})."
    )
    end = max((it.end_time for it in found), default=0)
    event = f"reservation {names} ends" if end else ""
    return Finding("ReservedSoon", Level.SHOWS, about, text, event=event, at=float(end) if end else None)


def _how_to_scale(nodeset: Object | None, count: int, seen: Seen) -> str:
    most = objects.dig(nodeset, "spec", "autoscaling", "max")
    if isinstance(objects.dig(nodeset, "spec", "autoscaling"), dict):
        return "autoscaling sets its size" + (f", at most {most}" if isinstance(most, int) else "")
    replicas = objects.number(nodeset, "spec", "replicas") + count
    name = objects.name(nodeset) if nodeset is not None else ""
    return f"kubectl -n {seen.namespace} scale nodesets.slinky.slurm.net/{name} --replicas={replicas}"


def _started(job: JobDetail, seen: Seen, about: str) -> list[Finding]:
    by_name = {it.name: it for it in seen.slurm.nodes or ()}
    nodes = [by_name[it] for it in sorted(_names(job.nodes)) if it in by_name]
    if "CONFIGURING" in job.states:
        text = f"Slurm has given it {job.nodes}, and waits until these nodes and the prolog are ready."
        found = [Finding("Configuring", Level.WAITS, about, text, event="its nodes become ready")]
        return found + [it for each in nodes for it in node.trouble(each, seen)]
    if guard.waits_for_pods(job):
        return guard.of_job(job, about) + guard.left(seen) + [it for each in nodes for it in node.trouble(each, seen)]
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
        ends = float(job.start_time + 60 * job.time_limit) if job.time_limit is not None and job.start_time else None
        what = "is suspended" if "SUSPENDED" in job.states else "runs"
        event = "it reaches its time limit" if ends is not None and ends > seen.now else ""
        found = [
            Finding(
                "Running", Level.SHOWS, about, f"It {what} on {job.nodes}.", event=event, at=ends if event else None
            )
        ]
        found += guard.of_job(job, about)
        return found + [replace(it, level=Level.SHOWS) for each in nodes for it in node.trouble(each, seen)]
    state = next((it for it in _ENDED if it in job.states), "")
    text = _ENDED.get(state, f"Its state is {'+'.join(sorted(job.states)) or 'unknown'}.")
    if job.reason not in ("", "None") and state != "COMPLETED":
        text += f" {words(job.reason).cause}"
    if job.exit_code:
        text += f" Exit code {job.exit_code}."
    return [Finding(state or "Ended", Level.SHOWS, about, text)]
