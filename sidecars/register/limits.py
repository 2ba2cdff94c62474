"""The limits of a worker pod: those of its NodeSet, and those that its containers have been given.

A LimitRange of the namespace gives a default limit to each container that has none. The NodeSet
doesn't show it, but it counts: the kubelet sums up the limits of the containers, and this sum
limits the cgroup of the pod, in which the jobs run. Where a container has no limit, the pod has
none, and the downward API reports nothing for a sidecar, but what the Kubernetes node can allocate
for slurmd. So slurmd's value is a limit only if the sidecars have limits, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

N = TypeVar("N", int, Decimal)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that bind the jobs of a worker. 0 is none."""

    cpus: Decimal = Decimal(0)
    """Of slurmd's container."""

    memory: int = 0
    """Of slurmd's container in MiB."""

    pod_memory: int = 0
    """Of the pod as a whole in MiB. Jobs share it with all containers."""


@dataclass(frozen=True, slots=True)
class Given:
    """The limits of one container as the downward API reports them. 0 is none, or unknown."""

    cpus: Decimal = Decimal(0)
    memory: int = 0
    """In MiB."""


def effective(declared: Limits, slurmd: Given, sidecars: Iterable[Given]) -> Limits:
    """Return the smaller one of each declared limit, and the one that the containers have been
    given.
    """
    beside = tuple(sidecars)
    cpus, memory, pod_memory = declared.cpus, declared.memory, declared.pod_memory
    if beside and all(it.cpus for it in beside):
        cpus = _smaller(cpus, slurmd.cpus)
    if beside and slurmd.memory and all(it.memory for it in beside):
        memory = _smaller(memory, slurmd.memory)
        pod_memory = _smaller(pod_memory, slurmd.memory + sum(it.memory for it in beside))
    return Limits(cpus, memory, pod_memory)


def _smaller(first: N, second: N) -> N:
    """Return the smaller limit, where 0 is none."""
    return min(first or second, second or first)
