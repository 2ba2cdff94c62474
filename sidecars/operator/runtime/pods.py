"""What a worker pod belongs to."""

from collections.abc import Iterable

from sidecars import objects
from sidecars.kube import Manifest
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.workloads import names


def nodeset_of(runtime: Runtime, pod: objects.Pod) -> Manifest | None:
    """Return the NodeSet that controls the pod, or None if none does."""
    owner = pod.metadata.controller
    if owner is None or owner.kind != "NodeSet":
        return None
    nodeset = runtime.caches.nodesets.store.get(pod.metadata.namespace, owner.name)
    return nodeset if nodeset is not None and nodeset["metadata"].get("uid") == owner.uid else None


def cluster_of(runtime: Runtime, pod: objects.Pod) -> Cluster | None:
    """Return the Slurm cluster of a worker pod, or None while the operator isn't connected to
    it.
    """
    return runtime.clusters.get(
        (pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER, ""))
    )


def wake_pods(runtime: Runtime, controller: Key, slurm_nodes: Iterable[str]) -> None:
    """Queue the pods of these Slurm nodes."""
    for name in slurm_nodes:
        for pod in runtime.caches.pods.store.by("slurm_node", (*controller, name)):
            runtime.queues.pods.add((pod.metadata.namespace, pod.metadata.name))
