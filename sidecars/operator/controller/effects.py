"""One pass over one Controller."""

from sidecars.kube import STATEFUL_SETS, Manifest
from sidecars.operator import upgrade, workload
from sidecars.operator.accounting import waiting
from sidecars.operator.caches import CONTROLLERS
from sidecars.operator.context import IN_USE, Context, Key, NotUsableError
from sidecars.operator.controller import gating, keys, monitoring
from sidecars.policy.conditions import Condition
from sidecars.workloads import config, names, nodeset
from sidecars.workloads import controller as render
from sidecars.workloads.resources import Controller, ResourceError


async def reconcile(context: Context, key: Key) -> None:
    """Bring slurmctld and what surrounds it to what the Controller says; connect to its Slurm; report."""
    namespace, name = key
    manifest = context.caches.controllers.store.get(namespace, name)
    if manifest is None:
        gating.forget(context, key)
        context.walks.pop(key, None)
        await context.clusters.want(key, None)
        return
    if manifest["metadata"].get("deletionTimestamp"):
        await context.clusters.want(key, context.url(context.restapi_of(namespace, name)))
        await context.let_go_unless_used(CONTROLLERS, manifest, context.users_of(*key))
        return
    try:
        controller = context.controller(namespace, name)
    except ResourceError as error:
        await context.report(CONTROLLERS, manifest, [Condition("Ready", "False", "Invalid", str(error))])
        return
    assert controller is not None  # noqa: S101 - its manifest was found above
    await context.clusters.want(key, context.url(context.restapi_of(namespace, name)))
    await context.hold(CONTROLLERS, manifest, IN_USE)
    conditions: list[Condition] = []
    try:
        ready, conditions = await _configure(context, key, manifest, controller)
        conditions += await monitoring.keep(context, manifest, controller)
    except NotUsableError as error:
        ready = workload.refused(context, manifest, error)
    gating.tell(context, manifest, conditions)
    await context.report(CONTROLLERS, manifest, [ready, *conditions, slurm_reachable(context, key)])


async def _configure(
    context: Context, key: Key, manifest: Manifest, controller: Controller
) -> tuple[Condition, list[Condition]]:
    """Publish, apply, follow. The condition `Ready`, and those of the gate. Raises NotUsableError."""
    slurm_key = await _keys(context, manifest, controller)
    waiting.check(context, controller)
    lacks = _claim(context, key, controller)
    nodesets = context.nodesets_of(*key)
    facts = context.facts(controller)
    with workload.usable():
        config_set = config.compose(controller, nodesets, facts)
    found, warnings = gating.lint(context, controller, config_set, nodesets)
    # A configuration with a fault is not published, and everything else goes on.
    if not found:
        await gating.publish(context, manifest, controller, config_set, facts)
    with workload.usable():
        rendered = render.workload(controller, config_set, facts)
        shared = nodeset.shared_objects(controller, nodesets, facts)
    held = upgrade.arrange(context, rendered, "slurmctld", upgrade.before_slurmctld(context, controller))
    await workload.apply_all(context, manifest, "Controller", lambda: [*rendered, *shared])
    if controller.spec.external:
        gating.forget(context, key)
        if found:
            return Condition("Ready", "False", "Invalid", "; ".join(found)), [slurm_key]
        return Condition("Ready", "True", "External", "slurmctld runs outside this Kubernetes cluster"), [slurm_key]
    await gating.label_primary(context, key, controller)
    with workload.usable():
        gates = await gating.follow(context, key, controller, config_set, (found, warnings), facts)
    if held is not None:
        if (seconds := upgrade.again(held)) is not None:
            context.queues.controllers.add_after(key, seconds)
        return held.condition, [*gates, slurm_key]
    ready = workload.readiness(context, STATEFUL_SETS, key[0], names.controller(key[1]))
    return lacks if lacks is not None and ready.status != "True" else ready, [*gates, slurm_key]


async def _keys(context: Context, manifest: Manifest, controller: Controller) -> Condition:
    """The condition of the keys. Without them only slurmctld can't be: an external one is told of all the same."""
    try:
        return await keys.keep(context, manifest, controller, context.facts(controller))
    except NotUsableError as error:
        if not controller.spec.external:
            raise
        return Condition("SlurmKey", "False", error.reason, str(error))


def _claim(context: Context, key: Key, controller: Controller) -> Condition | None:
    """What is wrong with the claim that spec.persistence names; raises NotUsableError if standbys can't share it, or
    if that can't be known yet.

    Else a claim that isn't there is Kubernetes' to wait for: slurmctld's pod is scheduled as soon as it is.
    """
    name = controller.spec.persistence.existing_claim
    if not (controller.spec.persistence.enabled and name) or controller.spec.external:
        return None
    claim = context.caches.other_claims.store.get(key[0], name)
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


def slurm_reachable(context: Context, key: Key) -> Condition:
    """The condition `SlurmReachable`: whether the operator sees the Slurm cluster through slurmrestd."""
    cluster = context.clusters.get(key)
    if cluster is None:
        said = "no RestApi refers to this Controller, or its JWT key is missing: nodes can't be drained before they go"
        return Condition("SlurmReachable", "Unknown", "NoRestApi", said)
    problem = cluster.view().problem
    if problem is not None:
        return Condition("SlurmReachable", "False", "NoAnswer", f"{cluster.url}: {problem}")
    return Condition("SlurmReachable", "True", "Polled", f"{cluster.url} answers")
