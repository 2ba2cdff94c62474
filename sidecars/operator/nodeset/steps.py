"""Carrying out a plan: cordons, drains, deletions and creations, each step tried whatever becomes of the others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from sidecars.kube import PERSISTENT_VOLUME_CLAIMS, PODS, AlreadyExists, Forbidden, Invalid, Manifest, NotFound
from sidecars.operator.clusters import Cluster
from sidecars.operator.context import Context, Key
from sidecars.operator.nodeset.observation import POD_CORDONED_BY
from sidecars.policy import nodeset as policy
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.hostlists import compress
from sidecars.workloads import names
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import NodeSet

log = logging.getLogger(__name__)


async def carry_out(
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
        steps += [bound(poller.drain, nodes, reason, done=drained) for reason, nodes in plan.drain.items()]
        if plan.undrain:
            steps.append(bound(poller.undrain, plan.undrain))
    await all_of(steps)
    if drained:
        context.events.emit(owner, "Normal", "Draining", "Drain", f"Draining Slurm nodes {compress(drained)}")
    if not context.expectations.satisfied(key):
        return
    if plan.delete:
        context.expectations.expect_deletions(key, [deletion.pod.uid for deletion in plan.delete])
        await all_of([_delete(context, key, owner, deletion) for deletion in plan.delete])
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


def bound(
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


async def all_of(steps: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Do every step, then raise the first failure."""
    results = await asyncio.gather(*(step() for step in steps), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
