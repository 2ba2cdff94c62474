"""Which change wakes which RestApi."""

from sidecars.kube import Event, Manifest
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import (
    add_all,
    follow_accountings,
    follow_children,
    follow_controller,
    follow_references,
    has_changed,
    key_of,
)


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    store, queue = runtime.caches.restapis.store, runtime.queues.restapis

    def restapis(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            queue.add(key_of(event.object))

    def nodesets(event: Event[Manifest]) -> None:
        # A RestApi that is being deleted waits for the NodeSets.
        if has_changed(runtime, event):
            add_all(queue, (key_of(item) for item in store.values() if _is_deleting(item)))

    def published(event: Event[Manifest]) -> None:
        # slurmrestd reads what slurmctld has accepted, and a RestApi may wait until that names
        # slurmdbd.
        owners = event.object["metadata"].get("ownerReferences") or ()
        namespace = event.object["metadata"]["namespace"]
        controllers = {
            (namespace, owner["name"]) for owner in owners if owner["kind"] == "Controller"
        }
        add_all(
            queue, (key_of(item) for item in store.values() if controller_of(item) in controllers)
        )

    def children(kind: str, owner: Key) -> None:
        if kind == "RestApi":
            queue.add(owner)

    store.subscribe(restapis)
    runtime.caches.nodesets.store.subscribe(nodesets)
    runtime.caches.own_config_maps.store.subscribe(published)
    follow_controller(runtime, store, queue)
    follow_accountings(runtime, store, queue.add)
    follow_references(runtime, store, queue)
    follow_children(runtime, children)


def _is_deleting(manifest: Manifest) -> bool:
    return manifest["metadata"].get("deletionTimestamp") is not None
