"""Which change wakes which Token."""

from sidecars.kube import Event, Manifest
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import follow_references, has_changed, key_of


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    store, queue = runtime.caches.tokens.store, runtime.queues.tokens

    def tokens(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            queue.add(key_of(event.object))

    store.subscribe(tokens)
    follow_references(runtime, store, queue)
