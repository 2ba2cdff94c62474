"""Why a pending job waits: what decides comes first.

Slurm's own reason is often as vague as `PartitionConfig` or `Resources`. What is found behind it,
the named node, the drain, the worker that can't start, stands before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sidecars.explain.core import (
    contest,
    dependencies,
    guard,
    node,
    nodeset_partitions,
    objects,
    pod_trouble,
    reasons,
    resources,
)
from sidecars.explain.core.capacity import capacity
from sidecars.explain.core.partition import excludes
from sidecars.explain.core.records import Finding, Level
from sidecars.policy.reasons.autoscaling import NotCounted
from sidecars.slurm import states
from sidecars.slurm.hostlists import HostlistError, nodes_in

if TYPE_CHECKING:
    from sidecars.explain.core.capacity import Capacity
    from sidecars.explain.core.records import Object, Seen
    from sidecars.slurm.details import JobDetail
    from sidecars.slurm.records import Node

QUEUED = frozenset({"", "None", "Resources", "Priority", "ReqNodeNotAvail"})
NEEDS_NODES = QUEUED | {
    "NodeDown",
    "SchedDefer",
    "PartitionConfig",
    "BadConstraints",
    "PartitionNodeLimit",
}
"""Reasons of jobs to which free nodes matter."""
_VAGUE = NEEDS_NODES - {"BadConstraints", "Resources", "Priority"}
"""Reasons that are a fact only where their cause was found."""
_TESTED = frozenset({"Resources", "ReqNodeNotAvail"})
"""Reasons that Slurm gives after it has tried to find nodes."""
_SOON_SECONDS = 300
"""A planned start within this time is none for later: a cycle of the scheduler takes a while."""
_USUALLY_TESTED = 500
"""Slurm's default of bf_max_job_test."""
SHOWN = 5
ELSEWHERE = "in partition "
"""Begins the change to another partition."""


def of_job(job: JobDetail, seen: Seen, about: str) -> tuple[list[Finding], tuple[str, ...]]:
    """Return the findings, the decisive first, and the changes with each of which it would start
    now.
    """
    reason = job.reason or "None"
    own = reasons.finding(job, reason, seen, about)
    excluded = _excluded(job, seen, about)
    before = [*excluded, *dependencies.of_job(job, seen)]
    if reason not in NEEDS_NODES:
        return [*before, own, *guard.of_job(job, about)], _when_released(job, reason, seen)
    found = capacity(job, seen)
    causes = [*before, *_of_request(job, found, seen, about)]
    causes += _of_nodes(job, seen, found, about)
    causes += _of_nodesets(job, seen, found)
    queue = _of_queue(job, seen, about, alone=found is not None and found.now)
    facts, starts = _of_capacity(job, found, seen, about)
    if reason in _VAGUE and any(it.level in (Level.BLOCKS, Level.WAITS) for it in causes + facts):
        own = replace(own, level=Level.SHOWS, remedy="", commands=())
    if reason == "BadConstraints":
        own, starts = _constrained(job, own, found, causes, seen), ()
    decisive = [it for it in facts if it.level is not Level.SHOWS]
    more = [it for it in facts if it.level is Level.SHOWS]
    findings = [*causes, *decisive, own, *guard.of_job(job, about), *queue, *more]
    if excluded:
        starts = tuple(it for it in starts if it.startswith(ELSEWHERE))
    ahead = contest.ahead(job, seen)
    if starts and ahead:
        return [*findings, _after_others(starts, len(ahead), about)], ()
    return findings, starts


def _after_others(starts: tuple[str, ...], ahead: int, about: str) -> Finding:
    """Return the changes as a fact: pending jobs before it may use them first."""
    text = (
        f"It would fit {', or '.join(starts)}. {ahead} pending job{'s' if ahead > 1 else ''} that "
        f"Slurm tries first may use this before."
    )
    return Finding("WouldFit", Level.SHOWS, about, text)


def _constrained(
    job: JobDetail, own: Finding, found: Capacity | None, causes: list[Finding], seen: Seen
) -> Finding:
    """Return the finding of a job that Slurm has set back, because no node could run it then."""
    if found is None or not found.now or any(it.level is Level.BLOCKS for it in causes):
        return own
    text = f"{own.cause} By now, nodes that could run it exist."
    release = seen.command(f"scontrol release {job.job_id}")
    return replace(own, cause=text, remedy="Release the job.", commands=(release,))


