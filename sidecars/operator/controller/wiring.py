"""Which change wakes which Controller."""

from collections.abc import Sequence

from sidecars.kube import Event, Manifest, records
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
    caches.slurmctld_pods.store.add_index("controller", lambda pod: (instance(pod),))

    def controllers(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            queue.add_after(key_of(event.object), SETTLE_SECONDS)

    def restapis(event: Event[Manifest]) -> None:
        if has_changed(runtime, event):
            # Both, where a CRD of another release lets controllerRef change.
            for controller in {controller_of(it) for it in (event.old, event.new) if it is not None}:
                queue.add_after(controller, SETTLE_SECONDS)

    def nodesets(event: Event[Manifest]) -> None:
        if has_changed(runtime, event) or _partitions_changed(event):
            queue.add_after(controller_of(event.object), SETTLE_SECONDS)

    def kube_nodes(event: Event[records.Node]) -> None:
        if labels_changed(event):
            for item in caches.controllers.store.values():
                labels = _block_labels(item)
                if labels and _values(event.old, labels) != _values(event.new, labels):
                    queue.add_after(key_of(item), SETTLE_SECONDS)

    def claims(event: Event[records.PersistentVolumeClaim]) -> None:
        metadata = event.object.metadata
        for item in caches.controllers.store.values():
            if _existing_claim(item) == (metadata.namespace, metadata.name) or _is_state(event.object, item):
                queue.add(key_of(item))

    def slurmctld_pods(event: Event[records.Pod]) -> None:
        if event.old is None or event.new is None or pod_view(event.old) != pod_view(event.new):
            queue.add(instance(event.object))

    def children(kind: str, owner: Key) -> None:
        if kind == "Controller":
            queue.add(owner)
        elif kind == "NodeSet" and (nodeset := caches.nodesets.store.get(*owner)) is not None:
            # What all NodeSets of a Controller share is applied by the Controller's pass.
            queue.add(controller_of(nodeset))

    def slurm_changed(controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        manifest = caches.controllers.store.get(*controller)
        if manifest is not None and gate.is_invalid(manifest):
            # A partition may name a node that has registered meanwhile.
            queue.add_after(controller, SETTLE_SECONDS)
        if not changed and not removed:
            queue.add(controller)

    def service_monitors_served() -> None:
        add_all(queue, map(key_of, caches.controllers.store.values()))

    caches.controllers.store.subscribe(controllers)
    caches.restapis.store.subscribe(restapis)
    caches.nodesets.store.subscribe(nodesets)
    caches.kube_nodes.store.subscribe(kube_nodes)
    caches.other_claims.store.subscribe(claims)
    caches.slurmctld_pods.store.subscribe(slurmctld_pods)
    follow_accountings(runtime, caches.controllers.store, queue.add)
    follow_references(runtime, caches.controllers.store, queue)
    follow_children(runtime, children)
    runtime.clusters.subscribe(slurm_changed)
    caches.service_monitors_served.append(service_monitors_served)


def _block_labels(controller: Manifest) -> tuple[str, ...]:
    """The labels of Kubernetes nodes whose values are in its topology.yaml."""
    topologies = (controller.get("spec") or {}).get("topologies") or ()
    return tuple(it["block"]["label"] for it in topologies if it.get("block"))


def _values(node: records.Node | None, labels: Sequence[str]) -> tuple[str | None, ...]:
    found = node.metadata.labels if node is not None else {}
    return tuple(found.get(label) for label in labels)


def _partitions_changed(event: Event[Manifest]) -> bool:
    """Whether that part of a NodeSet's status changed that is in slurm.conf."""
    old, new = event.old, event.new
    return old is not None and new is not None and _partitions(old) != _partitions(new)


def _partitions(nodeset: Manifest) -> object:
    return (nodeset.get("status") or {}).get("partitions")


def _is_state(claim: records.PersistentVolumeClaim, controller: Manifest) -> bool:
    """Whether slurmctld's StatefulSet created the claim, with the labels by which it selects its pods."""
    return claim.metadata.labels.get(names.APP_NAME) == "slurmctld" and instance(claim) == key_of(controller)


def _existing_claim(controller: Manifest) -> Key:
    """Namespace and name of the claim that slurmctld's state is on; the name is empty without one."""
    persistence = (controller.get("spec") or {}).get("persistence") or {}
    return controller["metadata"]["namespace"], persistence.get("existingClaim") or ""
