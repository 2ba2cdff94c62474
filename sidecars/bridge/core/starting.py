"""Whether the kubelet has started a pod, and what keeps it from that. Pure.

A pod whose image doesn't exist, or whose volume can't be mounted, waits without end, and its job
keeps what it has from others.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sidecars.bridge.core.manifests import ContainerStatus, Pod

FAULT_SECONDS = 600.0
"""For so long the kubelet may fail to start a container of a pod that has never run."""

SILENT_SECONDS = 3600.0
"""The same while the kubelet reports no failure: it may pull a large image, and mounts volumes
before.
"""

_FAULTS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "RunContainerError",
        "SignatureValidationFailed",
    }
)
"""The kubelet's reasons of a container that it can't start. It tries again without end."""


class Starting(NamedTuple):
    """A pod that is bound and has not run."""

    fault: str = ""
    """What the kubelet reports about it, "" for nothing."""

    @property
    def patience(self) -> float:
        """The seconds after which its job is given up."""
        return FAULT_SECONDS if self.fault else SILENT_SECONDS

    @property
    def words(self) -> str:
        """Why it has not started."""
        return self.fault or "the kubelet reports no container that has started"


STARTED = None
"""A pod that is not bound, or for which the kubelet has started what it is for."""


def starting_of(pod: Pod) -> Starting | None:
    """Return what keeps the pod from its start. A container that has run once counts as started,
    whatever became of it.
    """
    status = pod.status
    if not pod.spec.node_name or status.phase not in ("", "Pending"):
        return STARTED
    if any(map(_has_run, status.container_statuses)):
        return STARTED
    fault = next(_faults(pod), "")
    if not fault and any(map(_has_run, status.init_container_statuses)):
        return STARTED
    return Starting(fault)


def _has_run(container: ContainerStatus) -> bool:
    ended = container.state.terminated or container.last_state.terminated
    return container.state.running is not None or ended is not None


def _faults(pod: Pod) -> Iterator[str]:
    for it in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waits = it.state.waiting
        if waits is not None and waits.reason in _FAULTS and not _has_run(it):
            yield f"container {it.name}: {waits.reason}"
