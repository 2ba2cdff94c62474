"""What several parts of the bridge share: Kubernetes, the time, and what is remembered."""

from collections.abc import Callable
from dataclasses import dataclass

from sidecars.bridge.memory import Memory
from sidecars.kube import Client, EventRecorder, Store
from sidecars.objects import ConfigMap
from sidecars.policy.bridge.jobs import JobBook
from sidecars.policy.bridge.manifests import Node, Pod
from sidecars.policy.bridge.usage import UsageBook


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
