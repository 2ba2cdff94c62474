"""One pass over one NodeSet: observe, ask the policy, carry out, report."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sidecars.custom_resources import NODESETS, WORKERS_TERMINATE_FIRST
from sidecars.kube import (
    AlreadyExists,
    Forbidden,
    Invalid,
    KubeError,
    Manifest,
)
from sidecars.operator.keys import distribution
from sidecars.operator.nodeset import (
    claims,
    creation,
    gpus,
    removal,
    reporting,
    revisions,
    scheduled,
    slurm_records,
    steps,
)
from sidecars.operator.nodeset.memory import Memories, Memory, Observed
from sidecars.operator.nodeset.observation import as_placed, worker_pod
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.deadlines import refresh_deadlines
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizer
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import order
from sidecars.policy import placement, upgrades
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import drain, lost, maintenance
from sidecars.policy.nodeset import pods as policy
from sidecars.policy.nodeset.failures import failures
from sidecars.policy.nodeset.records import Desired, SlurmView, WorkerPod
from sidecars.policy.upgrades import Hold, Live
from sidecars.slurm.errors import NotYet, SlurmError
from sidecars.workloads import nodeset as render
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.facts import Facts, MissingReferenceError
from sidecars.workloads.resources import Controller, NodeSet, ResourceError, duration, read
from sidecars.workloads.structure import StructureError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """What new pods are made from: hash of the revision, its collisions, the template; None where it can't be made.

    `held`: why it is not the newest one.
    """

    revision: str
    collisions: int | None
    template: Manifest | None
    held: Hold | None = None


async def reconcile(runtime: Runtime, memories: Memories, key: Key) -> float | None:
    """One pass. Returns after how many seconds to look again if nothing wakes the NodeSet earlier."""
    namespace, name = key
    manifest = runtime.caches.nodesets.store.get(namespace, name)
    if manifest is None:
        runtime.expectations.forget(key)
        memories.forget(key)
        return None
    try:
        nodeset = read(NodeSet, manifest)
    except ResourceError as error:
        await runtime.status.report(NODESETS, manifest, [Condition("Ready", "False", "Invalid", str(error))])
        creation.coming(runtime, memories.of(key), 0, 0)
        gone = not runtime.caches.pods.store.by("owner", manifest["metadata"]["uid"])
        if manifest["metadata"].get("deletionTimestamp") and gone:
            await remove_finalizer(runtime, NODESETS, manifest, WORKERS_TERMINATE_FIRST)
        return None
    if nodeset.metadata.deletion_timestamp is None:
        await add_finalizer(runtime, NODESETS, manifest, WORKERS_TERMINATE_FIRST)
    cluster = runtime.clusters.get((namespace, nodeset.spec.controller_ref.name))
    memory = memories.of(key)
    memory.urgent = False
    # Asked before the pods are looked at: what is seen of our own writes later does not count for what was decided.
    settled = runtime.expectations.satisfied(key)
    pods = _pods_of(runtime, memory, nodeset)
    problem: Condition | None = None
    made = Made(nodeset.status.node_set_hash, nodeset.status.collision_count, None)
    if nodeset.metadata.deletion_timestamp is None:
        try:
            made = await _template(runtime, manifest, nodeset)
            problem = made.held.condition if made.held is not None else None
        except NotUsableError as error:
            # Without a template nothing can be created; what is there is still drained and scaled in safely.
            problem = Condition("Ready", "False", error.reason, str(error))
    desired = _desired(runtime, memory, nodeset, made, pods)
    if cluster is not None:
        # Their `node` sidecars delete the records; many at once must not look like a Slurm that lost its state.
        cluster.poller.expect_removal(pod.slurm_node for pod in pods if pod.terminating)
    view = cluster.view() if cluster is not None else SlurmView({}, _unconnected(runtime, nodeset))
    plan = policy.plan(desired, pods, view, runtime.now())
    decided = True
    busy = [pod.slurm_node for pod in pods if drain.is_busy(pod, view)] if plan.cordon else []
    if cluster is not None and busy and len(pods) > desired.replicas > 0 and not desired.deleting:
        # Whose jobs end first decides who goes.
        controller = (namespace, nodeset.spec.controller_ref.name)
        decided = await refresh_deadlines(runtime, controller, cluster, busy)
        view = cluster.view()
        plan = policy.plan(desired, pods, view, runtime.now())
    if cluster is not None and any(deletion.drained for deletion in plan.delete):
        # Only now is it worth reading all jobs.
        view = await _with_jobs(cluster, view, pods)
        plan = policy.plan(desired, pods, view, runtime.now())
    if not decided:
        plan = policy.undecided(plan)
    plan, lost_again = _with_lost(memory, pods, view, plan, runtime.now())
    memory.failures, may_be_made = failures(
        memory.failures,
        pods,
        runtime.now(),
        unregistered={it.pod.uid for it in plan.delete if it.event == lost.NOT_REGISTERED},
        absent=memory.absent_since,
    )
    failure: Exception | None = None
    again: float | None = None
    try:
        again = await steps.carry_out(
            runtime, memory, manifest, nodeset, made.template, made.revision, desired, plan, cluster, settled=settled
        )
    except (KubeError, SlurmError, NotUsableError) as error:
        # The rest of the pass is done all the same; the error is for the queue's back-off.
        failure = error
        problem = Condition("Ready", "False", _reason_of(error), str(error))
    if cluster is not None and view.problem is None:
        # A Slurm that has fallen silent since must not be waited for once more.
        view = replace(view, problem=cluster.poller.trouble or None)
    if made.template is not None and failure is None and settled:
        await revisions.prune(runtime, nodeset, pods, made.revision)
    outcome = scheduled.Outcome()
    try:
        if not await claims.keep(runtime, memory, nodeset, pods, plan):
            again = 0.0
        outcome = await scheduled.keep(runtime, manifest, nodeset, desired, pods, cluster, view)
    except KubeError as error:
        failure = failure or error
    left = await slurm_records.prune(runtime, memory, nodeset, cluster, view)
    remaining = [pod for pod in pods if not (desired.forced and lost.is_overdue(pod, runtime.now()))]
    named = await removal.partitions(
        runtime,
        memory,
        nodeset,
        cluster,
        view,
        leaving=desired.deleting and not remaining,
        unbound=desired.deleting and _controller_going(runtime, nodeset),
    )
    if desired.deleting and not remaining and failure is None and settled:
        wait = named.again or outcome.again or _record_wait(runtime, nodeset, view, left)
        if wait is None:
            await remove_finalizer(runtime, NODESETS, manifest, WORKERS_TERMINATE_FIRST)
            return None
        left = wait
    # What was made and deleted meanwhile is told too.
    now_there = _pods_of(runtime, memory, nodeset)
    unregistered = lost.not_registered(now_there, view, memory.absent_since, runtime.now())
    ready = (
        reporting.ready(nodeset, desired, now_there, plan, unregistered)
        if problem is None or desired.deleting
        else problem
    )
    if named.condition is not None and desired.deleting and not remaining:
        ready = replace(named.condition, type="Ready")
    await runtime.status.report(
        NODESETS,
        manifest,
        [
            ready,
            reporting.slurm_reachable(view),
            *(it for it in (outcome.condition, named.condition) if it is not None),
        ],
        reporting.status(nodeset, desired, now_there, view, made.revision)
        | ({"collisionCount": made.collisions} if made.collisions else {})
        | _pins(nodeset, desired)
        | {"partitions": list(named.declared)},
    )
    ready_pods = sum(1 for pod in now_there if pod.ready)
    coming = creation.coming(runtime, memory, ready_pods, desired.replicas if failure is None else 0)
    if failure is not None:
        raise failure
    hints = (
        again,
        coming,
        plan.look_again,
        left,
        outcome.again,
        may_be_made,
        lost_again,
        named.again,
        _available_in(nodeset, now_there),
        _forced_in(runtime, nodeset) if pods else None,
        lost.OVERDUE_SECONDS if pods and desired.forced else None,
        runtime.expectations.remaining(key) or None,
        order.again(made.held),
    )
    return min((hint for hint in hints if hint is not None), default=None)


def _with_lost(
    memory: Memory, pods: Sequence[WorkerPod], view: SlurmView, plan: policy.PodPlan, now: float
) -> tuple[policy.PodPlan, float | None]:
    """The plan with the pods that are lost, and after how many seconds to look again."""
    since = memory.absent_since = lost.absent(pods, view, memory.absent_since, now)
    planned = {deletion.pod.name for deletion in plan.delete}
    found = (lost.stuck(pods, view, now), lost.unregistered(pods, view, since, now))
    more = [it for each in found for it in each.delete if it.kube_node_lost or it.pod.name not in planned]
    again = min((each.look_again for each in found if each.look_again is not None), default=None)
    return (replace(plan, delete=(*plan.delete, *more)) if more else plan), again


def _pins(nodeset: NodeSet, desired: Desired) -> dict[str, Any]:
    """status.ordinalToNode as a merge patch: an entry is taken away by null."""
    present = nodeset.status.ordinal_to_node or {}
    if not desired.pins:
        return {"ordinalToNode": None} if present else {}
    return {"ordinalToNode": dict.fromkeys(present) | dict(desired.pins)}


async def _with_jobs(cluster: Cluster, view: SlurmView, pods: Sequence[WorkerPod]) -> SlurmView:
    nodes = frozenset(pod.slurm_node for pod in pods)
    try:
        found = await cluster.poller.jobs()
        return replace(
            view,
            nodes_with_jobs=drain.nodes_with_jobs(found.value.jobs),
            unread=cluster.poller.changed_after(found.asked_at, nodes),
        )
    except NotYet:
        return replace(view, unread=nodes)
    except SlurmError as error:
        return replace(view, problem=f"the jobs can't be read: {error}")


def _reason_of(error: Exception) -> str:
    if isinstance(error, NotUsableError):
        return error.reason
    if isinstance(error, AlreadyExists):
        return "NameTaken"
    return "Refused" if isinstance(error, Forbidden | Invalid) else "Failed"


def _record_wait(runtime: Runtime, nodeset: NodeSet, view: SlurmView, left: float | None) -> float | None:
    """How long the last step of leaving, the removal of records, is still waited for; None when it is over."""
    deleted = nodeset.metadata.deletion_timestamp
    over = deleted is None or runtime.now() >= deleted.timestamp() + _deletion_timeout(nodeset)
    if over or nodeset.spec.node_records == "Keep":
        return None
    return 1.0 if view.problem is not None and not _controller_going(runtime, nodeset) else left


def _forced_in(runtime: Runtime, nodeset: NodeSet) -> float | None:
    """Seconds until the deadline of a NodeSet that leaves together with its Controller."""
    deleted = nodeset.metadata.deletion_timestamp
    if deleted is None or not _controller_going(runtime, nodeset):
        return None
    left = deleted.timestamp() + _deletion_timeout(nodeset) - runtime.now()
    return left if left > 0 else None


def _deletion_timeout(nodeset: NodeSet) -> float:
    return duration(nodeset.spec.deletion_timeout, "spec.deletionTimeout")


def _controller_going(runtime: Runtime, nodeset: NodeSet) -> bool:
    controller = runtime.caches.controllers.store.get(nodeset.namespace, nodeset.spec.controller_ref.name)
    return controller is None or controller["metadata"].get("deletionTimestamp") is not None


def _pods_of(runtime: Runtime, memory: Memory, nodeset: NodeSet) -> list[WorkerPod]:
    """The NodeSet's pods as the policy sees them; those whose records are the same objects are not looked at again."""
    now, found = runtime.now(), []
    before, after = memory.observed, {}
    min_ready = nodeset.spec.min_ready_seconds
    for pod in runtime.caches.pods.store.by("owner", nodeset.metadata.uid):
        node = runtime.caches.kube_nodes.store.get(None, pod.spec.node_name) if pod.spec.node_name else None
        known = before.get(pod.metadata.uid)
        if known is not None and known.holds(pod, node, min_ready):
            after[pod.metadata.uid] = known
            found.append(known.seen)
            continue
        seen = worker_pod(
            pod, node, now=now, min_ready_seconds=min_ready, explained_by=runtime.settings.propagated_node_conditions
        )
        after[pod.metadata.uid] = Observed(pod, node, min_ready, seen)
        found.append(seen)
    memory.observed = after
    return found


