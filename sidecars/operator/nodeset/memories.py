"""What is remembered of each NodeSet from pass to pass."""

from collections.abc import ItemsView
from dataclasses import dataclass, field, replace

from sidecars import objects
from sidecars.operator.nodeset.deferral import Deferral
from sidecars.operator.nodeset.rendering import Rendered
from sidecars.operator.runtime.queues import Key
from sidecars.policy.nodeset.memory import Memory as Decided
from sidecars.policy.nodeset.records import WorkerPod
from sidecars.policy.placement import Rules


@dataclass(frozen=True, slots=True)
class CachedPod:
    """A pod as the policy last saw it, and the records that it was read from."""

    pod: objects.Pod
    node: objects.Node | None
    min_ready_seconds: int
    seen: WorkerPod

    def is_current(
        self, pod: objects.Pod, node: objects.Node | None, min_ready_seconds: int
    ) -> bool:
        """Return whether the observation is still true: a ready pod becomes available by time
        alone.
        """
        same = self.pod is pod and self.node is node and self.min_ready_seconds == min_ready_seconds
        return same and (self.seen.available or not self.seen.ready)


@dataclass(slots=True)
class Memory:
    """One NodeSet's. Times are seconds since the epoch."""

    decided: Decided = field(default_factory=Decided)
    """What its decisions remember."""
    rules: Rules | None = None
    """Where its pods may run; None in StatefulSet mode."""
    pods: dict[str, CachedPod] = field(default_factory=dict)
    """By uid of the pod."""
    rendered: Rendered = field(default_factory=Rendered)
    urgent: bool = False
    """Since the pass began, its spec has changed or a Kubernetes node that it uses."""
    slurm_changed: bool = False
    """Since the pass began, node records have changed."""
    leaves_pods: str = ""
    """The uid of the NodeSet if it is being deleted without its pods."""
    former_uids: set[str] = field(default_factory=set)
    """The uids of deleted NodeSets whose pods this one has adopted, as far as node records name
    them.
    """
    cordoned_by_users: set[str] = field(default_factory=set)
    """The uids of pods of SchedMD's operator that a user has cordoned."""
    deferral: Deferral = field(default_factory=Deferral)
    """Pods that were created and show later that they are idle."""

    def is_as_before(self, old: objects.Pod, new: objects.Pod) -> None:
        """Record that a pod has changed in nothing that the policy sees, so that the next pass need
        not read it again.
        """
        cached = self.pods.get(new.metadata.uid)
        if cached is not None and cached.pod is old:
            seen = replace(cached.seen, resource_version=new.metadata.resource_version)
            self.pods[new.metadata.uid] = replace(cached, pod=new, seen=seen)


class Memories:
    """The memories of all NodeSets that exist, by namespace and name."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Memory] = {}

    def of(self, key: Key) -> Memory:
        """Return what is remembered of a NodeSet that exists, which is nothing at first."""
        return self._by_key.setdefault(key, Memory())

    def get(self, key: Key) -> Memory | None:
        """Return what is remembered of a NodeSet, None before its first pass."""
        return self._by_key.get(key)

    def items(self) -> ItemsView[Key, Memory]:
        """Return all of them."""
        return self._by_key.items()

    def forget(self, key: Key) -> None:
        """Forget a NodeSet that was deleted."""
        self._by_key.pop(key, None)

    def defer(self, nodeset: Key, pod: Key) -> bool:
        """Return whether the NodeSet wakes the pod later, because others of its pods are being
        created.
        """
        memory = self._by_key.get(nodeset)
        return memory is not None and memory.deferral.defer(pod)
