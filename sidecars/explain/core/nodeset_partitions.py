"""Which NodeSet a Slurm node belongs to, and which partitions the nodes of a NodeSet are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.contract.extra import pod_facts
from sidecars.explain.core import objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.explain.core.records import Object, Seen
    from sidecars.slurm.records import Node


def by_node(seen: Seen) -> dict[str, str]:
    """Return the NodeSet of each Slurm node that a worker pod of one has registered, by the node's
    name.
    """
    names = {
        objects.text(it, "metadata", "uid"): objects.name(it) for it in seen.kube.nodesets or ()
    }
    found = {}
    for node in seen.slurm.nodes or ():
        facts = pod_facts(node.extra)
        if facts is not None and facts.nodeset_uid in names:
            found[node.name] = names[facts.nodeset_uid]
    for nodeset in seen.kube.nodesets or ():
        for pod in objects.owned(seen.kube.pods, nodeset):
            found.setdefault(objects.slurm_node(pod), objects.name(nodeset))
    return found


def partitions(nodeset: Object, seen: Seen, nodesets: Mapping[str, str]) -> frozenset[str]:
    """Return the partitions that a NodeSet's nodes are in, or would be in when they register."""
    listed = objects.dig(nodeset, "status", "partitions")
    own = {it for it in listed if isinstance(it, str)} if isinstance(listed, list) else set()
    for node in seen.slurm.nodes or ():
        if nodesets.get(node.name) == objects.name(nodeset):
            own |= set(node.partitions)
    for partition in seen.slurm.partitions or ():
        sets = partition.node_sets.split(",")
        if "ALL" in sets or partition.node_list.upper() == "ALL" or not own.isdisjoint(sets):
            own.add(partition.name)
    return frozenset(own)


def of_partitions(seen: Seen, wanted: Sequence[str]) -> list[Object]:
    """Return the NodeSets with nodes in one of these partitions."""
    nodesets = by_node(seen)
    return [
        it
        for it in seen.kube.nodesets or ()
        if not partitions(it, seen, nodesets).isdisjoint(wanted)
    ]


def is_scaled(nodeset: Object) -> bool:
    """Return whether autoscaling sets its size."""
    return isinstance(objects.dig(nodeset, "spec", "autoscaling"), dict)


def most_nodes(seen: Seen, wanted: Sequence[str]) -> tuple[int, bool]:
    """Return how many nodes the partitions can have without a change of a NodeSet's limits, and
    whether autoscaling adds some of them.
    """
    owners = by_node(seen)
    own = of_partitions(seen, wanted)
    scaled = {objects.name(it) for it in own if is_scaled(it)}
    count = sum(1 for it in nodes_of(seen, wanted) if owners.get(it.name) not in scaled)
    for it in own:
        most = objects.dig(it, "spec", "autoscaling", "max")
        if objects.name(it) in scaled:
            count += most if isinstance(most, int) else 0
    return count, bool(scaled)


def nodes_of(seen: Seen, wanted: Sequence[str]) -> list[Node]:
    """Return Slurm's nodes in one of these partitions."""
    return [it for it in seen.slurm.nodes or () if not set(it.partitions).isdisjoint(wanted)]
