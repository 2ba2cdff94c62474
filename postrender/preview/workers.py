"""What happens to the workers of a NodeSet, decided by the operator's own policy.

Which workers are drained first is the decision of its first pass over the state. The others that
have to be replaced follow, a few at a time: when, depends on how long the first ones take.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from postrender.preview.state import SlurmState
from sidecars import objects
from sidecars.policy.nodeset import drain, needs, power, replicas
from sidecars.policy.nodeset.actions import CreatePods, DeletePod, Drain
from sidecars.policy.nodeset.decide import Decision, decide
from sidecars.policy.nodeset.desired import desired_pods
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.needs import Answer, Need
from sidecars.policy.nodeset.records import Desired, DesiredPods, Observed, WorkerPod
from sidecars.policy.nodeset.revisions import Stored, choose
from sidecars.policy.placement import Rules
from sidecars.slurm.errors import Malformed
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.records import Job
from sidecars.workloads import nodeset as render
from sidecars.workloads.facts import Facts
from sidecars.workloads.nodeset import Revision
from sidecars.workloads.resources import Controller, NodeSet, duration


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job on a worker that is replaced or deleted. Times are seconds since the epoch."""

    job_id: int
    user: str
    ends: float | None
    """When its time limit is over; None if it has none."""
    by: float | None
    """When it is ended if it still runs; None: the worker waits for it."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker whose pod is created, replaced or deleted."""

    pod: str
    slurm_node: str
    action: str
    """create, replace or delete."""
    first: bool
    """It is drained at once, or deleted or created. Otherwise it follows when others are done."""
    drained: bool
    """Its Slurm node is drained before."""
    jobs: tuple[JobEnd, ...] = ()
    jobs_known: bool = True


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a NodeSet that a change concerns."""

    nodeset: str
    """Namespace and name."""
    workers: tuple[Worker, ...]
    why: tuple[str, ...] = ()
    """What differs in the pods that are replaced."""
    notes: tuple[str, ...] = ()
    """What else is to be known: the update strategy, an unknown Slurm."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A NodeSet's surroundings."""

    pods: Sequence[WorkerPod]
    slurm: SlurmState
    stored: Sequence[Stored]
    kube_nodes: Mapping[str, objects.Node]
    now: float
    jobs_known: bool = True
    """Whether the pods and jobs are those of a live cluster."""


def revision(
    after: NodeSet, controller: Controller, facts: Facts, stored: Sequence[Stored]
) -> Revision:
    """Return the revision of new pods: a stored one with the same content, or a new one."""
    asked = render.revision(after, controller, facts, after.status.collision_count)
    return choose(asked, stored).revision


def of_nodeset(
    after: NodeSet, controller: Controller, facts: Facts, seen: Seen, why: Sequence[str]
) -> Workers:
    """Predict what happens to the workers. `why` names the differences of the pods. Raises
    ResourceError and MissingReferenceError.
    """
    chosen = revision(after, controller, facts, seen.stored)
    template = render.pod_template(after, controller, facts, chosen)
    ordinals = None
    if after.spec.power_saving.enabled and seen.jobs_known:
        # The others come with jobs.
        line, problem = power.line(after)
        ordinals = power.ordinals(
            after, seen.pods, seen.slurm.view(), offered=bool(line), problem=problem
        )
    rules = Rules.of(template["spec"])
    wanted = desired_pods(after, chosen.hash, rules, seen.kube_nodes, seen.pods, seen.now, ordinals)
    return _workers(after, wanted, seen, why)


def of_deleted(before: NodeSet, seen: Seen) -> Workers:
    """Predict what happens when the NodeSet is deleted."""
    deleted = msgspec.structs.replace(
        before,
        metadata=msgspec.structs.replace(
            before.metadata,
            deletion_timestamp=datetime.fromtimestamp(seen.now, tz=UTC),
            finalizers=(),
        ),
    )
    return _workers(
        deleted, desired_pods(deleted, "", None, seen.kube_nodes, seen.pods, seen.now), seen, ()
    )


