"""Which change wakes which LoginSet."""

from sidecars import objects
from sidecars.kube import Event, Manifest
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import (
    follow_children,
    follow_controller,
    follow_references,
    has_changed,
    instance,
    key_of,
)


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    caches, queue = runtime.caches, runtime.queues.loginsets
    caches.login_pods.store.add_index("loginset", lambda pod: (instance(pod),))

    def loginsets(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            queue.add(key_of(event.object))

    def login_pods(event: Event[objects.Pod]) -> None:
        if event.old is None or event.new is None or _address(event.old) != _address(event.new):
            queue.add(instance(event.object))

    def children(kind: str, owner: Key) -> None:
        if kind == "LoginSet":
            queue.add(owner)

    caches.loginsets.store.subscribe(loginsets)
    caches.login_pods.store.subscribe(login_pods)
    follow_controller(runtime, caches.loginsets.store, queue)
    follow_references(runtime, caches.loginsets.store, queue)
    follow_children(runtime, children)


def _address(pod: objects.Pod) -> tuple[str, str]:
    return pod.status.phase, pod.status.pod_ip
