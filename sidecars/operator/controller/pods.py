"""slurmctld pods as the gate's policy takes them."""

from sidecars import objects
from sidecars.policy.failover import ACTIVE
from sidecars.policy.gate import Pod

NUDGE = "slinky.slurm.net/config-nudge"
"""Annotation of a slurmctld pod. A changed annotation has the kubelet refresh the pod's volumes at
once.
"""


def pod_view(pod: objects.Pod) -> Pod:
    """Return what counts of a pod."""
    containers = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ready = pod.status.condition("Ready")
    starts = ",".join(str(container.restart_count) for container in containers)
    sidecar = next((container for container in containers if container.name == "reconfigure"), None)
    runs = sidecar is not None and sidecar.state.running is not None
    return Pod(
        name=pod.metadata.name,
        life=f"{pod.metadata.uid}/{starts}/{ready.status if ready is not None else 'Unknown'}",
        address=pod.status.pod_ip,
        askable=runs and bool(pod.status.pod_ip) and pod.metadata.deletion_timestamp is None,
        nudge=pod.metadata.annotations.get(NUDGE, ""),
    )


def carries_label(pod: objects.Pod) -> bool:
    """Return whether the pod is labelled as the primary."""
    return pod.metadata.labels.get(ACTIVE) == "true"