async def _template(runtime: Runtime, manifest: Manifest, nodeset: NodeSet) -> Made:
    """Raises NotUsableError with the reason why there can be no pods now."""
    try:
        controller = runtime.lookup.needed_controller(nodeset.namespace, nodeset.spec.controller_ref.name)
        taken = creation.conflict(nodeset, runtime.lookup.nodesets_of(nodeset.namespace, controller.name))
        if taken is not None:
            raise NotUsableError("NameConflict", taken)
        distribution.wait_for(runtime, nodeset.namespace, slurm_key(controller))
        facts = await runtime.lookup.facts(controller, manifest)
        # First of all, so that what can't be rendered is never stored.
        template = render.pod_template(nodeset, controller, facts)
        refused = gpus.refusal(runtime, nodeset, template)
        if refused:
            raise NotUsableError("PartOfGpus", refused)
        await workload.apply_all(runtime, manifest, "NodeSet", lambda: render.objects(nodeset, controller, facts))
        held = _held(runtime, nodeset, controller)
        if held is not None:
            stays, hold = held
            if stays is None:
                return Made(nodeset.status.node_set_hash, nodeset.status.collision_count, None, hold)
            stay = _rendered(nodeset, controller, facts, stays)
            return Made(stays.hash, nodeset.status.collision_count, stay, hold)
        revision, collisions = await revisions.current(runtime, nodeset, controller, facts)
        return Made(revision.hash, collisions or None, _rendered(nodeset, controller, facts, revision))
    except MissingReferenceError as error:
        raise NotUsableError("ReferenceMissing", f"{error}; it is taken up as soon as it does") from error
    except ResourceError as error:
        raise NotUsableError("Invalid", str(error)) from error
    except (Forbidden, Invalid) as error:
        raise NotUsableError("Refused", f"the API server refuses the ControllerRevision: {error}") from error


