"""Where the switches of topologies are, by the labels of all Kubernetes nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sidecars import objects
from sidecars.kube import Event
from sidecars.operator.core import topology as core
from sidecars.operator.runtime.caches import Caches
from sidecars.operator.runtime.queues import Key
from sidecars.workloads.resources import Topology


@dataclass(slots=True)
class Switches:
    """Where the switches of the Controllers are. Computed again after a change of labels."""

    _known: dict[Key, tuple[Sequence[Topology], core.Positions]] = field(default_factory=dict)

    def wire(self, caches: Caches) -> None:
        """Subscribe. Call it once, before the reflectors run."""
        caches.kube_nodes.store.subscribe(self._kube_nodes)

    def of(self, caches: Caches, key: Key, topologies: Sequence[Topology]) -> core.Positions:
        """Return the positions of the Controller with this key and these topologies."""
        known = self._known.get(key)
        if known is None or known[0] != topologies:
            labels = (node.metadata.labels for node in caches.kube_nodes.store.values())
            known = self._known[key] = topologies, core.positions(topologies, labels)
        return known[1]

    def _kube_nodes(self, event: Event[objects.Node]) -> None:
        if labels_changed(event):
            self._known.clear()


def labels_changed(event: Event[objects.Node]) -> bool:
    """Return whether a Kubernetes node came, went, or has other labels."""
    return (
        event.old is None
        or event.new is None
        or event.old.metadata.labels != event.new.metadata.labels
    )
