"""Which change wakes which NodeSet."""

from collections.abc import Iterable

from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import Event, Manifest, records
from sidecars.operator.nodeset import adoption
from sidecars.operator.nodeset.memory import Memories, Memory
from sidecars.operator.nodeset.observation import as_placed
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.pods import cluster_of, slurm_node
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
from sidecars.workloads import names

LONGEST_PATIENCE = 2.0
"""Seconds for which a NodeSet of thousands of pods waits for more of their events at the most."""


def patience(pods: int) -> float:
    """Seconds that a NodeSet of so many pods waits: a pass over thousands is dear, and events come in crowds."""
    return min(LONGEST_PATIENCE, pods * 0.0005)


def wire(runtime: Runtime, memories: Memories) -> None:
    """Add the indexes of worker pods, of their claims and of Kubernetes nodes, and subscribe.

    Call it once, before the reflectors run.
    """
    caches, queue = runtime.caches, runtime.queues.nodesets
    caches.pods.store.add_index("owner", _controllers)
    caches.pods.store.add_index("slurm_node", _slurm_nodes)
    caches.pods.store.add_index(adoption.ORPHANED, adoption.index)
    caches.pods.store.add_index("kube_node", lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
    caches.kube_nodes.store.add_index("topology", _has_topology)
    caches.claims.store.add_index("instance", lambda claim: (instance(claim),))
    caches.claims.store.add_index("place", lambda claim: ((*instance(claim), _place(claim)),) if _place(claim) else ())
    caches.controller_revisions.store.add_index("owner", _owners)

    def urgent(key: Key) -> None:
        """Look at the NodeSet at once, even while its pods are created."""
        memory = memories.get(key)
        if memory is not None:
            memory.urgent = True
        queue.add(key)

    def nodesets(event: Event[Manifest]) -> None:
        if event.new is not None:
            adoption.remember(memories, event.new)
        if has_changed(runtime, event):
            urgent(key_of(event.object))

    def pods(event: Event[records.Pod]) -> None:
        owner = event.object.metadata.controller
        if owner is None and instance(event.object) in caches.nodesets.store:
            # It may be adopted, or its name is free.
            queue.add(instance(event.object))
        if owner is None or owner.kind != "NodeSet":
            return
        key = (event.object.metadata.namespace, owner.name)
        if event.kind == "ADDED":
            runtime.expectations.creation_observed(key)
        deleted = event.kind == "DELETED" or event.object.metadata.deletion_timestamp is not None
        if deleted:
            runtime.expectations.deletion_observed(key, event.object.metadata.uid)
        memory = memories.get(key) or Memory()
        if event.old is not None and event.new is not None and _decided_by(event.old) == _decided_by(event.new):
            memory.is_as_before(event.old, event.new)
            return
        goes_on = memory.deferral.creating and runtime.expectations.satisfied(key)
        queue.add_after(key, 0.0 if goes_on else patience(len(memory.pods)))
        if event.old is None or event.new is None:
            return
        if event.new.status.ready and not event.old.status.ready and not memory.deferral.creating:
            # It has registered: Slurm's record of it is new. Of a crowd, the poller hears soon enough.
            cluster = cluster_of(runtime, event.new)
            if cluster is not None:
                cluster.poller.wake()

    def controller_revisions(event: Event[Manifest]) -> None:
        if event.kind != "ADDED":
            add_all(queue, _owning_nodesets(event.object))

    def claims(event: Event[records.PersistentVolumeClaim]) -> None:
        queue.add(instance(event.object))

    def kube_nodes(event: Event[records.Node]) -> None:
        if not kube_node_changed(runtime, event):
            return
        for key, memory in memories.items():
            rules = memory.rules
            if rules is not None:
                old, new = (rules.place(as_placed(it)) if it is not None else None for it in (event.old, event.new))
                if old != new:
                    urgent(key)
        for pod in caches.pods.store.by("kube_node", event.object.metadata.name):
            owner = pod.metadata.controller
            if owner is not None:
                urgent((pod.metadata.namespace, owner.name))

    def config_maps(event: Event[Manifest]) -> None:
        add_all(queue, _owning_nodesets(event.object))

    def slurm_changed(controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        for nodeset in caches.nodesets.store.values():
            if controller_of(nodeset) == controller:
                memory = memories.get(key_of(nodeset))
                if memory is not None:
                    memory.slurm_changed = True
                queue.add(key_of(nodeset))

    caches.nodesets.store.subscribe(nodesets)
    caches.pods.store.subscribe(pods)
    caches.controller_revisions.store.subscribe(controller_revisions)
    caches.claims.store.subscribe(claims)
    caches.kube_nodes.store.subscribe(kube_nodes)
    caches.own_config_maps.store.subscribe(config_maps)
    follow_controller(runtime, caches.nodesets.store, queue)
    follow_references(runtime, caches.nodesets.store, queue)
    runtime.clusters.subscribe(slurm_changed)


def _decided_by(pod: records.Pod) -> tuple[object, ...]:
    """The pod without what the operator shows on it: no reason for another pass over all pods of its NodeSet."""
    meta, status = pod.metadata, pod.status
    return (
        (meta.uid, meta.deletion_timestamp, meta.deletion_grace_period_seconds, meta.owner_references, meta.finalizers),
        {name: value for name, value in meta.labels.items() if name != names.POD_PROTECT},
        {name: value for name, value in meta.annotations.items() if name not in {names.POD_DEADLINE, TOPOLOGY}},
        pod.spec,
        [it for it in status.conditions if not it.type.startswith(podstate.CONDITION_PREFIX)],
        (status.phase, status.reason, status.pod_ip, status.init_container_statuses, status.container_statuses),
    )


def _slurm_nodes(pod: records.Pod) -> Iterable[tuple[str, str, str]]:
    """Namespace and Controller of a worker pod, and its Slurm node."""
    name = slurm_node(pod)
    return ((pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER, ""), name),) if name else ()


def _has_topology(node: records.Node) -> Iterable[bool]:
    return (True,) if node.metadata.annotations.get(TOPOLOGY) else ()


def _place(claim: records.PersistentVolumeClaim) -> str | None:
    """The Kubernetes node whose worker's it is, in DaemonSet mode."""
    return claim.metadata.annotations.get(names.KUBE_NODE)


def _controllers(pod: records.Pod) -> Iterable[tuple[str, str]]:
    """See `own_id`. Anyone can write the uid of a NodeSet of another namespace as that of an owner."""
    owner = pod.metadata.controller
    return ((pod.metadata.namespace, owner.uid),) if owner is not None else ()


def _owners(manifest: Manifest) -> Iterable[tuple[str, str]]:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return ((metadata["namespace"], owner["uid"]) for owner in owners if owner.get("controller"))


def _owning_nodesets(manifest: Manifest) -> Iterable[Key]:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return ((metadata["namespace"], owner["name"]) for owner in owners if owner["kind"] == "NodeSet")
