"""Which change wakes which worker pod."""

from collections.abc import Iterable

from sidecars.kube import Event, Manifest, records
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.pods import wake_pods
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import add_all, key_of, kube_node_changed, own_id, pod_key
from sidecars.operator.worker_pod.reconcile import shown_by
from sidecars.policy import podstate
from sidecars.workloads import topology
from sidecars.workloads.names import accepted_config


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run; the NodeSets' wiring adds the indexes of worker pods."""
    caches, queue = runtime.caches, runtime.queues.pods

    def pods_of(nodeset: Manifest) -> Iterable[Key]:
        return map(pod_key, caches.pods.store.by("owner", own_id(nodeset)))

    def nodesets(event: Event[Manifest]) -> None:
        # Of a change of `replicas`, thousands of pods have nothing to show.
        if event.old is not None and event.new is not None and shown_by(event.old) != shown_by(event.new):
            add_all(queue, pods_of(event.object))

    def pods(event: Event[records.Pod]) -> None:
        owner = event.object.metadata.controller
        if owner is None or owner.kind != "NodeSet" or event.new is None:
            return
        if event.old is None or _decided_by(event.old) != _decided_by(event.new):
            queue.add(pod_key(event.new))

    def kube_nodes(event: Event[records.Node]) -> None:
        if kube_node_changed(runtime, event):
            add_all(queue, map(pod_key, caches.pods.store.by("kube_node", event.object.metadata.name)))

    def controllers(event: Event[Manifest]) -> None:
        if event.old is not None and event.new is not None and _topologies(event.old) != _topologies(event.new):
            controller_changed(key_of(event.object))

    def config_maps(event: Event[Manifest]) -> None:
        if event.new is not None and _topology_file(event.new) != (_topology_file(event.old) if event.old else None):
            # It may be that of the running slurmctld, which then has another switch or block.
            namespace, name = key_of(event.object)
            for owner in event.object["metadata"].get("ownerReferences") or ():
                if owner["kind"] == "Controller" and name.startswith(accepted_config(owner["name"], 0)):
                    controller_changed((namespace, owner["name"]))

    def controller_changed(controller: Key) -> None:
        for nodeset in caches.nodesets.store.values():
            if controller_of(nodeset) == controller:
                add_all(queue, pods_of(nodeset))

    def slurm_changed(controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        wake_pods(runtime, controller, changed | removed)
        if not changed and not removed:
            # What changed while Slurm couldn't be trusted has not been shown yet.
            controller_changed(controller)

    runtime.switches.wire(caches)
    caches.controllers.store.subscribe(controllers)
    caches.own_config_maps.store.subscribe(config_maps)
    caches.nodesets.store.subscribe(nodesets)
    caches.pods.store.subscribe(pods)
    caches.kube_nodes.store.subscribe(kube_nodes)
    runtime.clusters.subscribe(slurm_changed)


def _topologies(controller: Manifest) -> object:
    return (controller.get("spec") or {}).get("topologies")


def _topology_file(config_map: Manifest) -> object:
    return (config_map.get("data") or {}).get(topology.FILE)


def _decided_by(pod: records.Pod) -> tuple[object, ...]:
    """What a pass over the pod alone depends on."""
    ours = [it for it in pod.status.conditions if it.type.startswith(podstate.CONDITION_PREFIX)]
    return pod.spec, pod.metadata.labels, pod.metadata.annotations, ours
