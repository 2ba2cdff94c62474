"""What a pass over one LoginSet looks at."""

from collections.abc import Iterable

from sidecars import objects


def addresses(pods: Iterable[objects.Pod]) -> dict[str, str]:
    """Addresses of the pods that run, by name; those on their host's network have the host's name,
    not theirs.
    """
    return {
        pod.metadata.name: pod.status.pod_ip
        for pod in pods
        if pod.status.pod_ip and pod.status.phase == "Running" and not pod.spec.host_network
    }
