"""Which change wakes which worker pod."""

from collections.abc import Iterable

from sidecars.kube import Event, Manifest, records
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.pods import wake_pods
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import add_all, kube_node_changed, pod_key
from sidecars.operator.worker_pod.reconcile import shown_by
from sidecars.policy import podstate


def wire(runtime: Runtime) -> None:
    """Subscribe. Call it once, before the reflectors run; the NodeSets' wiring adds the indexes of worker pods."""
    caches, queue = runtime.caches, runtime.queues.pods

    def pods_of(nodeset: Manifest) -> Iterable[Key]:
        return map(pod_key, caches.pods.store.by("owner", nodeset["metadata"]["uid"]))

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

    def slurm_changed(controller: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        wake_pods(runtime, controller, changed | removed)
        if not changed and not removed:
            # What changed while Slurm couldn't be trusted has not been shown yet.
            for nodeset in caches.nodesets.store.values():
                if controller_of(nodeset) == controller:
                    add_all(queue, pods_of(nodeset))

    caches.nodesets.store.subscribe(nodesets)
    caches.pods.store.subscribe(pods)
    caches.kube_nodes.store.subscribe(kube_nodes)
    runtime.clusters.subscribe(slurm_changed)


def _decided_by(pod: records.Pod) -> tuple[object, ...]:
    """What a pass over the pod alone depends on."""
    ours = [it for it in pod.status.conditions if it.type.startswith(podstate.CONDITION_PREFIX)]
    return pod.spec, pod.metadata.labels, pod.metadata.annotations, ours
