"""One pass over one NodeSet: observe, ask the policy, carry out, report."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sidecars.kube import (
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    AlreadyExists,
    Forbidden,
    Invalid,
    KubeError,
    Manifest,
    NotFound,
)
from sidecars.operator.caches import NODESETS
from sidecars.operator.clusters import Cluster
from sidecars.operator.context import WORKERS_LEAVE_FIRST, Context, Key, NotUsableError
from sidecars.operator.nodeset.observation import POD_CORDONED_BY, slurm_node, worker_pod
from sidecars.policy import nodeset as policy
from sidecars.policy.conditions import Condition
from sidecars.slurm import states
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.extra import pod_facts
from sidecars.slurm.hostlists import compress
from sidecars.slurm.records import Node
from sidecars.workloads import names
from sidecars.workloads import nodeset as render
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import NodeSet, ResourceError, duration, read

log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> float | None:
    """One pass. Returns after how many seconds to look again if nothing wakes the NodeSet earlier."""
    namespace, name = key
    manifest = context.caches.nodesets.store.get(namespace, name)
    if manifest is None:
        context.expectations.forget(key)
        context.orphaned_since.pop(key, None)
        return None
    try:
        nodeset = read(NodeSet, manifest)
    except ResourceError as error:
        await context.report(NODESETS, manifest, [Condition("Ready", "False", "Invalid", str(error))])
        gone = not context.caches.pods.store.by("owner", manifest["metadata"]["uid"])
        if manifest["metadata"].get("deletionTimestamp") and gone:
            await context.let_go(NODESETS, manifest, WORKERS_LEAVE_FIRST)
        return None
    if nodeset.metadata.deletion_timestamp is None:
        await context.hold(NODESETS, manifest, WORKERS_LEAVE_FIRST)
    cluster = context.clusters.get((namespace, nodeset.spec.controller_ref.name))
    pods = _pods_of(context, nodeset)
    problem: Condition | None = None
    template: Manifest | None = None
    revision = nodeset.status.node_set_hash
    try:
        revision, template = _template(context, nodeset)
    except NotUsableError as error:
        # Without a template nothing can be created; what is there is still drained and scaled in safely.
        problem = Condition("Ready", "False", error.reason, str(error))
    desired = _desired(context, nodeset, revision, rolling=template is not None)
    if cluster is not None:
        # Their `node` sidecars delete the records; many at once must not look like a Slurm that lost its state.
        cluster.poller.expect_removal(pod.slurm_node for pod in pods if pod.deleting)
    view = cluster.view() if cluster is not None else policy.SlurmView({}, _unconnected(context, nodeset))
    plan = policy.plan(desired, pods, view, context.now())
    if cluster is not None and any(deletion.drained for deletion in plan.delete):
        # Only now is it worth reading all jobs.
        view = await _with_jobs(cluster, view)
        plan = policy.plan(desired, pods, view, context.now())
    failure: Exception | None = None
    try:
        await _carry_out(context, manifest, nodeset, template, revision, plan, cluster)
    except (KubeError, SlurmError) as error:
        # The rest of the pass is done all the same; the error is for the queue's back-off.
        failure = error
        problem = Condition("Ready", "False", _reason_of(error), str(error))
    left = await _prune_records(context, nodeset, cluster, view)
    if desired.leaving and not pods and failure is None and context.expectations.satisfied(key):
        wait = _record_wait(context, nodeset, view, left)
        if wait is None:
            await context.let_go(NODESETS, manifest, WORKERS_LEAVE_FIRST)
            return None
        left = wait
    ready = _ready(nodeset, desired, pods, plan) if problem is None or desired.leaving else problem
    await context.report(
        NODESETS, manifest, [ready, _slurm_reachable(view)], _status(nodeset, desired, pods, view, revision)
    )
    if failure is not None:
        raise failure
    hints = (
        plan.look_again_after,
        left,
        _available_in(nodeset, pods),
        _forced_in(context, nodeset) if pods else None,
        context.expectations.remaining(key) or None,
    )
    return min((hint for hint in hints if hint is not None), default=None)


async def _with_jobs(cluster: Cluster, view: policy.SlurmView) -> policy.SlurmView:
    try:
        return replace(view, held=policy.held_nodes(await cluster.poller.jobs()))
    except SlurmError as error:
        return replace(view, problem=f"the jobs can't be read: {error}")


def _reason_of(error: Exception) -> str:
    if isinstance(error, AlreadyExists):
        return "NameTaken"
    return "Refused" if isinstance(error, Forbidden | Invalid) else "Failed"


def _record_wait(context: Context, nodeset: NodeSet, view: policy.SlurmView, left: float | None) -> float | None:
    """How long the last step of leaving, the removal of records, is still waited for; None when it is over."""
    deleted = nodeset.metadata.deletion_timestamp
    over = deleted is None or context.now() >= deleted.timestamp() + _deletion_timeout(nodeset)
    if over or nodeset.spec.node_records == "Keep":
        return None
    return 1.0 if view.problem is not None and not _controller_going(context, nodeset) else left


def _forced_in(context: Context, nodeset: NodeSet) -> float | None:
    """Seconds until the deadline of a NodeSet that leaves together with its Controller."""
    deleted = nodeset.metadata.deletion_timestamp
    if deleted is None or not _controller_going(context, nodeset):
        return None
    left = deleted.timestamp() + _deletion_timeout(nodeset) - context.now()
    return left if left > 0 else None


def _deletion_timeout(nodeset: NodeSet) -> float:
    return duration(nodeset.spec.deletion_timeout, "spec.deletionTimeout")


def _controller_going(context: Context, nodeset: NodeSet) -> bool:
    controller = context.caches.controllers.store.get(nodeset.namespace, nodeset.spec.controller_ref.name)
    return controller is None or controller["metadata"].get("deletionTimestamp") is not None


def _pods_of(context: Context, nodeset: NodeSet) -> list[policy.WorkerPod]:
    return [
        worker_pod(
            pod,
            context.caches.kube_nodes.store.get(None, pod.spec.node_name) if pod.spec.node_name else None,
            now=context.now(),
            min_ready_seconds=nodeset.spec.min_ready_seconds,
            explained_by=context.propagated_node_conditions,
        )
        for pod in context.caches.pods.store.by("owner", nodeset.metadata.uid)
    ]


def _template(context: Context, nodeset: NodeSet) -> tuple[str, Manifest]:
    if nodeset.spec.scaling_mode != "StatefulSet":
        raise NotUsableError(
            "NotSupported",
            f"spec.scalingMode: {nodeset.spec.scaling_mode} isn't reconciled by this release; no pod is made. "
            "Use StatefulSet with replicas",
        )
    try:
        controller = context.needed_controller(nodeset.namespace, nodeset.spec.controller_ref.name)
        facts = context.facts(controller)
        revision = render.revision(nodeset, facts)
        return revision.hash, render.pod_template(nodeset, controller, facts)
    except MissingReferenceError as error:
        raise NotUsableError("ReferenceMissing", f"{error}; it is taken up as soon as it does") from error
    except ResourceError as error:
        raise NotUsableError("Invalid", str(error)) from error


def _desired(context: Context, nodeset: NodeSet, revision: str, *, rolling: bool) -> policy.Desired:
    spec, deleted = nodeset.spec, nodeset.metadata.deletion_timestamp
    late = deleted is not None and context.now() >= deleted.timestamp() + _deletion_timeout(nodeset)
    return policy.Desired(
        namespace=nodeset.namespace,
        replicas=spec.replicas,
        revision=revision,
        rolling=rolling and spec.update_strategy.type == "RollingUpdate",
        max_unavailable=_pods_that_may_be_unavailable(
            spec.update_strategy.rolling_update.max_unavailable, spec.replicas
        ),
        leaving=deleted is not None,
        forced=late and _controller_going(context, nodeset),
    )


def _pods_that_may_be_unavailable(value: int | str, replicas: int) -> int:
    """A number of pods, at least 1; a percentage is of the replicas, rounded up."""
    if isinstance(value, str):
        percent = value.removesuffix("%")
        value = math.ceil(int(percent) * replicas / 100) if percent.isdigit() else 1
    return max(1, value)


def _unconnected(context: Context, nodeset: NodeSet) -> str:
    name = nodeset.spec.controller_ref.name
    if context.restapi_of(nodeset.namespace, name) is None:
        return f"no RestApi refers to Controller {name!r}; enable one"
    return f"the JWT key of Controller {name!r} is missing"


async def _carry_out(
    context: Context,
    manifest: Manifest,
    nodeset: NodeSet,
    template: Manifest | None,
    revision: str,
    plan: policy.Plan,
    cluster: Cluster | None,
) -> None:
    """Drains first: a pod must not go before Slurm knows. What fails is raised after everything else was tried."""
    key = (nodeset.namespace, nodeset.name)
    owner = {**manifest, "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet"}
    steps: list[Callable[[], Awaitable[None]]] = []
    steps += [_cordon(context, nodeset.namespace, pod, "operator") for pod in plan.cordon]
    steps += [_cordon(context, nodeset.namespace, pod, None) for pod in plan.uncordon]
    drained: list[str] = []
    if cluster is not None:
        poller = cluster.poller
        steps += [_bound(poller.drain, nodes, reason, done=drained) for reason, nodes in plan.drain.items()]
        if plan.undrain:
            steps.append(_bound(poller.undrain, plan.undrain))
    await _all(steps)
    if drained:
        context.events.emit(owner, "Normal", "Draining", "Drain", f"Draining Slurm nodes {compress(drained)}")
    if not context.expectations.satisfied(key):
        return
    if plan.delete:
        context.expectations.expect_deletions(key, [deletion.pod.uid for deletion in plan.delete])
        await _all([_delete(context, key, owner, deletion) for deletion in plan.delete])
    if plan.create and template is not None:
        await _create(context, key, owner, nodeset, template, revision, plan.create)


def _cordon(context: Context, namespace: str, pod: policy.WorkerPod, by: str | None) -> Callable[[], Awaitable[None]]:
    async def patch() -> None:
        annotations = {names.POD_CORDON: "true" if by else None, POD_CORDONED_BY: by}
        try:
            await context.client.merge_patch(
                PODS, namespace, pod.name, {"metadata": {"uid": pod.uid, "annotations": annotations}}
            )
        except NotFound:
            log.debug("pod %s/%s is gone already", namespace, pod.name)

    return patch


def _delete(context: Context, key: Key, owner: Manifest, deletion: policy.Deletion) -> Callable[[], Awaitable[None]]:
    async def delete() -> None:
        pod = deletion.pod
        try:
            await context.client.delete(
                PODS, key[0], pod.name, uid=pod.uid, grace_period_seconds=deletion.grace_seconds
            )
        except NotFound:
            context.expectations.deletion_observed(key, pod.uid)
            return
        except BaseException:
            context.expectations.deletion_observed(key, pod.uid)
            raise
        log.info("NodeSet %s/%s: deleted pod %s: %s", *key, pod.name, deletion.because)
        context.events.emit(
            owner, "Normal", "SuccessfulDelete", "Delete", f"Deleted pod {pod.name}: {deletion.because}"
        )

    return delete


async def _create(
    context: Context,
    key: Key,
    owner: Manifest,
    nodeset: NodeSet,
    template: Manifest,
    revision: str,
    ordinals: Sequence[int],
) -> None:
    async def create(ordinal: int) -> None:
        for claim in render.claims(nodeset, ordinal):
            try:
                await context.client.create(PERSISTENT_VOLUME_CLAIMS, claim)
            except AlreadyExists:
                continue
        pod = render.pod(nodeset, template, ordinal, revision)
        await context.client.create(PODS, pod)

    context.events.emit(owner, "Normal", "ScalingUp", "Create", f"Creating {len(ordinals)} pod(s)")
    context.expectations.expect_creations(key, len(ordinals))
    # Doubling batches: when the first pod is refused, thousands more need not be tried. A name that another pod still
    # has is that pod's matter alone.
    size, rest, taken = 1, list(ordinals), None
    while rest:
        batch, rest = rest[:size], rest[size:]
        results = await asyncio.gather(*(create(ordinal) for ordinal in batch), return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for _ in errors:
            context.expectations.creation_observed(key)
        taken = next((error for error in errors if isinstance(error, AlreadyExists)), taken)
        worse = [error for error in errors if not isinstance(error, AlreadyExists)]
        if worse:
            for _ in rest:
                context.expectations.creation_observed(key)
            if isinstance(worse[0], Forbidden | Invalid):
                said = f"The API server refuses the pod: {worse[0]}"
                context.events.emit(owner, "Warning", "FailedCreate", "Create", said)
            raise worse[0]
        size *= 2
    log.info("NodeSet %s/%s: created %d pod(s)", *key, len(ordinals))
    if taken is not None:
        raise taken


def _bound(
    write: Callable[..., Awaitable[None]], nodes: Sequence[str], *arguments: Any, done: list[str] | None = None
) -> Callable[[], Awaitable[None]]:
    """A write to Slurm as a step. `done` gets the nodes when it succeeds."""

    async def carry() -> None:
        try:
            await write(nodes, *arguments)
        except SlurmError as error:
            # Not an error of the pass: the poller knows, and the next pass decides anew.
            log.warning("Slurm: %s", error)
        else:
            if done is not None:
                done.extend(nodes)

    return carry


async def _all(steps: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Do every step, then raise the first failure."""
    results = await asyncio.gather(*(step() for step in steps), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _prune_records(
    context: Context, nodeset: NodeSet, cluster: Cluster | None, view: policy.SlurmView
) -> float | None:
    """Records that pods of this NodeSet left behind. Returns when to look again, None when there is nothing left."""
    key = (nodeset.namespace, nodeset.name)
    if cluster is None or view.problem is not None or nodeset.spec.node_records == "Keep":
        return None
    since = context.orphaned_since.setdefault(key, {})
    orphans = _orphans(context, nodeset, view.nodes)
    for name in set(since) - {node.name for node in orphans}:
        del since[name]
    for node in orphans:
        since.setdefault(node.name, context.now())
    plan = policy.orphaned_records(orphans, since, context.now())

    async def delete(nodes: Sequence[str]) -> None:
        for name in nodes:
            await cluster.poller.delete(name)

    deleted: list[str] = []
    steps = [_bound(delete, [name], done=deleted) for name in plan.delete]
    steps += [_bound(cluster.poller.down, nodes, reason) for reason, nodes in plan.down.items()]
    await _all(steps)
    if deleted:
        log.info("NodeSet %s/%s: deleted the records of Slurm nodes %s, whose pods are gone", *key, compress(deleted))
    return 1.0 if len(deleted) < len(plan.delete) else plan.look_again_after


def _orphans(context: Context, nodeset: NodeSet, nodes: Mapping[str, Node]) -> list[Node]:
    # Reading the JSON of thousands of records in each pass would cost more than the rest of it.
    owned = [node for node in nodes.values() if nodeset.metadata.uid in node.extra]
    if not owned:
        return []
    pods = context.caches.pods.store.values()
    alive = {pod.metadata.uid for pod in pods}
    # A record keeps the uid of the pod that made it even when a successor of the same name has registered with it.
    in_use = {slurm_node(pod) for pod in pods if pod.metadata.namespace == nodeset.namespace}
    found = []
    for node in owned:
        if node.name in in_use:
            continue
        facts = pod_facts(node.extra)
        if facts is not None and facts.nodeset_uid == nodeset.metadata.uid and facts.pod_uid not in alive:
            found.append(node)
    return found


def _available_in(nodeset: NodeSet, pods: Sequence[policy.WorkerPod]) -> float | None:
    """A pod becomes available by time alone."""
    return nodeset.spec.min_ready_seconds + 1.0 if any(pod.ready and not pod.available for pod in pods) else None


def _ready(nodeset: NodeSet, desired: policy.Desired, pods: Sequence[policy.WorkerPod], plan: policy.Plan) -> Condition:
    ready = sum(1 for pod in pods if pod.ready and not pod.deleting)
    terminating = sum(1 for pod in pods if pod.deleting)
    if plan.waiting:
        first = plan.waiting[0]
        more = f" (and {len(plan.waiting) - 1} more pods are waiting)" if len(plan.waiting) > 1 else ""
        return Condition("Ready", "False", "Draining", f"pod {first.pod.name}: {first.step}{more}")
    if desired.leaving:
        return Condition("Ready", "False", "Removing", f"{len(pods)} pods are still terminating")
    if ready < nodeset.spec.replicas:
        said = f"{ready} of {nodeset.spec.replicas} pods are ready; see `kubectl -n {nodeset.namespace} get pods`"
        return Condition("Ready", "False", "PodsNotReady", said)
    if terminating or plan.delete:
        return Condition("Ready", "False", "ScalingIn", f"{terminating + len(plan.delete)} pods are terminating")
    return Condition("Ready", "True", "Ready", f"{ready} of {nodeset.spec.replicas} pods are ready")


def _slurm_reachable(view: policy.SlurmView) -> Condition:
    if view.problem is not None:
        said = f"{view.problem}; no pod is deleted until its Slurm node is known to be drained"
        return Condition("SlurmReachable", "False", "NoAnswer", said)
    return Condition("SlurmReachable", "True", "Polled")


def _status(
    nodeset: NodeSet,
    desired: policy.Desired,
    pods: Sequence[policy.WorkerPod],
    view: policy.SlurmView,
    revision: str,
) -> dict[str, Any]:
    live = [pod for pod in pods if not pod.deleting]
    available = sum(1 for pod in live if pod.available)
    nodes = [node for pod in live if (node := view.nodes.get(pod.slurm_node)) is not None]
    words = [node.states for node in nodes]
    return {
        "replicas": len([pod for pod in pods if pod.phase]),
        "updatedReplicas": sum(1 for pod in live if pod.revision == revision),
        "readyReplicas": sum(1 for pod in live if pod.ready),
        "availableReplicas": available,
        "unavailableReplicas": max(0, nodeset.spec.replicas - available),
        "desired": 0 if desired.leaving else nodeset.spec.replicas,
        "slurmIdle": sum(1 for word in words if states.base_state(word) == "IDLE"),
        "slurmAllocated": sum(1 for word in words if states.base_state(word) in {"ALLOCATED", "MIXED"}),
        "slurmDown": sum(1 for word in words if states.is_down(word)),
        "slurmDrain": sum(1 for word in words if states.is_drain(word)),
        "observedGeneration": nodeset.metadata.generation,
        "nodeSetHash": revision,
        "selector": ",".join(f"{name}={value}" for name, value in sorted(render.selector(nodeset).items())),
    }
