"""Which change wakes the pass over the users that a Controller declares."""

from typing import Any

from sidecars.kube import Event, Manifest, identity
from sidecars.operator.runtime.contents import REFERENCES
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import follow_children, has_changed, key_of
from sidecars.workloads.references import Reference


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    caches, queue = runtime.caches, runtime.queues.declared_users
    controllers = caches.controllers.store

    def changed(event: Event[Manifest]) -> None:
        # One without a reference too: its pods may still have users.
        if has_changed(runtime, event):
            queue.add(key_of(event.object))

    def secrets(event: Event[Any]) -> None:
        for controller in controllers.by(
            REFERENCES, Reference("Secret", *identity(event.object).key)
        ):
            if _declares(controller):
                queue.add(key_of(controller))

    def children(kind: str, owner: Key) -> None:
        # Someone may have changed or deleted the ConfigMap.
        if kind == "Controller" and _declares(controllers.get(*owner)):
            queue.add(owner)

    controllers.subscribe(changed)
    caches.other_secrets.store.subscribe(secrets)
    caches.own_secrets.store.subscribe(secrets)
    follow_children(runtime, children)


def _declares(controller: Manifest | None) -> bool:
    return controller is not None and bool((controller.get("spec") or {}).get("usersRef"))