def _excluded(job: JobDetail, seen: Seen, about: str) -> list[Finding]:
    """Find why none of the job's partitions would start it. Return [] if one may."""
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


def _when_released(job: JobDetail, reason: str, seen: Seen) -> tuple[str, ...]:
    """Return the command that releases a held job that would start then, if it is one."""
    if (
        reason not in ("JobHeldUser", "JobHeldAdmin")
        # Slurm starts a job that it has requeued two minutes later.
        or job.restarts
        or contest.ahead(job, seen)
        or (found := capacity(job, seen)) is None
        or not found.now
    ):
        return ()
    return (f"released ({seen.command(f'scontrol release {job.job_id}')})",)


def _of_request(job: JobDetail, found: Capacity | None, seen: Seen, about: str) -> list[Finding]:
    """Find what no node, or no number of nodes, could give it."""
    if found is None or job.pending is None:
        return []
    if found.impossible:
        text = f"No node of its partitions could run it: {found.impossible}."
        remedy = "Request less, or add a NodeSet with such nodes."
        return [Finding("Impossible", Level.BLOCKS, about, text, remedy)]
    request = job.pending.request
    present = len(nodeset_partitions.nodes_of(seen, request.partitions))
    possible, scaled = nodeset_partitions.most_nodes(seen, request.partitions)
    if not present or request.min_nodes <= present or request.min_nodes <= possible:
        return []
    more = f", and autoscaling may have at most {possible} of them" if scaled else ""
    text = (
        f"It requests {request.min_nodes} nodes, and partition {', '.join(request.partitions)} has "
        f"{present}{more}."
    )
    return [
        Finding("TooManyNodes", Level.BLOCKS, about, text, "Request fewer nodes, or add nodes.")
    ]


def _of_queue(job: JobDetail, seen: Seen, about: str, *, alone: bool) -> list[Finding]:
    if (job.reason or "None") not in QUEUED:
        return []
    findings = []
    priority = job.pending.priority if job.pending is not None else 0
    ahead = contest.ahead(job, seen)
    if ahead:
        first = ahead[0]
        text = (
            f"Before it, whose priority is {priority}, Slurm tries {len(ahead)} pending jobs; "
            f"the first is {first.job} of {first.user} ({first.priority}, {first.reason})."
        )
        findings.append(
            Finding(
                "JobsAhead",
                Level.SHOWS,
                about,
                text,
                event="" if alone else "the jobs ahead of it start first",
            )
        )
    ends = contest.first_to_end(job, seen)
    if ends is not None and not alone:
        text = (
            f"The first job to end in its partitions is {ends.job} of {ends.user} on {ends.nodes}."
        )
        findings.append(
            Finding(
                "FirstToEnd",
                Level.SHOWS,
                about,
                text,
                event=f"job {ends.job} reaches its time limit",
                at=ends.at,
            )
        )
    return findings


# --- nodes


def _of_nodes(job: JobDetail, seen: Seen, found: Capacity | None, about: str) -> list[Finding]:
    """Find the nodes that it names or needs, and that are out of service."""
    if seen.slurm.nodes is None or job.pending is None:
        return []
    wanted = job.pending.request.partitions
    nodes = nodeset_partitions.nodes_of(seen, wanted)
    if not nodes:
        return _no_nodes(wanted, seen, about)
    named = names(job.pending.request.required_nodes)
    present = {it.name for it in seen.slurm.nodes}
    findings = [it for name in sorted(named - present) for it in _missing(name, seen, about)]
    out = [it for it in nodes if _is_out(it)]
    decisive = {it.name for it in out if it.name in named}
    if found is not None and not named and not found.impossible:
        decisive |= set(found.returned)
        if found.all_returned or (found.empty and not found.busy and not found.reserved):
            decisive |= {it.name for it in out}
    first = sorted(out, key=lambda it: it.name not in decisive)
    for it in first[:SHOWN]:
        troubles = node.trouble(it, seen)
        if it.name in decisive:
            findings += troubles
        elif not named:
            findings += [replace(each, level=Level.SHOWS) for each in troubles]
    if len(out) > SHOWN and not named:
        text = f"{len(out)} of {len(nodes)} nodes of its partitions take no jobs."
        findings.append(Finding("NodesOut", Level.SHOWS, about, text))
    findings += [
        _no_room(it, seen, about)
        for it in nodes
        if it.name in named - decisive and found is not None and not found.now
    ]
    return findings


