"""Creates worker pods and the claims that they need."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from sidecars import objects
from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import (
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    AlreadyExists,
    Forbidden,
    Invalid,
    Manifest,
    NotFound,
)
from sidecars.operator.nodeset.passes import Pass, PodSource
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.topology import topologies_of
from sidecars.policy.nodeset.actions import CreatePods
from sidecars.policy.nodeset.records import Desired
from sidecars.policy.reasons import EventReason, Ready
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import NodeSet

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """A pod to be created."""

    name: str
    slurm_node: str
    """"" where its Kubernetes node will decide that."""
    claims: Callable[[], Sequence[Manifest]]
    pod: Callable[[], Manifest]


def orders(desired: Desired, source: PodSource, action: CreatePods) -> list[Order]:
    """Return the pods to create, each rendered when its turn comes."""
    nodeset, template, revision = desired.nodeset, source.template, source.revision
    if template is None:
        return []
    host_network = bool(template["spec"].get("hostNetwork"))
    result = []
    for ordinal in action.ordinals:
        pin = desired.pods.pins.get(str(ordinal))
        result.append(
            Order(
                name=render.pod_name(nodeset, ordinal),
                slurm_node="" if host_network else render.hostname(nodeset, ordinal),
                claims=partial(render.claims, nodeset, ordinal),
                pod=partial(render.pod, nodeset, template, ordinal, revision, pin),
            )
        )
    for name in action.kube_nodes:
        place = (desired.pods.places or {})[name]
        result.append(
            Order(
                name=render.daemon_pod_name(nodeset, name),
                slurm_node=place.slurm_node,
                claims=partial(render.daemon_claims, nodeset, name, place.slurm_node),
                pod=partial(render.daemon_pod, nodeset, template, name, place.slurm_node, revision),
            )
        )
    return result


async def create(this: Pass, event_target: Manifest, missing: Iterable[Order]) -> None:
    """Create the pods, for a slice of time. The pass that their arrival starts continues with the
    others.

    Raises KubeError or NotUsableError for the first that can't be created; a taken name stops no
    other pod. The first one is created alone: when it is refused, the others need not be tried.
    """
    runtime, memory, key = this.runtime, this.memory, this.key
    deferral = memory.deferral
    rest, taken = _unused(this, missing)
    if rest and not deferral.creating:
        runtime.events.emit(
            event_target, "Normal", EventReason.SCALING_UP, "Create", f"Creating {len(rest)} pod(s)"
        )
    created, worse, unfinished = 0, [], False

    async def create_one(order: Order) -> None:
        runtime.expectations.expect_creations(key, 1)
        try:
            await _create(runtime, key, order)
        except BaseException as error:
            runtime.expectations.creation_observed(key)
            if not isinstance(error, AlreadyExists | NotUsableError):
                worse.append(error)
            raise

    in_time = bulk.a_slice(runtime.now, lambda: memory.urgent)

    def going_on() -> bool:
        return not worse and in_time()

    try:
        while rest and going_on():
            batch = rest if deferral.creating else rest[:1]
            results = await bulk.each((partial(create_one, order) for order in batch), going_on)
            rest = rest[len(results) :]
            errors = [result for result in results if result is not None]
            created += len(results) - len(errors)
            taken = taken or next((error for error in errors if error not in worse), None)
            deferral.creating = True
        if worse:
            if isinstance(worse[0], Forbidden | Invalid):
                message = f"The API server refuses the pod: {worse[0]}"
                runtime.events.emit(
                    event_target, "Warning", EventReason.FAILED_CREATE, "Create", message
                )
            raise worse[0]
        if taken is not None and not (created and rest):
            raise taken
        unfinished = bool(rest)
    finally:
        if created:
            log.info("NodeSet %s/%s: created %d pod(s)", *key, created)
        if deferral.creating and not unfinished:
            deferral.created(runtime.now())


def _unused(this: Pass, missing: Iterable[Order]) -> tuple[list[Order], Exception | None]:
    """Return the orders whose name in Slurm no pod of another NodeSet of the cluster has, and why
    one has to wait.
    """
    free: list[Order] = []
    problem: Exception | None = None
    namespace, cluster = this.controller
    for order in missing:
        holders = this.runtime.caches.pods.store.by(
            "slurm_node", (namespace, cluster, order.slurm_node)
        )
        others = [
            pod
            for pod in holders
            if (owner := pod.metadata.controller) is None or owner.name != this.key[1]
        ]
        if order.slurm_node and others:
            problem = problem or NotUsableError(
                Ready.NAME_CONFLICT, _holder(order.slurm_node, others[0].metadata)
            )
        else:
            free.append(order)
    return free, problem


def _holder(slurm_node: str, pod: objects.ObjectMeta) -> str:
    """Describe which pod has the name in Slurm, and what to do about it."""
    if pod.controller is not None:
        whose = f"NodeSet {pod.controller.name}"
        remedy = "give one of the two another spec.template.spec.hostname"
        return f"Slurm node {slurm_node} is pod {pod.name} of {whose} already; {remedy}"
    remedy = (
        "the next one is created when it is gone"
        if pod.deletion_timestamp
        else "delete that pod when it is idle"
    )
    return f"Slurm node {slurm_node} is pod {pod.name}, which belongs to no NodeSet; {remedy}"


def _stamped(runtime: Runtime, controller: Key, pod: Manifest) -> Manifest:
    """Return the pod, with an empty topology where no Kubernetes node has one: that saves a write
    for each pod.
    """
    if runtime.caches.kube_nodes.store.by("topology", True) or topologies_of(runtime, controller):
        return pod
    metadata = pod["metadata"]
    annotations = {TOPOLOGY: "", **(metadata.get("annotations") or {})}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


async def _create(runtime: Runtime, key: Key, order: Order) -> None:
    for claim in order.claims():
        try:
            await runtime.client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        except AlreadyExists:
            await _check_claim(runtime, key, claim["metadata"]["name"])
    await runtime.client.create(
        PODS, _stamped(runtime, runtime.lookup.controller_of_nodeset(key), order.pod()), msgspec.Raw
    )


async def _check_claim(runtime: Runtime, key: Key, name: str) -> None:
    """Wait for a terminating claim: its data would be deleted while the pod uses it."""
    try:
        claim = await runtime.client.get(PERSISTENT_VOLUME_CLAIMS, key[0], name)
    except NotFound:
        terminating = True
    else:
        metadata = claim["metadata"]
        owners = metadata.get("ownerReferences") or ()
        terminating = bool(metadata.get("deletionTimestamp")) or any(
            owner["kind"] == "Pod" for owner in owners
        )
    if terminating:
        message = (
            f"PersistentVolumeClaim {name} of a pod that was scaled in is being deleted; "
            "the next pod of this name is created when it is gone"
        )
        raise NotUsableError(Ready.CLAIM_TERMINATING, message)


def conflict(nodeset: NodeSet, others: Iterable[NodeSet]) -> str | None:
    """Return why this NodeSet's names can't be used, because an older NodeSet of the Controller has
    them. Return None if none has.
    """

    def age(item: NodeSet) -> tuple[str, str]:
        return str(item.metadata.creation_timestamp or ""), item.name

    for other in sorted(others, key=age):
        if age(other) >= age(nodeset) or other.name == nodeset.name:
            continue
        numbered = "DaemonSet" not in {nodeset.spec.scaling_mode, other.spec.scaling_mode}
        same_hosts = numbered and _prefix(nodeset) == _prefix(other)
        if nodeset.slurm_name == other.slurm_name or same_hosts:
            return (
                f"spec.template.spec.hostname: NodeSet {other.name} is {nodeset.slurm_name!r} in "
                "Slurm already; choose another hostname"
            )
    return None


def _prefix(nodeset: NodeSet) -> str:
    return str(nodeset.spec.template.spec.get("hostname") or f"{nodeset.name}-")
