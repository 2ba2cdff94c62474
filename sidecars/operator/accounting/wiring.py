"""Which change wakes which Accounting."""

from sidecars.kube import Event, Manifest
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import follow_children, follow_references, has_changed, key_of


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    store, queue = runtime.caches.accountings.store, runtime.queues.accountings

    def accountings(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            queue.add(key_of(event.object))

    def children(kind: str, owner: Key) -> None:
        if kind == "Accounting":
            queue.add(owner)

    def controllers(event: Event[Manifest]) -> None:
        before, after = _gets_users(event.old), _gets_users(event.new)
        for name in {before, after} - {""} if before != after else ():
            queue.add((event.object["metadata"]["namespace"], name))

    store.subscribe(accountings)
    runtime.caches.controllers.store.subscribe(controllers)
    follow_references(runtime, store, queue)
    follow_children(runtime, children)


def _gets_users(controller: Manifest | None) -> str:
    """Return the name of the Accounting whose slurmdbd has the users that a Controller declares, ""
    without one.
    """
    spec = (controller or {}).get("spec") or {}
    return str((spec.get("accountingRef") or {}).get("name") or "") if spec.get("usersRef") else ""
