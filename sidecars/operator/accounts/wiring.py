"""Which change wakes the pass over what a Controller declares for slurmdbd."""

from typing import Any

from sidecars.kube import Event, Manifest, identity
from sidecars.operator.runtime.contents import REFERENCES
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import has_changed, key_of
from sidecars.workloads.references import Reference


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    caches, queue = runtime.caches, runtime.queues.declared_accounts
    controllers = caches.controllers.store

    def changed(event: Event[Manifest]) -> None:
        if has_changed(runtime, event) and any(_declares(it) for it in (event.old, event.new)):
            queue.add(key_of(event.object))

    def config_maps(event: Event[Any]) -> None:
        for controller in controllers.by(
            REFERENCES, Reference("ConfigMap", *identity(event.object).key)
        ):
            if _declares(controller):
                queue.add(key_of(controller))

    def slurm_changed(controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        # Its nodes don't matter here, only whether it answers.
        if not changed and not removed and _declares(controllers.get(*controller)):
            queue.add(controller)

    controllers.subscribe(changed)
    caches.other_config_maps.store.subscribe(config_maps)
    runtime.clusters.subscribe(slurm_changed)


def _declares(controller: Manifest | None) -> bool:
    return controller is not None and bool(
        (controller.get("spec") or {}).get("declaredAccountsRef")
    )
