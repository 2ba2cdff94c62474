"""What a worker pod belongs to."""

from collections.abc import Iterable

from sidecars.kube import Manifest, records
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.workloads import names

CONTAINER = "slurmd"
"""The container of slurmd."""

PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
"""Reasons with which a container waits while the kubelet tries again and again to pull its image."""


def slurm_node(pod: records.Pod) -> str:
    """The name under which the pod's slurmd registers: its hostname, or the Kubernetes node's on the host's network."""
    return pod.spec.node_name if pod.spec.host_network else pod.spec.hostname or pod.metadata.name


def has_started(pod: records.Pod) -> bool:
    """Whether slurmd may have run in the pod; False only when it is known not to have."""
    if not pod.spec.node_name:
        return False
    status = next((it for it in pod.status.container_statuses if it.name == CONTAINER), None)
    if status is None:
        return pod.status.phase != "Pending"
    never = status.state.running is None and status.state.terminated is None
    return not (never and status.restart_count == 0 and status.last_state.terminated is None)


def waits_for(status: records.ContainerStatus) -> str:
    """Why the container waits, as the kubelet reports it; "" if it doesn't.

    The kubelet alternates between reasons while it tries to pull an image, and its words name the seconds until it
    starts a container again. Here both have one wording, so that a condition is not written at each turn.
    """
    waiting = status.state.waiting
    if waiting is None:
        return ""
    if waiting.reason in PULLING:
        return f"the image {status.image} can't be pulled, see the pod's events"
    if waiting.reason == "CrashLoopBackOff":
        return f"the container {status.name} ends again and again, see its log"
    return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason


def nodeset_of(runtime: Runtime, pod: records.Pod) -> Manifest | None:
    """The NodeSet that controls the pod; None if none does."""
    owner = pod.metadata.controller
    if owner is None or owner.kind != "NodeSet":
        return None
    nodeset = runtime.caches.nodesets.store.get(pod.metadata.namespace, owner.name)
    return nodeset if nodeset is not None and nodeset["metadata"].get("uid") == owner.uid else None


def cluster_of(runtime: Runtime, pod: records.Pod) -> Cluster | None:
    """The Slurm cluster of a worker pod; None while the operator isn't connected to it."""
    return runtime.clusters.get((pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER, "")))


def wake_pods(runtime: Runtime, controller: Key, slurm_nodes: Iterable[str]) -> None:
    """Queue the pods of these Slurm nodes."""
    for name in slurm_nodes:
        for pod in runtime.caches.pods.store.by("slurm_node", (*controller, name)):
            runtime.queues.pods.add((pod.metadata.namespace, pod.metadata.name))
