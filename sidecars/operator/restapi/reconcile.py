"""One pass over one RestApi."""

from collections.abc import Mapping
from functools import partial

from sidecars.custom_resources import IN_USE, RESTAPIS
from sidecars.kube import DEPLOYMENTS
from sidecars.operator.keys import distribution
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizer_unless_used
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import accounting, order, takeover
from sidecars.policy import gate
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.workloads import config_maps, names
from sidecars.workloads import restapi as render
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.resources import Controller, ResourceError, RestApi, read


async def reconcile(runtime: Runtime, key: Key) -> None:
    """Bring slurmrestd to what the RestApi describes; report."""
    namespace, name = key
    manifest = runtime.caches.restapis.store.get(namespace, name)
    if manifest is None:
        return
    if manifest["metadata"].get("deletionTimestamp"):
        await remove_finalizer_unless_used(
            runtime, RESTAPIS, manifest, runtime.lookup.users_of(*controller_of(manifest))
        )
        return
    try:
        restapi = read(RestApi, manifest)
    except ResourceError as error:
        await runtime.status.report(
            RESTAPIS, manifest, [Condition("Ready", "False", Ready.INVALID, str(error))]
        )
        return
    await add_finalizer(runtime, RESTAPIS, manifest, IN_USE)
    failure: NotUsableError | None = None
    try:
        controller = runtime.lookup.needed_controller(namespace, restapi.spec.controller_ref.name)
        with workload.usable():
            distribution.wait_for(runtime, namespace, slurm_key(controller))
        # slurmrestd reads slurm.conf at its start.
        accounting.check(runtime, controller)
        facts = await runtime.lookup.facts(controller)
        files = _files(runtime, controller)
        with workload.usable():
            rendered = render.objects(restapi, controller, facts, files)
        blocked = await takeover.block(runtime, controller, DEPLOYMENTS, names.restapi(name))
        if blocked is None:
            blocked = order.arrange(
                runtime, rendered, "slurmrestd", order.before_clients(runtime, controller)
            )
            await workload.apply_all(runtime, manifest, "RestApi", lambda: rendered)
        ready = workload.readiness(runtime, DEPLOYMENTS, namespace, names.restapi(name))
        if blocked is not None:
            ready = blocked.condition
            if (seconds := order.again(blocked)) is not None:
                runtime.queues.restapis.add_after(key, seconds)
    except NotUsableError as error:
        failure, ready = error, workload.refused(runtime, manifest, error)
    counts = await workload.counts(runtime, DEPLOYMENTS, manifest, names.restapi(name))
    await runtime.status.report(RESTAPIS, manifest, [ready], counts)
    workload.raise_retried(failure)


def _files(runtime: Runtime, controller: Controller) -> Mapping[str, str | bytes]:
    """Return the configuration that slurmrestd reads. Raises NotUsableError while none was
    accepted.
    """
    published = runtime.lookup.config_maps(
        controller.namespace, partial(render.config_map, controller)
    )
    files = config_maps.files(published.values())
    if not files:
        message = (
            f"slurmctld of Controller {controller.name!r} has accepted no configuration yet: "
            f"see the Controller's condition {gate.ACCEPTED}"
        )
        raise NotUsableError(Ready.WAITING_FOR_CONFIGURATION, message)
    return files