def _no_nodes(wanted: tuple[str, ...], seen: Seen, about: str) -> list[Finding]:
    text = f"Slurm has no node in partition {', '.join(wanted)}."
    own = nodeset_partitions.of_partitions(seen, wanted)
    if any(nodeset_partitions.is_scaled(it) for it in own):
        return [
            Finding("NoNodes", Level.WAITS, about, text, event="autoscaling adds a node for it")
        ]
    if any(objects.number(it, "spec", "replicas") for it in own):
        return [Finding("NoNodes", Level.WAITS, about, text, event="a worker registers")]
    return [Finding("NoNodes", Level.BLOCKS, about, text, "Scale a NodeSet of the partition out.")]


def _missing(name: str, seen: Seen, about: str) -> list[Finding]:
    """Find why Slurm doesn't have a node that the job names."""
    worker = node.worker_of(seen, None, name)
    if worker is not None:
        text = f"It requests node {name}, whose worker has not registered."
        return [
            *pod_trouble.trouble(worker, seen),
            Finding("NamedNodeMissing", Level.WAITS, about, text, event=f"{name} registers"),
        ]
    text = f"It requests node {name}, which Slurm doesn't have."
    return [Finding("NamedNodeMissing", Level.BLOCKS, about, text, "Request another one.")]


def _no_room(it: Node, seen: Seen, about: str) -> Finding:
    """Return that a node that the job names is in service, and hasn't what the job requests."""
    free = max(0, it.effective_cpus - it.alloc_cpus)
    memory = max(0, it.effective_memory - it.alloc_memory)
    text = (
        f"It requests node {it.name}, of which {free} of {it.effective_cpus} CPUs and {memory} of "
        f"{it.effective_memory} MiB are free."
    )
    ends = next(
        (
            each
            for each in seen.slurm.running or ()
            if each.at is not None and each.at > seen.now and it.name in names(each.nodes)
        ),
        None,
    )
    event = "" if ends is None else f"job {ends.job} on it reaches its time limit"
    return Finding(
        "NamedNodeBusy", Level.WAITS, about, text, event=event, at=None if ends is None else ends.at
    )


def _is_out(it: Node) -> bool:
    out = {"NOT_RESPONDING", "INVALID", "INVALID_REG", "RESERVED", "MAINTENANCE"}
    return (
        states.is_drain(it.states)
        or states.is_down(it.states)
        or not it.states.isdisjoint(out)
        or bool(it.reservation)
    )


def names(hostlist: str) -> set[str]:
    """Return the nodes in a hostlist, none of one that can't be read."""
    try:
        return set(nodes_in(hostlist))
    except HostlistError:
        return set()


# --- NodeSets


def _of_nodesets(job: JobDetail, seen: Seen, found: Capacity | None) -> list[Finding]:
    """Describe the NodeSets with more workers of which the job would start: how many they have, and
    what their pods wait for.
    """
    findings: list[Finding] = []
    for it in _concerned(job, seen, found):
        about = resources.about(it)
        scaled = nodeset_partitions.is_scaled(it)
        if objects.dig(it, "spec", "replicas") == 0 and not scaled:
            name = f"nodesets.slinky.slurm.net/{objects.name(it)}"
            scale = f"kubectl -n {seen.namespace} scale {name} --replicas=1"
            text = "It has no workers: spec.replicas is 0."
            findings.append(
                Finding("ScaledToZero", Level.BLOCKS, about, text, "Scale it out.", (scale,))
            )
        findings += [
            replace(each, level=Level.SHOWS) if each.code == "Terminating" else each
            for each in resources.workers(it, seen)
        ]
        findings += resources.scaling(it)
    return findings + (resources.full_quotas(seen) if findings else [])


