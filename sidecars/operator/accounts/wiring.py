"""Which change wakes the pass over what a Controller declares for slurmdbd."""

from sidecars.kube import Event, Manifest
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import follow_references, has_changed, key_of


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    controllers, queue = runtime.caches.controllers.store, runtime.queues.declared_accounts

    def changed(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            queue.add(key_of(event.object))

    def slurm_changed(controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        # Its nodes don't matter here, only whether it answers.
        if not changed and not removed:
            queue.add(controller)

    controllers.subscribe(changed)
    follow_references(runtime, controllers, queue)
    runtime.clusters.subscribe(slurm_changed)
