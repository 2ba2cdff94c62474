"""Waits until a Controller's configuration may name slurmdbd, as `core.accounting` decides."""

from sidecars.operator.core import accounting
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.workloads import names
from sidecars.workloads.config_maps import CONFIG_MAPS
from sidecars.workloads.resources import Controller

_NAMED = "AccountingStorageType=accounting_storage/slurmdbd\n"


def check(runtime: Runtime, controller: Controller) -> None:
    """Raise NotUsableError while the Controller's configuration should not be rendered from its
    accountingRef yet. The Accounting's changes wake the Controller. So does the deadline.
    """
    reference = controller.spec.accounting_ref
    if reference is None or not reference.name:
        return
    namespace, name = controller.namespace, reference.name
    manifest = runtime.caches.accountings.store.get(namespace, name)
    wait = accounting.wait(
        namespace, name, manifest, in_use=_in_use(runtime, controller), now=runtime.now()
    )
    if wait is None:
        return
    if wait.seconds is not None:
        runtime.queues.controllers.add_after((namespace, controller.name), wait.seconds)
    raise NotUsableError(wait.reason, wait.message)


def _in_use(runtime: Runtime, controller: Controller) -> bool:
    """Return whether the configuration that is published names slurmdbd."""
    for index in range(CONFIG_MAPS):
        name = names.config(controller.name, index)
        config_map = runtime.caches.own_config_maps.store.get(controller.namespace, name)
        if config_map is not None and _NAMED in (config_map.get("data") or {}).get(
            "slurm.conf", ""
        ):
            return True
    return False
