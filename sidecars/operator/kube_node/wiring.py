"""Which change wakes the pass over all Kubernetes nodes."""

from sidecars import objects
from sidecars.kube import Event, Manifest
from sidecars.operator.kube_node.reconcile import ALL
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import kube_node_changed


def wire(runtime: Runtime) -> None:
    """Subscribe, if the settings ask for such passes. Call it once, before the reflectors run."""
    settings = runtime.settings
    if not (settings.cordon_drained_nodes or settings.label_kube_nodes):
        return
    queue = runtime.queues.kube_nodes

    def controllers(event: Event[Manifest]) -> None:
        if event.new is None:
            queue.add(ALL)

    def kube_nodes(event: Event[objects.Node]) -> None:
        if kube_node_changed(runtime, event):
            queue.add(ALL)

    def pods(event: Event[objects.Pod]) -> None:
        runs, ran = (
            pod is not None and pod.status.phase == "Running" for pod in (event.new, event.old)
        )
        ends = settings.label_kube_nodes and event.new is None
        if (runs and not ran) or ends:
            queue.add(ALL)

    def slurm_changed(_: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        queue.add(ALL)

    runtime.caches.controllers.store.subscribe(controllers)
    runtime.caches.kube_nodes.store.subscribe(kube_nodes)
    runtime.caches.pods.store.subscribe(pods)
    runtime.clusters.subscribe(slurm_changed)
