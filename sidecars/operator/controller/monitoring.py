"""The ServiceMonitor of a Controller, where Kubernetes has that kind."""

import contextlib

from sidecars.kube import SERVICE_MONITORS, Manifest, NotFound
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import ServiceMonitor
from sidecars.workloads import controller as render
from sidecars.workloads import names
from sidecars.workloads.resources import Controller

TYPE = "ServiceMonitor"


async def apply(
    runtime: Runtime, manifest: Manifest, controller: Controller
) -> tuple[list[Condition], NotUsableError | None]:
    """Have the ServiceMonitor that the Controller asks for, or none; the condition of one that is
    asked for.

    Nothing else waits for it. Returns why it could not be applied, too.
    """
    monitor = render.service_monitor(controller)
    if monitor is None:
        name = names.controller(controller.name)
        live = runtime.caches.live(SERVICE_MONITORS, controller.namespace, name)
        if (
            live is not None
            and _is_owned(live, controller)
            and not live["metadata"].get("deletionTimestamp")
        ):
            with contextlib.suppress(NotFound):
                await runtime.client.delete(SERVICE_MONITORS, controller.namespace, name)
        return [], None
    if not runtime.caches.service_monitors.served:
        message = (
            "Kubernetes has no kind monitoring.coreos.com/v1 ServiceMonitor: install the "
            "Prometheus operator, or set spec.metrics.serviceMonitor.enabled to false; it is "
            "created as soon as the kind exists"
        )
        return [Condition(TYPE, "False", ServiceMonitor.KIND_MISSING, message)], None
    try:
        await workload.apply_all(runtime, manifest, "Controller", lambda: [monitor])
    except NotUsableError as error:
        return [Condition(TYPE, "False", error.reason, str(error))], error
    return [
        Condition(
            TYPE,
            "True",
            ServiceMonitor.APPLIED,
            f"ServiceMonitor {monitor['metadata']['name']} exists",
        )
    ], None


def _is_owned(live: Manifest, controller: Controller) -> bool:
    owners = live["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == controller.metadata.uid for owner in owners)
