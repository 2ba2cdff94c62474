"""What several parts of the bridge share: Kubernetes, the time, and what is remembered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sidecars.bridge.core.jobs import JobBook
from sidecars.bridge.core.manifests import Node, Pod
from sidecars.bridge.core.usage import UsageBook
from sidecars.bridge.memory import Memory
from sidecars.kube import Client, EventRecorder, Store
from sidecars.objects import ConfigMap


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Requests to the API server, and the caches of what it stores."""

    client: Client
    events: EventRecorder
    pods: Store[Pod]
    nodes: Store[Node]
    config: Store[ConfigMap]
    """The ConfigMap of the tenants."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, in seconds."""

    now: Callable[[], float]
    """Monotonic."""
    wall: Callable[[], float]
    """Since the epoch."""


@dataclass(frozen=True, slots=True)
class Books:
    """What is remembered from pass to pass."""

    memory: Memory
    jobs: JobBook
    usage: UsageBook
    """What pods request of Kubernetes nodes."""


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes at the moment of a decision, by their names in Slurm."""

    external: Mapping[str, str]
    """The names of the Kubernetes nodes that have an external record."""
    guarded: Mapping[str, str]
    """The names of the Kubernetes nodes with a slurmd."""
    others: frozenset[str]
    """The external nodes of other Kubernetes clusters."""

    def names(self, *, guard: bool) -> Mapping[str, str]:
        """Return the names of the nodes for one kind of job, by Kubernetes node."""
        return self.guarded if guard else self.external

    def foreign(self, *, guard: bool) -> frozenset[str]:
        """Return the nodes that one kind of job must not get."""
        return frozenset() if guard else self.others


NOWHERE = Places({}, {}, frozenset())
"""No node."""