def _held(runtime: Runtime, nodeset: NodeSet, controller: Controller) -> tuple[render.Revision | None, Hold] | None:
    """Why not to go on to the newest revision, and which to stay with, if any; None if nothing is in the way."""
    stored = revisions.stored_of(runtime, nodeset)
    wanted = str(nodeset.spec.slurmd.get("image") or "")
    if not wanted:
        return None
    if not stored:
        hold = upgrades.hold("slurmd", None, wanted, order.before_workers(runtime, controller))
        return (None, hold) if hold is not None else None
    newest = max(stored, key=lambda item: item.number).revision
    image = str((newest.data["spec"].get("slurmd") or {}).get("image") or "")
    if not image or image == wanted:
        return None
    hold = upgrades.hold("slurmd", Live(image, ready=True), wanted, order.before_workers(runtime, controller))
    return (newest, hold) if hold is not None else None


def _rendered(nodeset: NodeSet, controller: Controller, facts: Facts, revision: render.Revision) -> Manifest:
    try:
        return render.pod_template(nodeset, controller, facts, revision)
    except StructureError as error:
        # A base of another release, with variables that this one doesn't know.
        log.warning("NodeSet %s/%s: revision %s: %s", nodeset.namespace, nodeset.name, revision.hash, error)
        return render.pod_template(nodeset, controller, facts)


