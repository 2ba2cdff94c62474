"""One pass over one Controller."""

import contextlib

from sidecars.custom_resources import CONTROLLERS, IN_USE
from sidecars.kube import STATEFUL_SETS, Manifest
from sidecars.operator.controller import gating, monitoring
from sidecars.operator.controller.memory import Memory
from sidecars.operator.keys import distribution
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.contents import NotReadError
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizer_unless_used
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import accounting, order
from sidecars.policy.conditions import Condition
from sidecars.workloads import config, names, nodeset, references
from sidecars.workloads import controller as render
from sidecars.workloads.resources import Controller, ResourceError


async def reconcile(runtime: Runtime, memory: Memory, key: Key) -> None:
    """Bring slurmctld and what surrounds it to what the Controller says; connect to its Slurm; report."""
    namespace, name = key
    manifest = runtime.caches.controllers.store.get(namespace, name)
    if manifest is None:
        memory.forget(key)
        memory.walks.pop(key, None)
        await runtime.clusters.want(key, None)
        return
    if manifest["metadata"].get("deletionTimestamp"):
        await _connect(runtime, key, manifest)
        await remove_finalizer_unless_used(runtime, CONTROLLERS, manifest, runtime.lookup.users_of(*key))
        return
    try:
        controller = runtime.lookup.controller(namespace, name)
    except ResourceError as error:
        await runtime.status.report(CONTROLLERS, manifest, [Condition("Ready", "False", "Invalid", str(error))])
        return
    assert controller is not None  # noqa: S101 - its manifest was found above
    await _connect(runtime, key, manifest)
    await add_finalizer(runtime, CONTROLLERS, manifest, IN_USE)
    conditions: list[Condition] = []
    try:
        ready, conditions = await _configure(runtime, memory, key, manifest, controller)
        conditions += await monitoring.keep(runtime, manifest, controller)
    except NotUsableError as error:
        ready = workload.refused(runtime, manifest, error)
    gating.tell(runtime, manifest, conditions)
    await runtime.status.report(CONTROLLERS, manifest, [ready, *conditions, slurm_reachable(runtime, key)])


async def _connect(runtime: Runtime, key: Key, manifest: Manifest) -> None:
    """Poll the Slurm cluster while a RestApi serves it."""
    with contextlib.suppress(NotReadError):
        # Its jwt.key among them.
        await runtime.contents.read(references.of(manifest))
    await runtime.clusters.want(key, runtime.lookup.url(runtime.lookup.restapi_of(*key)))


async def _configure(
    runtime: Runtime, memory: Memory, key: Key, manifest: Manifest, controller: Controller
) -> tuple[Condition, list[Condition]]:
    """Publish, apply, follow. The condition `Ready`, and those of the gate. Raises NotUsableError."""
    slurm_key = await _keys(runtime, memory, manifest, controller)
    accounting.check(runtime, controller)
    lacks = _claim(runtime, key, controller)
    nodesets = runtime.lookup.nodesets_of(*key)
    facts = await runtime.lookup.facts(controller)
    with workload.usable():
        config_set = config.compose(controller, nodesets, facts)
    found, warnings = gating.lint(runtime, controller, config_set, nodesets)
    # A configuration with a fault is not published, and everything else goes on.
    if not found:
        await gating.publish(runtime, manifest, controller, config_set, facts)
    with workload.usable():
        rendered = render.workload(controller, config_set, facts)
        shared = nodeset.shared_objects(controller, nodesets, facts)
    held = order.arrange(runtime, rendered, "slurmctld", order.before_slurmctld(runtime, controller))
    await workload.apply_all(runtime, manifest, "Controller", lambda: [*rendered, *shared])
    if controller.spec.external:
        memory.forget(key)
        if found:
            return Condition("Ready", "False", "Invalid", "; ".join(found)), [slurm_key]
        return Condition("Ready", "True", "External", "slurmctld runs outside this Kubernetes cluster"), [slurm_key]
    await gating.label_primary(runtime, memory, key, controller)
    with workload.usable():
        gates = await gating.follow(runtime, memory, key, controller, config_set, (found, warnings), facts)
    if held is not None:
        if (seconds := order.again(held)) is not None:
            runtime.queues.controllers.add_after(key, seconds)
        return held.condition, [*gates, slurm_key]
    ready = workload.readiness(runtime, STATEFUL_SETS, key[0], names.controller(key[1]))
    return lacks if lacks is not None and ready.status != "True" else ready, [*gates, slurm_key]


async def _keys(runtime: Runtime, memory: Memory, manifest: Manifest, controller: Controller) -> Condition:
    """The condition of the keys. Without them only slurmctld can't be: an external one is told of all the same."""
    try:
        return await distribution.distribute(
            runtime, memory.walks, manifest, controller, await runtime.lookup.facts(controller)
        )
    except NotUsableError as error:
        if not controller.spec.external:
            raise
        return Condition("SlurmKey", "False", error.reason, str(error))


def _claim(runtime: Runtime, key: Key, controller: Controller) -> Condition | None:
    """What is wrong with the claim that spec.persistence names; raises NotUsableError if standbys can't share it, or
    if that can't be known yet.

    Else a claim that isn't there is Kubernetes' to wait for: slurmctld's pod is scheduled as soon as it is.
    """
    name = controller.spec.persistence.existing_claim
    if not (controller.spec.persistence.enabled and name) or controller.spec.external:
        return None
    claim = runtime.caches.other_claims.store.get(key[0], name)
    if claim is None:
        said = (
            f"spec.persistence.existingClaim: PersistentVolumeClaim {name!r} doesn't exist; it is taken up when it does"
        )
        if controller.spec.ha.enabled:
            raise NotUsableError("ReferenceMissing", said)
        return Condition("Ready", "False", "ReferenceMissing", said)
    modes = claim.spec.access_modes
    if controller.spec.ha.enabled and "ReadWriteMany" not in modes:
        said = (
            f"spec.persistence.existingClaim: PersistentVolumeClaim {name!r} has access modes {', '.join(modes)}; with "
            "spec.ha several slurmctld on several Kubernetes nodes share it: name one with ReadWriteMany"
        )
        raise NotUsableError("Invalid", said)
    return None


def slurm_reachable(runtime: Runtime, key: Key) -> Condition:
    """The condition `SlurmReachable`: whether the operator sees the Slurm cluster through slurmrestd."""
    cluster = runtime.clusters.get(key)
    if cluster is None:
        said = "no RestApi refers to this Controller, or its JWT key is missing: nodes can't be drained before they go"
        return Condition("SlurmReachable", "Unknown", "NoRestApi", said)
    problem = cluster.view().problem
    if problem is not None:
        return Condition("SlurmReachable", "False", "NoAnswer", f"{cluster.url}: {problem}")
    return Condition("SlurmReachable", "True", "Polled", f"{cluster.url} answers")
