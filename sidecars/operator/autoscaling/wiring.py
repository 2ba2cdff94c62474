"""Which change wakes the pass over the NodeSets of a Controller that are scaled."""

from sidecars import objects
from sidecars.kube import Event, Manifest
from sidecars.operator.autoscaling.memory import Memories
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.pods import nodeset_of
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import has_changed, key_of


def wire(runtime: Runtime, memories: Memories) -> None:
    """Subscribe. Call it once, before the reflectors run."""

    def wake(controller: Key) -> None:
        memory = memories.get(controller)
        if memory is not None:
            memory.changed = True
            runtime.queues.autoscaling.add(controller)

    def nodesets(event: Event[Manifest]) -> None:
        if has_changed(runtime, event) and any(is_scaled(it) for it in (event.old, event.new)):
            controller = controller_of(event.object)
            wake(controller)
            runtime.queues.autoscaling.add(controller)

    def controllers(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            wake(key_of(event.object))

    def pods(event: Event[objects.Pod]) -> None:
        nodeset = nodeset_of(runtime, event.object) if memories else None
        if nodeset is not None and is_scaled(nodeset):
            wake(controller_of(nodeset))

    def slurm_changed(controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        wake(controller)

    runtime.caches.nodesets.store.subscribe(nodesets)
    runtime.caches.controllers.store.subscribe(controllers)
    runtime.caches.pods.store.subscribe(pods)
    runtime.clusters.subscribe(slurm_changed)


def is_scaled(nodeset: Manifest | None) -> bool:
    """Return whether the operator sets its replicas."""
    return nodeset is not None and bool((nodeset.get("spec") or {}).get("autoscaling"))
