"""Which change wakes which Controller."""

from collections.abc import Sequence

from sidecars import objects
from sidecars.kube import Event, Manifest
from sidecars.operator.controller.pods import pod_view
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.switches import labels_changed
from sidecars.operator.runtime.waking import (
    SETTLE_SECONDS,
    add_all,
    follow_accountings,
    follow_children,
    follow_references,
    has_changed,
    instance,
    key_of,
)
from sidecars.policy import gate
from sidecars.workloads import names


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run."""
    caches, queue = runtime.caches, runtime.queues.controllers
    wake = _Wake(runtime)
    caches.slurmctld_pods.store.add_index("controller", lambda pod: (instance(pod),))
    caches.controllers.store.subscribe(wake.controllers)
    caches.restapis.store.subscribe(wake.restapis)
    caches.nodesets.store.subscribe(wake.nodesets)
    caches.kube_nodes.store.subscribe(wake.kube_nodes)
    caches.other_claims.store.subscribe(wake.claims)
    caches.slurmctld_pods.store.subscribe(wake.slurmctld_pods)
    follow_accountings(runtime, caches.controllers.store, queue.add)
    follow_references(runtime, caches.controllers.store, queue)
    follow_children(runtime, wake.children)
    runtime.clusters.subscribe(wake.slurm_changed)
    caches.service_monitors_served.append(wake.service_monitors_served)


class _Wake:
    """Adds Controllers to the queue: a method for each kind of change."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._caches = runtime.caches
        self._queue = runtime.queues.controllers

    def controllers(self, event: Event[Manifest]) -> None:
        if has_changed(self._runtime, event):
            self._queue.add_after(key_of(event.object), SETTLE_SECONDS)

    def restapis(self, event: Event[Manifest]) -> None:
        if has_changed(self._runtime, event):
            # Both, where a CRD of another release lets controllerRef change.
            for controller in {
                controller_of(it) for it in (event.old, event.new) if it is not None
            }:
                self._queue.add_after(controller, SETTLE_SECONDS)

    def nodesets(self, event: Event[Manifest]) -> None:
        if has_changed(self._runtime, event) or _partitions_changed(event):
            self._queue.add_after(controller_of(event.object), SETTLE_SECONDS)

    def kube_nodes(self, event: Event[objects.Node]) -> None:
        if labels_changed(event):
            for item in self._caches.controllers.store.values():
                labels = _block_labels(item)
                if labels and _values(event.old, labels) != _values(event.new, labels):
                    self._queue.add_after(key_of(item), SETTLE_SECONDS)

    def claims(self, event: Event[objects.PersistentVolumeClaim]) -> None:
        metadata = event.object.metadata
        for item in self._caches.controllers.store.values():
            if _existing_claim(item) == (metadata.namespace, metadata.name) or _is_state(
                event.object, item
            ):
                self._queue.add(key_of(item))

    def slurmctld_pods(self, event: Event[objects.Pod]) -> None:
        if event.old is None or event.new is None or pod_view(event.old) != pod_view(event.new):
            self._queue.add(instance(event.object))

    def children(self, kind: str, owner: Key) -> None:
        if kind == "Controller":
            self._queue.add(owner)
        elif kind == "NodeSet" and (nodeset := self._caches.nodesets.store.get(*owner)) is not None:
            # What all NodeSets of a Controller share is applied by the Controller's pass.
            self._queue.add(controller_of(nodeset))

    def slurm_changed(
        self, controller: Key, changed: frozenset[str], removed: frozenset[str]
    ) -> None:
        manifest = self._caches.controllers.store.get(*controller)
        if manifest is not None and gate.is_invalid(manifest):
            # A partition may name a node that has registered meanwhile.
            self._queue.add_after(controller, SETTLE_SECONDS)
        if not changed and not removed:
            self._queue.add(controller)

    def service_monitors_served(self) -> None:
        add_all(self._queue, map(key_of, self._caches.controllers.store.values()))


def _block_labels(controller: Manifest) -> tuple[str, ...]:
    """Return the labels of Kubernetes nodes whose values are in its topology.yaml."""
    topologies = (controller.get("spec") or {}).get("topologies") or ()
    return tuple(it["block"]["label"] for it in topologies if it.get("block"))


def _values(node: objects.Node | None, labels: Sequence[str]) -> tuple[str | None, ...]:
    found = node.metadata.labels if node is not None else {}
    return tuple(found.get(label) for label in labels)


def _partitions_changed(event: Event[Manifest]) -> bool:
    """Return whether that part of a NodeSet's status changed that is in slurm.conf."""
    old, new = event.old, event.new
    return old is not None and new is not None and _partitions(old) != _partitions(new)


def _partitions(nodeset: Manifest) -> object:
    return (nodeset.get("status") or {}).get("partitions")


def _is_state(claim: objects.PersistentVolumeClaim, controller: Manifest) -> bool:
    """Return whether slurmctld's StatefulSet created the claim, with the labels by which it selects
    its pods.
    """
    return claim.metadata.labels.get(names.APP_NAME) == "slurmctld" and instance(claim) == key_of(
        controller
    )


def _existing_claim(controller: Manifest) -> Key:
    """Return namespace and name of the claim that slurmctld's state is on. The name is empty
    without one.
    """
    persistence = (controller.get("spec") or {}).get("persistence") or {}
    return controller["metadata"]["namespace"], persistence.get("existingClaim") or ""
