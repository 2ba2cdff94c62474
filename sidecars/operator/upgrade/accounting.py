"""What a Controller waits for before it turns accounting on.

A slurmctld that was never told by slurmdbd what can be accounted for ends at once when slurmdbd doesn't answer. So the
configuration names slurmdbd only when it is up; once it is named, slurmctld gets along without.
"""

from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.workload import WAITING
from sidecars.policy import conditions
from sidecars.workloads import names
from sidecars.workloads.config_maps import CONFIG_MAPS
from sidecars.workloads.resources import Controller

DEADLINE_SECONDS = 120.0
"""How long a Controller waits for an Accounting that is there but not ready, from the Accounting's creation."""

_NAMED = "AccountingStorageType=accounting_storage/slurmdbd\n"


def check(runtime: Runtime, controller: Controller) -> None:
    """Raises NotUsableError while the Controller's configuration should not be made from its accountingRef yet.

    The Accounting's changes wake the Controller; so does the deadline.
    """
    reference = controller.spec.accounting_ref
    if reference is None or not reference.name:
        return
    manifest = runtime.caches.accountings.store.get(controller.namespace, reference.name)
    if manifest is None:
        said = (
            f"spec.accountingRef: there is no Accounting {reference.name!r} in {controller.namespace!r}; "
            "it is taken up as soon as there is"
        )
        raise NotUsableError("AccountingMissing", said)
    if manifest["spec"].get("external") or conditions.is_true(manifest, "Ready") or _in_use(runtime, controller):
        return
    created = conditions.seconds(manifest["metadata"].get("creationTimestamp")) or 0.0
    left = created + DEADLINE_SECONDS - runtime.now()
    if left > 0:
        runtime.queues.controllers.add_after((controller.namespace, controller.name), left)
        said = (
            f"Accounting {reference.name!r} isn't ready, and slurmctld can't start without it the first time; "
            f"tried all the same {DEADLINE_SECONDS:.0f} s after the Accounting was made. "
            f"See `kubectl -n {controller.namespace} get accountings {reference.name} -o wide`"
        )
        raise NotUsableError(WAITING, said)


def _in_use(runtime: Runtime, controller: Controller) -> bool:
    """Whether the configuration that was made before names slurmdbd."""
    for index in range(CONFIG_MAPS):
        config_map = runtime.caches.own_config_maps.store.get(
            controller.namespace, names.config(controller.name, index)
        )
        if config_map is not None and _NAMED in (config_map.get("data") or {}).get("slurm.conf", ""):
            return True
    return False
