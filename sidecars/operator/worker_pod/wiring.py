"""Which change wakes which worker pod."""

from collections.abc import Iterable

from sidecars import objects
from sidecars.kube import Event, Manifest
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
    """Subscribe. Call it once, before the reflectors run; the NodeSets' wiring adds the indexes of
    worker pods.
    """
    caches = runtime.caches
    wake = _Wake(runtime)
    runtime.switches.wire(caches)
    caches.controllers.store.subscribe(wake.controllers)
    caches.own_config_maps.store.subscribe(wake.config_maps)
    caches.nodesets.store.subscribe(wake.nodesets)
    caches.pods.store.subscribe(wake.pods)
    caches.kube_nodes.store.subscribe(wake.kube_nodes)
    runtime.clusters.subscribe(wake.slurm_changed)


class _Wake:
    """Adds worker pods to the queue: a method for each kind of change."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._caches = runtime.caches
        self._queue = runtime.queues.pods

    def nodesets(self, event: Event[Manifest]) -> None:
        # Of a change of `replicas`, thousands of pods have nothing to show.
        if (
            event.old is not None
            and event.new is not None
            and shown_by(event.old) != shown_by(event.new)
        ):
            add_all(self._queue, self._pods_of(event.object))

    def pods(self, event: Event[objects.Pod]) -> None:
        owner = event.object.metadata.controller
        if owner is None or owner.kind != "NodeSet" or event.new is None:
            return
        if event.old is None or _decided_by(event.old) != _decided_by(event.new):
            self._queue.add(pod_key(event.new))

    def kube_nodes(self, event: Event[objects.Node]) -> None:
        if kube_node_changed(self._runtime, event):
            there = self._caches.pods.store.by("kube_node", event.object.metadata.name)
            add_all(self._queue, map(pod_key, there))

    def controllers(self, event: Event[Manifest]) -> None:
        if (
            event.old is not None
            and event.new is not None
            and _topologies(event.old) != _topologies(event.new)
        ):
            self._controller_changed(key_of(event.object))

    def config_maps(self, event: Event[Manifest]) -> None:
        if event.new is not None and _topology_file(event.new) != (
            _topology_file(event.old) if event.old else None
        ):
            # It may be that of the running slurmctld, which then has another switch or block.
            namespace, name = key_of(event.object)
            for owner in event.object["metadata"].get("ownerReferences") or ():
                if owner["kind"] == "Controller" and name.startswith(
                    accepted_config(owner["name"], 0)
                ):
                    self._controller_changed((namespace, owner["name"]))

    def slurm_changed(
        self, controller: Key, changed: frozenset[str], removed: frozenset[str]
    ) -> None:
        wake_pods(self._runtime, controller, changed | removed)
        if not changed and not removed:
            # What changed while Slurm couldn't be trusted has not been shown yet.
            self._controller_changed(controller)

    def _controller_changed(self, controller: Key) -> None:
        for nodeset in self._caches.nodesets.store.values():
            if controller_of(nodeset) == controller:
                add_all(self._queue, self._pods_of(nodeset))

    def _pods_of(self, nodeset: Manifest) -> Iterable[Key]:
        return map(pod_key, self._caches.pods.store.by("owner", own_id(nodeset)))


def _topologies(controller: Manifest) -> object:
    return (controller.get("spec") or {}).get("topologies")


def _topology_file(config_map: Manifest) -> object:
    return (config_map.get("data") or {}).get(topology.FILE)


def _decided_by(pod: objects.Pod) -> tuple[object, ...]:
    """Return what a pass over the pod alone depends on."""
    ours = [it for it in pod.status.conditions if it.type.startswith(podstate.CONDITION_PREFIX)]
    return pod.spec, pod.metadata.labels, pod.metadata.annotations, ours