def _concerned(job: JobDetail, seen: Seen, found: Capacity | None) -> list[Object]:
    """Return the NodeSets whose further workers could run the job."""
    if job.pending is None or (found is not None and (found.impossible or found.now)):
        return []
    owners = nodeset_partitions.by_node(seen)
    named = names(job.pending.request.required_nodes)
    own = nodeset_partitions.of_partitions(seen, job.pending.request.partitions)
    if named:
        return []
    if found is None or found.not_modelled:
        return own
    registered = {it.name for it in seen.slurm.nodes or ()}
    known = {owner for name, owner in owners.items() if name in registered}
    return [it for it in own if objects.name(it) in found.added or objects.name(it) not in known]


def _not_started(job: JobDetail, seen: Seen) -> list[Finding]:
    """Find that autoscaling has seen free nodes on which Slurm doesn't start jobs with this
    reason.
    """
    refused = f"{NotCounted.NOT_STARTED.value}: {job.reason}"
    text = f"Autoscaling adds no node for it. {NotCounted.NOT_STARTED.cause}"
    return [
        Finding(NotCounted.NOT_STARTED.value, Level.SHOWS, resources.about(it), text)
        for it in seen.kube.controllers or ()
        if (counted := objects.condition(it, "JobsCounted")) is not None
        and refused in counted.message.split("; ")
    ]


# --- where it would start


def _of_capacity(
    job: JobDetail, found: Capacity | None, seen: Seen, about: str
) -> tuple[list[Finding], tuple[str, ...]]:
    if found is None:
        return [], ()
    if found.not_modelled:
        text = f"Where it would start is not computed: {found.not_modelled}."
        if job.pending is not None and any(
            nodeset_partitions.is_scaled(it)
            for it in nodeset_partitions.of_partitions(seen, job.pending.request.partitions)
        ):
            text += " Autoscaling adds no node for it."
        return [Finding("NotModelled", Level.SHOWS, about, text)], ()
    if found.now:
        return [_fits(job, seen, about), *_not_started(job, seen)], ()
    findings = []
    if found.reserved:
        findings.append(_of_reservations(found.reserved, seen, about))
    elif found.busy:
        text = "It would fit if fewer jobs ran: the nodes that it could use are taken."
        event = "jobs on these nodes end"
        findings.append(Finding("Busy", Level.SHOWS, about, text, event=event))
    starts = (
        []
        if found.minutes is None
        else [f"with a time limit of {found.minutes} minutes (--time={found.minutes})"]
    )
    by_name = {it.name: it for it in seen.slurm.nodes or ()}
    starts += [_in_service(by_name[it]) for it in found.returned]
    if found.all_returned:
        starts.append(f"with all {found.all_returned} nodes in service that take no jobs now")
    starts += _more_nodes(found, seen)
    starts += found.without
    free = [it for it in found.elsewhere if not contest.ahead(job, seen, (it,))]
    starts += [f"{ELSEWHERE}{it}" for it in free]
    return findings, tuple(starts)


def _in_service(it: Node) -> str:
    """Return the change that gives the job a node which takes no jobs now."""
    if it.reservation and not states.is_drain(it.states) and not states.is_down(it.states):
        return f"without the reservation of node {it.name}"
    return f"with node {it.name} in service"


def _fits(job: JobDetail, seen: Seen, about: str) -> Finding:
    """Return that the free nodes should suffice, and what may be the cause if Slurm has seen them,
    too.
    """
    own = set(job.pending.request.partitions) if job.pending is not None else set()
    changed = max(
        (
            max(it.last_busy, it.slurmd_start_time, it.reason_changed_at)
            for it in seen.slurm.nodes or ()
            if not own.isdisjoint(it.partitions)
        ),
        default=0,
    )
    if job.reason in _TESTED and job.last_evaluated > changed:
        text = (
            "Free nodes should suffice, and Slurm has looked at it since: it has a rule that is "
            "not known here."
        )
        groups = sorted(
            {
                f"partition {it.name} allows only the groups {', '.join(it.allow_groups)}"
                for it in seen.slurm.partitions or ()
                if it.name in own and it.allow_groups
            }
        )
        text += f" For example: {'; '.join(groups)}." if groups else ""
        remedy = (
            "Compare what the job requests with the configuration of the partition and of the "
            "topology."
        )
        show = seen.command(f"scontrol show job {job.job_id}")
        return Finding("UnknownRule", Level.WARNS, about, text, remedy, (show,))
    text = "It fits on what is free now."
    if job.scheduled_nodes and job.start_time >= seen.now + _SOON_SECONDS:
        return _planned_later(job, seen, about, text)
    if job.reason == "Priority":
        text += " Slurm reserves nodes for jobs ahead of it, or has not looked at it since."
    return Finding("FitsNow", Level.SHOWS, about, text, event="the scheduler looks at it again")


