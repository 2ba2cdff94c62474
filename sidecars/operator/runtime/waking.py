"""What the wirings of all kinds share: which changes matter, and the keys to queue for them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sidecars import objects
from sidecars.kube import Event, Manifest, Store, WorkQueue, identity
from sidecars.operator.runtime.contents import REFERENCES
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import is_true
from sidecars.workloads import names
from sidecars.workloads.references import Kind, Reference

SETTLE_SECONDS = 0.3
"""How long a Controller waits after a change around it: `helm install` creates its NodeSets just
after it.
"""


def key_of(manifest: Manifest) -> Key:
    """Return namespace and name of the object."""
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def own_id(manifest: Manifest) -> tuple[str, str]:
    """Return namespace and uid of the object, by which the index `owner` has what it controls."""
    return manifest["metadata"]["namespace"], manifest["metadata"]["uid"]


def pod_key(pod: objects.Pod) -> Key:
    """Return namespace and name of the pod."""
    return pod.metadata.namespace, pod.metadata.name


def instance(item: objects.Pod | objects.PersistentVolumeClaim) -> Key:
    """Return namespace and name of the custom resource whose instance label the object has."""
    return item.metadata.namespace, item.metadata.labels.get(names.APP_INSTANCE, "")


def keys_in(manifests: Iterable[Manifest], namespace: str) -> Iterable[Key]:
    """Return the keys of those that are in the namespace."""
    return (key_of(item) for item in manifests if item["metadata"]["namespace"] == namespace)


def add_all(queue: WorkQueue[Key], keys: Iterable[Key]) -> None:
    """Queue each of the keys."""
    for key in keys:
        queue.add(key)


def has_changed(runtime: Runtime, event: Event[Manifest]) -> bool:
    """Return whether a custom resource changed by anything but the operator's own status write."""
    if event.old is None or event.new is None:
        return True
    # A status that the watch shows late, or another writer's, must be looked at.
    if event.old.get("status") != event.new.get("status") and not runtime.own_writes.is_reported(
        event.new
    ):
        return True
    return any(
        event.old["metadata"].get(field) != event.new["metadata"].get(field)
        for field in (
            "uid",
            "generation",
            "labels",
            "annotations",
            "finalizers",
            "deletionTimestamp",
        )
    )


def readiness_changed(event: Event[Manifest]) -> bool:
    """Return whether the condition `Ready` of an object that stays became True, or ceased to be
    True.
    """
    old, new = event.old, event.new
    return old is not None and new is not None and is_true(old, "Ready") != is_true(new, "Ready")


def kube_node_changed(runtime: Runtime, event: Event[objects.Node]) -> bool:
    """Return whether anything of a Kubernetes node changed that the operator decides by."""
    if event.old is None or event.new is None:
        return True
    return _decided_by(runtime, event.old) != _decided_by(runtime, event.new)


def _decided_by(runtime: Runtime, node: objects.Node) -> tuple[object, ...]:
    found = tuple(
        node.status.condition(kind) for kind in runtime.settings.propagated_node_conditions
    )
    explained = tuple((it.status, it.reason, it.message) for it in found if it is not None)
    return node.spec, node.metadata.annotations, node.metadata.labels, explained


def follow_controller(runtime: Runtime, store: Store[Manifest], queue: WorkQueue[Key]) -> None:
    """Wake what is in the store when the Controller that it refers to changes, or a RestApi of that
    Controller.
    """

    def wake(controller: Key) -> None:
        add_all(
            queue, (key_of(item) for item in store.values() if controller_of(item) == controller)
        )

    def controllers(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            wake(key_of(event.object))

    def restapis(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            wake(controller_of(event.object))

    runtime.caches.controllers.store.subscribe(controllers)
    runtime.caches.restapis.store.subscribe(restapis)


def follow_accountings(
    runtime: Runtime, store: Store[Manifest], wake: Callable[[Key], None]
) -> None:
    """Wake what is in the store when an Accounting of its namespace changes or becomes ready."""

    def accountings(event: Event[Manifest]) -> None:
        if has_changed(runtime, event) or readiness_changed(event):
            for key in keys_in(store.values(), event.object["metadata"]["namespace"]):
                wake(key)

    runtime.caches.accountings.store.subscribe(accountings)


def follow_references(runtime: Runtime, store: Store[Manifest], queue: WorkQueue[Key]) -> None:
    """Wake what is in the store when a Secret or ConfigMap changes that it refers to, or that its
    Controller does.
    """
    caches = runtime.caches

    def changed(kind: Kind, event: Event[Any]) -> None:
        reference = Reference(kind, *identity(event.object).key)
        add_all(queue, map(key_of, store.by(REFERENCES, reference)))
        controllers = {key_of(item) for item in caches.controllers.store.by(REFERENCES, reference)}
        if controllers and store is not caches.controllers.store:
            add_all(
                queue,
                (key_of(item) for item in store.values() if controller_of(item) in controllers),
            )

    caches.own_secrets.store.subscribe(partial(changed, "Secret"))
    caches.other_secrets.store.subscribe(partial(changed, "Secret"))
    caches.own_config_maps.store.subscribe(partial(changed, "ConfigMap"))
    caches.other_config_maps.store.subscribe(partial(changed, "ConfigMap"))


def follow_children(runtime: Runtime, wake: Callable[[str, Key], None]) -> None:
    """Call `wake` with the kind and key of each owner of an applied object that changes.

    Of the former owners too, who want it back.
    """

    def children(event: Event[Any]) -> None:
        versions = [item for item in (event.old, event.new) if item is not None]
        for kind, name in dict.fromkeys(owner for item in versions for owner in _owners(item)):
            wake(kind, (identity(event.object).key.namespace, name))

    for reflector in runtime.caches.applied().values():
        reflector.store.subscribe(children)


def _owners(item: Any) -> Iterable[tuple[str, str]]:
    """Return kinds and names of the owners."""
    if isinstance(item, dict):
        return [
            (owner["kind"], owner["name"])
            for owner in item["metadata"].get("ownerReferences") or ()
        ]
    return [(owner.kind, owner.name) for owner in item.metadata.owner_references]
