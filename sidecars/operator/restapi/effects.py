"""One pass over one RestApi."""

from sidecars.kube import DEPLOYMENTS
from sidecars.operator import upgrade, workload
from sidecars.operator.accounting import waiting
from sidecars.operator.caches import RESTAPIS
from sidecars.operator.context import IN_USE, Context, Key, NotUsableError, controller_of
from sidecars.operator.controller import keys
from sidecars.policy.conditions import Condition
from sidecars.workloads import names
from sidecars.workloads import restapi as render
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.resources import ResourceError, RestApi, read


async def reconcile(context: Context, key: Key) -> None:
    """Bring slurmrestd to what the RestApi says; report."""
    namespace, name = key
    manifest = context.caches.restapis.store.get(namespace, name)
    if manifest is None:
        return
    if manifest["metadata"].get("deletionTimestamp"):
        await context.let_go_unless_used(RESTAPIS, manifest, context.users_of(*controller_of(manifest)))
        return
    try:
        restapi = read(RestApi, manifest)
    except ResourceError as error:
        await context.report(RESTAPIS, manifest, [Condition("Ready", "False", "Invalid", str(error))])
        return
    await context.hold(RESTAPIS, manifest, IN_USE)
    try:
        controller = context.needed_controller(namespace, restapi.spec.controller_ref.name)
        with workload.usable():
            keys.wait_for(context, namespace, slurm_key(controller))
        # slurmrestd reads slurm.conf at its start.
        waiting.check(context, controller)
        facts = context.facts(controller)
        with workload.usable():
            rendered = render.objects(restapi, controller, facts)
        held = upgrade.arrange(context, rendered, "slurmrestd", upgrade.before_clients(context, controller))
        await workload.apply_all(context, manifest, "RestApi", lambda: rendered)
        ready = workload.readiness(context, DEPLOYMENTS, namespace, names.restapi(name))
        if held is not None:
            ready = held.condition
            if (seconds := upgrade.again(held)) is not None:
                context.queues.restapis.add_after(key, seconds)
    except NotUsableError as error:
        ready = workload.refused(context, manifest, error)
    await context.report(
        RESTAPIS, manifest, [ready], workload.counts(context, DEPLOYMENTS, namespace, names.restapi(name))
    )