def _workers(nodeset: NodeSet, wanted: DesiredPods, seen: Seen, why: Sequence[str]) -> Workers:
    desired = Desired(nodeset=nodeset, pods=wanted, creatable=not wanted.deleting)
    observed = Observed(pods=seen.pods, slurm=seen.slurm.view(), connected=not seen.slurm.problem)
    decision = decided(desired, observed, seen)
    live = sorted(
        (it for it in seen.pods if not it.terminating),
        key=lambda it: replicas.deletion_order(it, observed.slurm),
    )
    condemned = replicas.condemn(
        wanted, seen.pods, [it for it in live if not it.finished], observed.slurm
    )
    drained = {name for it in decision.actions if isinstance(it, Drain) for name in it.slurm_nodes}
    deleted = {it.deletion.pod.name for it in decision.actions if isinstance(it, DeletePod)}
    by = None
    if wanted.deleting and nodeset.spec.deletion_timeout is not None:
        by = seen.now + duration(nodeset.spec.deletion_timeout, "spec.deletionTimeout")
    found = []
    for pod in live:
        outdated = not wanted.deleting and pod.revision != wanted.revision
        first = pod.name in condemned or pod.name in deleted
        if not first and not outdated:
            continue
        action = (
            "delete"
            if wanted.deleting or condemned.get(pod.name) in replicas.NOT_REPLACED
            else "replace"
        )
        found.append(
            Worker(
                pod.name,
                pod.slurm_node,
                action,
                first=first,
                drained=pod.slurm_node in drained or pod.started,
                jobs=jobs_on(pod.slurm_node, seen.slurm.jobs, by),
                jobs_known=seen.jobs_known and not seen.slurm.problem,
            )
        )
    found.sort(key=lambda it: not it.first)
    found += _created(nodeset, decision, {it.name for it in seen.pods})
    replaced = any(it.action == "replace" for it in found)
    notes = list(_notes(nodeset, wanted, seen, found))
    return Workers(
        f"{nodeset.namespace}/{nodeset.name}",
        tuple(found),
        tuple(why) if replaced else (),
        tuple(notes),
    )


def decided(desired: Desired, observed: Observed, seen: Seen) -> Decision:
    """Return the decision, stepped until it needs nothing more. Raises RuntimeError if that never
    comes.
    """
    known: dict[Need, Answer] = {}
    for _ in range(8):
        decision = decide(desired, replace(observed, answers=known), Memory(), seen.now)
        if not decision.needs:
            return decision
        known |= {it: _answer(it, seen) for it in decision.needs}
    raise RuntimeError(f"the decision still needs {decision.needs}")


def _answer(need: Need, seen: Seen) -> Answer:
    match need:
        case needs.Jobs() if not seen.slurm.problem:
            return needs.Known(needs.JobList(tuple(seen.slurm.jobs), 0.0))
        case needs.Reservations() if not seen.slurm.problem:
            return needs.Known(())
        case needs.Deadlines() if not seen.slurm.problem:
            return needs.Known(True)
    return needs.Pending("a preview doesn't ask")


def _created(nodeset: NodeSet, decision: Decision, present: set[str]) -> Iterable[Worker]:
    for action in decision.actions:
        if isinstance(action, CreatePods):
            for ordinal in action.ordinals:
                host = render.hostname(nodeset, ordinal)
                yield Worker(
                    render.pod_name(nodeset, ordinal), host, "create", first=True, drained=False
                )
            for node in action.kube_nodes:
                name = render.daemon_pod_name(nodeset, node)
                if name not in present:
                    yield Worker(name, node, "create", first=True, drained=False)


def _notes(
    nodeset: NodeSet, wanted: DesiredPods, seen: Seen, found: Sequence[Worker]
) -> Iterable[str]:
    outdated = [it for it in found if it.action == "replace"]
    if seen.slurm.problem and any(it.action != "create" for it in found):
        yield (
            f"Slurm's state is unknown ({seen.slurm.problem}): no worker is deleted until it is "
            "known"
        )
    yield from _kept([it.slurm_node for it in found if it.action == "delete"], seen.slurm)
    if outdated and not any(it.first for it in outdated):
        kind = nodeset.spec.update_strategy.type
        if kind == "OnDelete":
            yield "updateStrategy OnDelete: workers keep their pods until you delete them"
        elif kind == "ScheduledUpdate":
            yield (
                "updateStrategy ScheduledUpdate: workers are replaced in reservation "
                f"{wanted.reservation}"
            )
    elif outdated:
        yield (
            f"at most {wanted.max_unavailable} of {wanted.replicas} workers are replaced at a time"
        )


def _kept(deleted: Iterable[str], slurm: SlurmState) -> Iterable[str]:
    """Describe what happens to the jobs that name nodes of deleted workers."""
    named, gone = named_nodes(slurm.jobs, (), slurm.nodes), set(deleted)
    if named.every and gone:
        yield (
            f"{named.every} may name any node, because its list of nodes can't be read: the nodes "
            "of deleted workers stay DOWN until it has ended"
        )
    for node in sorted(gone & set(named)):
        waits = "it stays DOWN, and the job waits until a worker has this name again"
        yield f"{named[node]} names Slurm node {node}: {waits}"


def jobs_on(slurm_node: str, jobs: Iterable[Job], by: float | None) -> tuple[JobEnd, ...]:
    """Return the jobs that have begun on the node and not ended. `by`: when they are ended, None if
    they are waited for.
    """
    found = []
    for job in jobs:
        try:
            if slurm_node not in drain.nodes_with_jobs([job]):
                continue
        except Malformed:
            continue
        endless = job.time_limit is None or "SUSPENDED" in job.states
        ends = math.inf if endless else job.start_time + 60.0 * (job.time_limit or 0)
        found.append(JobEnd(job.job_id, job.user_name, None if math.isinf(ends) else ends, by))
    return tuple(found)
