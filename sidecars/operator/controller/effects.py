"""One pass over one Controller."""

from sidecars.kube import STATEFUL_SETS
from sidecars.operator import workload
from sidecars.operator.caches import CONTROLLERS
from sidecars.operator.context import IN_USE, Context, Key, NotUsableError
from sidecars.policy.conditions import Condition
from sidecars.workloads import controller as render
from sidecars.workloads import names, nodeset
from sidecars.workloads.resources import ResourceError


async def reconcile(context: Context, key: Key) -> None:
    """Bring slurmctld and what surrounds it to what the Controller says; connect to its Slurm; report."""
    namespace, name = key
    manifest = context.caches.controllers.store.get(namespace, name)
    if manifest is None:
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
    try:
        nodesets = context.nodesets_of(namespace, name)
        facts = context.facts(controller)
        await workload.apply_all(
            context,
            manifest,
            "Controller",
            lambda: [
                *render.objects(controller, nodesets, facts),
                *nodeset.shared_objects(controller, nodesets, facts),
            ],
        )
        ready = (
            Condition("Ready", "True", "External", "slurmctld runs outside this Kubernetes cluster")
            if controller.spec.external
            else workload.readiness(context, STATEFUL_SETS, namespace, names.controller(name))
        )
    except NotUsableError as error:
        ready = Condition("Ready", "False", error.reason, str(error))
    await context.report(CONTROLLERS, manifest, [ready, slurm_reachable(context, key)])


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
