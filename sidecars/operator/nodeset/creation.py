"""Making worker pods and the claims that they need."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import PERSISTENT_VOLUME_CLAIMS, PODS, AlreadyExists, Forbidden, Invalid, Manifest, NotFound
from sidecars.operator.nodeset.memory import Memory
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset.pods import PodPlan
from sidecars.policy.nodeset.records import Desired, WorkerPod
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import NodeSet

log = logging.getLogger(__name__)

COMING_SECONDS = 5.0
"""For how long after the last pod was made or became ready the workers that have come wait for the others before they
show that they are idle: many small writes would hold those up."""


@dataclass(frozen=True, slots=True)
class Order:
    """A pod to be made. `slurm_node` is "" where only the Kubernetes node will tell."""

    name: str
    slurm_node: str
    claims: Callable[[], Sequence[Manifest]]
    pod: Callable[[], Manifest]


def orders(nodeset: NodeSet, template: Manifest, revision: str, desired: Desired, plan: PodPlan) -> list[Order]:
    """The pods that the plan asks for, rendered when their turn comes."""
    host_network = bool(template["spec"].get("hostNetwork"))
    found = []
    for ordinal in plan.create:
        pin = desired.pins.get(str(ordinal))
        found.append(
            Order(
                name=render.pod_name(nodeset, ordinal),
                slurm_node="" if host_network else render.hostname(nodeset, ordinal),
                claims=partial(render.claims, nodeset, ordinal),
                pod=partial(render.pod, nodeset, template, ordinal, revision, pin),
            )
        )
    for name in plan.create_on:
        place = (desired.places or {})[name]
        found.append(
            Order(
                name=render.daemon_pod_name(nodeset, name),
                slurm_node=place.slurm_node,
                claims=partial(render.daemon_claims, nodeset, name, place.slurm_node),
                pod=partial(render.daemon_pod, nodeset, template, name, place.slurm_node, revision),
            )
        )
    return found


async def create(runtime: Runtime, memory: Memory, key: Key, owner: Manifest, wanted: Iterable[Order]) -> None:
    """Make the pods, for a slice of time; the pass that their arrival brings about goes on with the others.

    Raises ApiError or NotUsableError for the first that can't be made; a taken name stops no other pod. The first one
    goes alone: when it is refused, the others need not be tried.
    """
    start = runtime.now()
    due = [order for order in wanted if order.name not in memory.failures or memory.failures[order.name].until <= start]
    rest, taken = _unused(runtime, key, due)
    if rest and not memory.creating:
        runtime.events.emit(owner, "Normal", "ScalingUp", "Create", f"Creating {len(rest)} pod(s)")
    made, worse, unfinished = 0, [], False

    async def make(order: Order) -> None:
        runtime.expectations.expect_creations(key, 1)
        try:
            await _make(runtime, key, order)
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
            batch = rest if memory.creating else rest[:1]
            results = await bulk.each((partial(make, order) for order in batch), going_on)
            rest = rest[len(results) :]
            errors = [result for result in results if result is not None]
            made += len(results) - len(errors)
            taken = taken or next((error for error in errors if error not in worse), None)
            memory.creating = True
        if worse:
            if isinstance(worse[0], Forbidden | Invalid):
                said = f"The API server refuses the pod: {worse[0]}"
                runtime.events.emit(owner, "Warning", "FailedCreate", "Create", said)
            raise worse[0]
        if taken is not None and not (made and rest):
            raise taken
        unfinished = bool(rest)
    finally:
        if made:
            log.info("NodeSet %s/%s: created %d pod(s)", *key, made)
        if memory.creating and not unfinished:
            memory.creating, memory.come, memory.coming_until = False, 0, runtime.now() + COMING_SECONDS


def coming(runtime: Runtime, memory: Memory, ready: int, wanted: int) -> float | None:
    """Have workers that wait for the others show what they are, once as many are ready as are wanted.

    They wait no longer than COMING_SECONDS after the last change for the better. Returns after how many seconds to ask
    again; None if nobody waits.
    """
    missing = ready < wanted
    if missing and memory.creating:
        return None
    if memory.coming_until and ready > memory.come:
        memory.come, memory.coming_until = ready, runtime.now() + COMING_SECONDS
    left = memory.coming_until - runtime.now()
    if missing and 0 < left <= COMING_SECONDS:
        return left
    memory.creating, memory.coming_until = False, 0.0
    for pod in memory.unshown:
        runtime.queues.pods.add(pod)
    memory.unshown.clear()
    return None


def _unused(runtime: Runtime, key: Key, wanted: Iterable[Order]) -> tuple[list[Order], Exception | None]:
    """The orders whose name in Slurm no pod of another NodeSet of the cluster has; and why one has to wait."""
    free: list[Order] = []
    problem: Exception | None = None
    nodeset = runtime.caches.nodesets.store.get(*key)
    cluster = nodeset["spec"]["controllerRef"]["name"] if nodeset is not None else ""
    for order in wanted:
        holders = runtime.caches.pods.store.by("slurm_node", (key[0], cluster, order.slurm_node))
        others = [pod for pod in holders if (owner := pod.metadata.controller) is None or owner.name != key[1]]
        if order.slurm_node and others:
            other = others[0].metadata
            whose = f"NodeSet {other.controller.name}" if other.controller is not None else "nobody's"
            problem = problem or NotUsableError(
                "NameConflict",
                f"Slurm node {order.slurm_node} is pod {other.name} of {whose} already; "
                "give one of the two another spec.template.spec.hostname",
            )
        else:
            free.append(order)
    return free, problem


def _stamped(runtime: Runtime, pod: Manifest) -> Manifest:
    """The pod to be created, stamped already where no Kubernetes node says a topology: that saves a write for each."""
    if runtime.caches.kube_nodes.store.by("topology", True):
        return pod
    metadata = pod["metadata"]
    annotations = {TOPOLOGY: "", **(metadata.get("annotations") or {})}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


async def _make(runtime: Runtime, key: Key, order: Order) -> None:
    for claim in order.claims():
        try:
            await runtime.client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        except AlreadyExists:
            await _check_claim(runtime, key, claim["metadata"]["name"])
    await runtime.client.create(PODS, _stamped(runtime, order.pod()), msgspec.Raw)


async def _check_claim(runtime: Runtime, key: Key, name: str) -> None:
    """A claim that is on its way out is waited for: its data would go while the pod uses it."""
    try:
        claim = await runtime.client.get(PERSISTENT_VOLUME_CLAIMS, key[0], name)
    except NotFound:
        leaving = True
    else:
        metadata = claim["metadata"]
        owners = metadata.get("ownerReferences") or ()
        leaving = bool(metadata.get("deletionTimestamp")) or any(owner["kind"] == "Pod" for owner in owners)
    if leaving:
        said = (
            f"PersistentVolumeClaim {name} of a pod that was scaled in is being deleted; its successor waits for that"
        )
        raise NotUsableError("ClaimLeaving", said)


def conflict(nodeset: NodeSet, others: Iterable[NodeSet]) -> str | None:
    """Why this NodeSet's names can't be used: an older NodeSet of the Controller has them. None if none has."""

    def age(item: NodeSet) -> tuple[str, str]:
        return str(item.metadata.creation_timestamp or ""), item.name

    for other in sorted(others, key=age):
        if age(other) >= age(nodeset) or other.name == nodeset.name:
            continue
        numbered = "DaemonSet" not in {nodeset.spec.scaling_mode, other.spec.scaling_mode}
        same_hosts = numbered and _prefix(nodeset) == _prefix(other)
        if nodeset.slurm_name == other.slurm_name or same_hosts:
            return (
                f"spec.template.spec.hostname: NodeSet {other.name} is {nodeset.slurm_name!r} in Slurm already; "
                "choose another hostname"
            )
    return None


def _prefix(nodeset: NodeSet) -> str:
    return str(nodeset.spec.template.spec.get("hostname") or f"{nodeset.name}-")


def pins(nodeset: NodeSet, pods: Iterable[WorkerPod], fits: Callable[[str], bool]) -> Mapping[str, str]:
    """status.ordinalToNode: the Kubernetes node of each ordinal that ever ran, as long as a pod fits there."""
    if not nodeset.spec.pin_to_node or nodeset.spec.scaling_mode != "StatefulSet":
        return {}
    found = {ordinal: node for ordinal, node in (nodeset.status.ordinal_to_node or {}).items() if fits(node)}
    for pod in pods:
        if pod.phase == "Running" and pod.kube_node is not None and pod.ordinal >= 0 and not pod.kube_node_gone:
            found[str(pod.ordinal)] = pod.kube_node
    return dict(sorted(found.items(), key=lambda item: int(item[0]) if item[0].isdigit() else -1))
