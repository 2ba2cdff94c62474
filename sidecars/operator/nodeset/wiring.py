"""Which change wakes which NodeSet."""

from collections.abc import Iterable

from sidecars import objects
from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import Event, Manifest
from sidecars.operator.nodeset import adoption
from sidecars.operator.nodeset.memories import Memories, Memory
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.pods import cluster_of
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import (
    add_all,
    follow_controller,
    follow_references,
    has_changed,
    instance,
    key_of,
    kube_node_changed,
)
from sidecars.policy import podstate
from sidecars.policy.nodeset.observation import slurm_node
from sidecars.workloads import names

LONGEST_PATIENCE = 2.0
"""Seconds for which a NodeSet of thousands of pods waits for more of their events at the most."""


def patience(pods: int) -> float:
    """Return the seconds that a NodeSet of so many pods waits: a pass over thousands is expensive,
    and events come in crowds.
    """
    return min(LONGEST_PATIENCE, pods * 0.0005)


def wire(runtime: Runtime, memories: Memories) -> None:
    """Add the indexes of worker pods, of their claims and of Kubernetes nodes, and subscribe.

    Call it once, before the reflectors run.
    """
    caches, queue = runtime.caches, runtime.queues.nodesets
    caches.pods.store.add_index("owner", _controllers)
    caches.pods.store.add_index("slurm_node", _slurm_nodes)
    caches.pods.store.add_index(adoption.ORPHANED, adoption.index)
    caches.pods.store.add_index(
        "kube_node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ()
    )
    caches.kube_nodes.store.add_index("topology", _has_topology)
    caches.claims.store.add_index("instance", lambda claim: (instance(claim),))
    caches.claims.store.add_index(
        "place", lambda claim: ((*instance(claim), _place(claim)),) if _place(claim) else ()
    )
    caches.controller_revisions.store.add_index("owner", _owners)

    wake = _Wake(runtime, memories)
    caches.nodesets.store.subscribe(wake.nodesets)
    caches.pods.store.subscribe(wake.pods)
    caches.controller_revisions.store.subscribe(wake.controller_revisions)
    caches.claims.store.subscribe(wake.claims)
    caches.kube_nodes.store.subscribe(wake.kube_nodes)
    caches.own_config_maps.store.subscribe(wake.config_maps)
    follow_controller(runtime, caches.nodesets.store, queue)
    follow_references(runtime, caches.nodesets.store, queue)
    runtime.clusters.subscribe(wake.slurm_changed)