def _planned_later(job: JobDetail, seen: Seen, about: str, text: str) -> Finding:
    """Return that Slurm has planned the job for later, and may keep that plan for a while although
    nodes are free, or could be powered up.
    """
    own = set(job.pending.request.partitions) if job.pending is not None else set()
    powered_down = [
        it.name
        for it in seen.slurm.nodes or ()
        if "POWERED_DOWN" in it.states and not own.isdisjoint(it.partitions)
    ]
    if powered_down:
        names_of = ",".join(powered_down[:SHOWN]) + ("…" if len(powered_down) > SHOWN else "")
        text += f" Nodes of its partitions are powered down: {names_of}."
    text += (
        f" Slurm has planned it for later, on {job.scheduled_nodes}, and keeps this plan until it "
        "tests the job again."
    )
    most, waiting = _most_tested(seen), len(seen.slurm.waiting or ())
    event, at = "its planned start comes", float(job.start_time)
    if waiting <= most:
        return Finding("PlannedLater", Level.WAITS, about, text, event=event, at=at)
    text += (
        f" Of {waiting} pending jobs, its backfill scheduler tests at most {most} in a cycle, "
        "those with the highest priority first."
    )
    remedy = "Raise bf_max_job_test in SchedulerParameters, or wait for the jobs before it."
    return Finding("PlannedLater", Level.WARNS, about, text, remedy, event=event, at=at)


def _most_tested(seen: Seen) -> int:
    """Return how many jobs the backfill scheduler tests in a cycle."""
    number = seen.slurm.scheduler_parameters.get("bf_max_job_test", "")
    return int(number[:9]) if number.isascii() and number.isdecimal() else _USUALLY_TESTED


def _more_nodes(found: Capacity, seen: Seen) -> list[str]:
    """Return the further nodes with which it starts, in one text; [] where nobody could add them
    now.
    """
    parts, how = [], []
    for name, count in found.added.items():
        nodeset = objects.named(seen.kube.nodesets, name)
        if nodeset is None or resources.waiting_workers(nodeset, seen):
            return []
        most = objects.dig(nodeset, "spec", "autoscaling", "max")
        replicas = objects.number(nodeset, "spec", "replicas") + count
        if nodeset_partitions.is_scaled(nodeset):
            how.append(
                "autoscaling sets its size" + (f", at most {most}" if isinstance(most, int) else "")
            )
        else:
            resource = f"nodesets.slinky.slurm.net/{name}"
            how.append(f"kubectl -n {seen.namespace} scale {resource} --replicas={replicas}")
        parts.append(f"{count} more node{'s' if count > 1 else ''} of NodeSet {name}")
    return [f"with {' and '.join(parts)} ({'; '.join(how)})"] if parts else []


def _of_reservations(nodes: tuple[str, ...], seen: Seen, about: str) -> Finding:
    """Reservations that begin before the job would end."""
    found = [
        it
        for it in seen.slurm.reservations or ()
        if it.start_time > seen.now
        and (not it.end_time or it.end_time > it.start_time)
        and not set(nodes).isdisjoint(it.node_names())
    ]
    reserving = ", ".join(it.name for it in found)
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    text = (
        f"It would fit on nodes that are free now, but they are reserved before it would end: "
        f"{', '.join(nodes[:SHOWN])}{more} (reservation {reserving})."
    )
    end = max((it.end_time for it in found), default=0)
    event = f"reservation {reserving} ends" if end else ""
    return Finding(
        "ReservedSoon", Level.WAITS, about, text, event=event, at=float(end) if end else None
    )
