"""Carrying out a plan: cordons, drains, deletions and creations, each step tried whatever becomes of the others."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sidecars.contract import reasons
from sidecars.contract.reasons import Owner
from sidecars.kube import NODES, PODS, Manifest, NotFound
from sidecars.operator.nodeset import claims, creation
from sidecars.operator.nodeset.memory import Memory
from sidecars.operator.nodeset.observation import POD_CORDONED_BY
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset import lost
from sidecars.policy.nodeset.pods import PodPlan
from sidecars.policy.nodeset.records import Deletion, Desired, WorkerPod
from sidecars.slurm import protocol, states
from sidecars.slurm.errors import NotFound as UnknownToSlurm
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.hostlists import compress
from sidecars.slurm.pending import PATIENCE
from sidecars.workloads import names
from sidecars.workloads.resources import NodeSet

if TYPE_CHECKING:
    from sidecars.operator.runtime.queues import Key

log = logging.getLogger(__name__)

FAILED_AGAIN = 5.0
"""Seconds after which a drain that Slurm failed to set or to lift is tried again."""


async def carry_out(
    runtime: Runtime,
    memory: Memory,
    manifest: Manifest,
    nodeset: NodeSet,
    template: Manifest | None,
    revision: str,
    desired: Desired,
    plan: PodPlan,
    cluster: Cluster | None,
    *,
    settled: bool,
) -> float | None:
    """Drains first: a pod must not go before Slurm knows. What fails is raised after everything else was tried.

    `settled`: the plan is made from pods of which all earlier creations and deletions had been seen; unless it is, no
    pod is made or deleted. Returns after how many seconds to look again if nothing wakes the NodeSet earlier: when time
    ran out, or Slurm failed to do something.
    """
    key = (nodeset.namespace, nodeset.name)
    owner = {**manifest, "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet"}
    steps: list[Callable[[], Awaitable[None]]] = []
    drained: list[str] = []
    undrained: list[str] = []
    if cluster is not None:
        poller = cluster.poller
        drain = partial(poller.drain, owners=frozenset({Owner.OPERATOR}))
        undrain = partial(poller.undrain, owners=reasons.OURS)
        steps += [bound(drain, nodes, reason, done=drained) for reason, nodes in plan.drain.items()]
        if plan.undrain:
            steps.append(bound(undrain, plan.undrain, done=undrained))
    steps += [_cordon(runtime, nodeset.namespace, pod, "operator") for pod in plan.cordon]
    steps += [_cordon(runtime, nodeset.namespace, pod, None) for pod in plan.uncordon]
    complete = await bulk.all_of(steps, bulk.a_slice(runtime.now, lambda: memory.urgent))
    if drained:
        runtime.events.emit(owner, "Normal", "Draining", "Drain", f"Draining Slurm nodes {compress(drained)}")
    wanted = len(plan.undrain) + sum(map(len, plan.drain.values()))
    failed = len(drained) + len(undrained) < wanted
    again = 0.0 if not complete else FAILED_AGAIN if failed else None
    if not settled:
        return again
    deletions = [_delete(runtime, nodeset, owner, deletion, cluster) for deletion in plan.delete]
    if not await bulk.all_of(deletions, bulk.a_slice(runtime.now, lambda: memory.urgent)):
        again = 0.0
    orders = creation.orders(nodeset, template, revision, desired, plan) if template is not None else []
    await creation.create(runtime, memory, key, owner, orders)
    return again


def _cordon(runtime: Runtime, namespace: str, pod: WorkerPod, by: str | None) -> Callable[[], Awaitable[None]]:
    async def patch() -> None:
        annotations = {names.POD_CORDON: "true" if by else None, POD_CORDONED_BY: by}
        try:
            await runtime.client.merge_patch(
                PODS, namespace, pod.name, {"metadata": {"uid": pod.uid, "annotations": annotations}}
            )
        except NotFound:
            log.debug("pod %s/%s is gone already", namespace, pod.name)

    return patch


def _delete(
    runtime: Runtime, nodeset: NodeSet, owner: Manifest, deletion: Deletion, cluster: Cluster | None
) -> Callable[[], Awaitable[None]]:
    key: Key = (nodeset.namespace, nodeset.name)

    async def delete() -> None:
        pod = deletion.pod
        drained = not deletion.drained or _still_drained(cluster, pod.slurm_node)
        if not drained or (deletion.absent and not await _still_absent(cluster, pod.slurm_node)):
            return
        if not deletion.kube_node_lost:
            # What is deleted by force has its deletionTimestamp already.
            runtime.expectations.expect_deletions(key, [pod.uid])
        try:
            if deletion.kube_node_lost and not await _is_lost(runtime, pod.kube_node or ""):
                return
            await claims.hand_over(runtime, nodeset, deletion)
            await runtime.client.delete(
                PODS,
                key[0],
                pod.name,
                uid=pod.uid,
                # The cache may be behind: slurmd may have started, and a job on it.
                resource_version=pod.resource_version if deletion.only_unchanged else None,
                grace_period_seconds=deletion.grace_seconds,
            )
        except NotFound:
            runtime.expectations.deletion_observed(key, pod.uid)
            return
        except BaseException:
            runtime.expectations.deletion_observed(key, pod.uid)
            raise
        log.info("NodeSet %s/%s: deleted pod %s: %s", *key, pod.name, deletion.because)
        said = f"Deleted pod {pod.name}: {deletion.because}"
        runtime.events.emit(owner, deletion.severity, deletion.event, "Delete", said)

    return delete


async def _is_lost(runtime: Runtime, kube_node: str) -> bool:
    """Whether the machine is gone or off at this moment: the cache may be behind, and force can't be taken back."""
    try:
        node = await runtime.client.get(NODES, None, kube_node)
    except NotFound:
        return True
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint["key"] == lost.OUT_OF_SERVICE for taint in taints)


def _still_drained(cluster: Cluster | None, slurm_node: str) -> bool:
    """By the newest that Slurm said: before the last of many pods goes, somebody may have taken its drain back."""
    node = cluster.poller.nodes.get(slurm_node) if cluster is not None else None
    return node is not None and states.is_drained(node.states)


async def _still_absent(cluster: Cluster | None, slurm_node: str) -> bool:
    """By Slurm at this moment: its slurmd may have registered since the last poll, as all do again after lost state."""
    if cluster is None or cluster.poller.trouble:
        return False
    try:
        await cluster.client.call(protocol.get_node(slurm_node), timeout=PATIENCE)
    except UnknownToSlurm:
        return True
    except SlurmError as error:
        log.warning("Slurm: %s", error)
    return False


def bound(
    write: Callable[..., Awaitable[None]], nodes: Sequence[str], *arguments: Any, done: list[str] | None = None
) -> Callable[[], Awaitable[None]]:
    """A write to Slurm as a step. `done` gets the nodes when it succeeds."""

    async def carry() -> None:
        try:
            await write(nodes, *arguments)
        except SlurmError as error:
            # Not an error of the pass: the next one decides anew.
            log.warning("Slurm: %s", error)
        else:
            if done is not None:
                done.extend(nodes)

    return carry