class _Wake:
    """Adds NodeSets to the queue: a method for each kind of change."""

    def __init__(self, runtime: Runtime, memories: Memories) -> None:
        self._runtime = runtime
        self._caches = runtime.caches
        self._expectations = runtime.expectations
        self._queue = runtime.queues.nodesets
        self._memories = memories

    def nodesets(self, event: Event[Manifest]) -> None:
        if event.new is not None:
            adoption.remember(self._memories, event.new)
        if has_changed(self._runtime, event):
            self._urgent(key_of(event.object))

    def pods(self, event: Event[objects.Pod]) -> None:
        owner = event.object.metadata.controller
        if owner is None and instance(event.object) in self._caches.nodesets.store:
            # It may be adopted, or its name is free.
            self._queue.add(instance(event.object))
        if owner is None or owner.kind != "NodeSet":
            return
        key = (event.object.metadata.namespace, owner.name)
        self._meet_expectations(key, event)
        memory = self._memories.get(key) or Memory()
        if (
            event.old is not None
            and event.new is not None
            and _decided_by(event.old) == _decided_by(event.new)
        ):
            memory.is_as_before(event.old, event.new)
            return
        goes_on = memory.deferral.creating and self._expectations.satisfied(key)
        self._queue.add_after(key, 0.0 if goes_on else patience(len(memory.pods)))
        if _has_become_ready(event) and not memory.deferral.creating:
            # It has registered: Slurm's record of it is new. Of a crowd, the poller hears soon
            # enough.
            cluster = cluster_of(self._runtime, event.object)
            if cluster is not None:
                cluster.poller.wake()

    def controller_revisions(self, event: Event[Manifest]) -> None:
        if event.kind != "ADDED":
            add_all(self._queue, _owning_nodesets(event.object))

    def claims(self, event: Event[objects.PersistentVolumeClaim]) -> None:
        self._queue.add(instance(event.object))

    def kube_nodes(self, event: Event[objects.Node]) -> None:
        if not kube_node_changed(self._runtime, event):
            return
        for key, memory in self._memories.items():
            rules = memory.rules
            if rules is not None:
                old, new = (
                    rules.place(it) if it is not None else None for it in (event.old, event.new)
                )
                if old != new:
                    self._urgent(key)
        for pod in self._caches.pods.store.by("kube_node", event.object.metadata.name):
            owner = pod.metadata.controller
            if owner is not None:
                self._urgent((pod.metadata.namespace, owner.name))

    def config_maps(self, event: Event[Manifest]) -> None:
        add_all(self._queue, _owning_nodesets(event.object))

    def slurm_changed(
        self, controller: Key, changed: frozenset[str], removed: frozenset[str]
    ) -> None:
        for nodeset in self._caches.nodesets.store.values():
            if controller_of(nodeset) == controller:
                memory = self._memories.get(key_of(nodeset))
                if memory is not None:
                    memory.slurm_changed = True
                self._queue.add(key_of(nodeset))

    def _urgent(self, key: Key) -> None:
        """Look at the NodeSet at once, even while its pods are created."""
        memory = self._memories.get(key)
        if memory is not None:
            memory.urgent = True
        self._queue.add(key)

    def _meet_expectations(self, key: Key, event: Event[objects.Pod]) -> None:
        if event.kind == "ADDED":
            self._expectations.creation_observed(key)
        metadata = event.object.metadata
        if event.kind == "DELETED" or metadata.deletion_timestamp is not None:
            self._expectations.deletion_observed(key, metadata.uid)


def _has_become_ready(event: Event[objects.Pod]) -> bool:
    old, new = event.old, event.new
    return old is not None and new is not None and new.status.ready and not old.status.ready


def _decided_by(pod: objects.Pod) -> tuple[object, ...]:
    """Return the pod without what the operator shows on it, which is no reason for another pass
    over all pods of its NodeSet.
    """
    meta, status = pod.metadata, pod.status
    return (
        (
            meta.uid,
            meta.deletion_timestamp,
            meta.deletion_grace_period_seconds,
            meta.owner_references,
            meta.finalizers,
        ),
        {name: value for name, value in meta.labels.items() if name != names.POD_PROTECT},
        {
            name: value
            for name, value in meta.annotations.items()
            if name not in {names.POD_DEADLINE, TOPOLOGY, *names.EVICTION}
        },
        pod.spec,
        [it for it in status.conditions if not it.type.startswith(podstate.CONDITION_PREFIX)],
        (
            status.phase,
            status.reason,
            status.pod_ip,
            status.init_container_statuses,
            status.container_statuses,
        ),
    )


def _slurm_nodes(pod: objects.Pod) -> Iterable[tuple[str, str, str]]:
    """Return namespace and Controller of a worker pod, and its Slurm node."""
    name = slurm_node(pod)
    return (
        ((pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER, ""), name),)
        if name
        else ()
    )


def _has_topology(node: objects.Node) -> Iterable[bool]:
    return (True,) if node.metadata.annotations.get(TOPOLOGY) else ()


def _place(claim: objects.PersistentVolumeClaim) -> str | None:
    """Return the Kubernetes node whose worker's it is, in DaemonSet mode."""
    return claim.metadata.annotations.get(names.KUBE_NODE)


def _controllers(pod: objects.Pod) -> Iterable[tuple[str, str]]:
    """See `own_id`. Anyone can write the uid of a NodeSet of another namespace as that of an
    owner.
    """
    owner = pod.metadata.controller
    return ((pod.metadata.namespace, owner.uid),) if owner is not None else ()


def _owners(manifest: Manifest) -> Iterable[tuple[str, str]]:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return ((metadata["namespace"], owner["uid"]) for owner in owners if owner.get("controller"))


def _owning_nodesets(manifest: Manifest) -> Iterable[Key]:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return (
        (metadata["namespace"], owner["name"]) for owner in owners if owner["kind"] == "NodeSet"
    )
