"""What pods that Slurm doesn't schedule request of Kubernetes nodes, kept up to date pod by pod.
Pure.
"""

import math
from collections import Counter
from decimal import Decimal

from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.nodes import Usage
from sidecars.bridge.core.shape import requests
from sidecars.contract import bridge
from sidecars.workloads.quantities import MEBIBYTE, quantity
from sidecars.workloads.resources import ResourceError


class UsageBook:
    """The sums by Kubernetes node."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Decimal, int]] = {}
        self._cpus: dict[str, Decimal] = {}
        self._memory: Counter[str] = Counter()

    def put(self, pod: Pod) -> bool:
        """Take in a pod that was created or has changed. Return whether a sum has changed."""
        former, present = self._pods.get(pod.metadata.uid), _counted(pod)
        if former == present:
            return False
        self.discard(pod)
        if present is not None:
            node, cpus, memory = self._pods[pod.metadata.uid] = present
            self._cpus[node] = self._cpus.get(node, Decimal(0)) + cpus
            self._memory[node] += memory
        return True

    def discard(self, pod: Pod) -> bool:
        """Take out a pod that was deleted. Return whether a sum has changed."""
        found = self._pods.pop(pod.metadata.uid, None)
        if found is not None:
            node, cpus, memory = found
            self._cpus[node] -= cpus
            self._memory[node] -= memory
        return found is not None

    def of(self, node: str) -> Usage:
        """Return what is requested of a node."""
        cpus = self._cpus.get(node, Decimal(0))
        return Usage(math.ceil(cpus), math.ceil(self._memory[node] / MEBIBYTE), cpus)


class ReserveError(ValueError):
    """Not what a reserve can be."""


def reserved(text: str) -> Decimal:
    """Return the number of a quantity such as `500m` or `4Gi`. Raises ReserveError."""
    try:
        found = quantity(text, "reserve")
    except ResourceError as error:
        raise ReserveError(str(error)) from None
    if found < 0:
        raise ReserveError(f"{text!r} is negative: give 0 or more")
    return found


def reserve(cpus: Decimal, memory: Decimal) -> Usage:
    """Return the reserve of so many CPUs and bytes."""
    return Usage(math.ceil(cpus), math.ceil(memory / MEBIBYTE), cpus)


def _counted(pod: Pod) -> tuple[str, Decimal, int] | None:
    """Return the node, and what the pod requests of it, or None for one that requests nothing, or
    whose job does.
    """
    if not pod.spec.node_name or pod.finished or bridge.JOB_LABEL in pod.metadata.labels:
        return None
    try:
        return pod.spec.node_name, *requests(pod)
    except ResourceError:
        # The API server accepts no such quantity.
        return None