def _desired(runtime: Runtime, memory: Memory, nodeset: NodeSet, made: Made, pods: Sequence[WorkerPod]) -> Desired:
    spec, deleted = nodeset.spec, nodeset.metadata.deletion_timestamp
    late = deleted is not None and runtime.now() >= deleted.timestamp() + _deletion_timeout(nodeset)
    daemon_set = spec.scaling_mode == "DaemonSet"
    memory.rules = placement.Rules.of(made.template["spec"]) if daemon_set and made.template is not None else None
    places = _places(runtime, memory.rules, pods) if daemon_set else None
    replicas = spec.replicas if places is None else sum(1 for place in places.values() if place.should_run)
    maximum = spec.update_strategy.rolling_update.max_unavailable
    return Desired(
        namespace=nodeset.namespace,
        name=nodeset.name,
        replicas=replicas,
        places=places,
        revision=made.revision,
        rolling=made.template is not None and spec.update_strategy.type == "RollingUpdate",
        max_unavailable=_pods_that_may_be_unavailable(maximum, replicas),
        deleting=deleted is not None,
        forced=late and _controller_going(runtime, nodeset),
        reservation=maintenance.name_of(nodeset.name)
        if made.template is not None and spec.update_strategy.type == "ScheduledUpdate"
        else None,
        pins=creation.pins(nodeset, pods, lambda name: _fits(runtime, made, name)),
    )


def _fits(runtime: Runtime, made: Made, kube_node: str) -> bool:
    """Whether a pinned pod could still run on its Kubernetes node. Without a template: who knows, so yes."""
    node = runtime.caches.kube_nodes.store.get(None, kube_node)
    if made.template is None:
        return True
    return node is not None and placement.Rules.of(made.template["spec"]).place(as_placed(node)).may_stay


def _places(
    runtime: Runtime, rules: placement.Rules | None, pods: Sequence[WorkerPod]
) -> Mapping[str, placement.Place]:
    """Each Kubernetes node as a place for a pod; without rules, for want of a template, everything stays as it is."""
    nodes = runtime.caches.kube_nodes.store.values()
    if rules is None:
        where = {pod.place: pod.slurm_node for pod in pods if pod.place is not None}
        return {name: placement.Place(name, host, should_run=True, may_stay=True) for name, host in where.items()}
    settled = {pod.slurm_node: pod.place for pod in pods if pod.place is not None}
    return placement.with_distinct_names((rules.place(as_placed(node)) for node in nodes), settled)


def _pods_that_may_be_unavailable(value: int | str, replicas: int) -> int:
    """A number of pods, at least 1; a percentage is of the replicas, rounded up."""
    if isinstance(value, str):
        percent = value.removesuffix("%")
        value = math.ceil(int(percent) * replicas / 100) if percent.isdigit() else 1
    return max(1, value)


def _unconnected(runtime: Runtime, nodeset: NodeSet) -> str:
    name = nodeset.spec.controller_ref.name
    if runtime.lookup.restapi_of(nodeset.namespace, name) is None:
        return f"no RestApi refers to Controller {name!r}; enable one"
    return f"the JWT key of Controller {name!r} is missing"


def _available_in(nodeset: NodeSet, pods: Sequence[WorkerPod]) -> float | None:
    """A pod becomes available by time alone."""
    return nodeset.spec.min_ready_seconds + 1.0 if any(pod.ready and not pod.available for pod in pods) else None
