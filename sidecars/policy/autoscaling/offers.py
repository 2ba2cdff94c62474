"""What one node of a NodeSet offers to jobs: declared, or as its nodes have registered.

The text is that of `slurmd -C`: `Sockets=1 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=64000 Gres=gpu:a100:4`. The
text of what was learnt is remembered, so that it is known while a NodeSet has no nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sidecars.policy.autoscaling.records import Shape
from sidecars.slurm import gres, nodeconf
from sidecars.slurm.gres import GresError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecars.policy.autoscaling.records import PresentNode
    from sidecars.slurm.records import Partition
    from sidecars.workloads.resources import NodeSet

MOST = 1 << 40
"""Numbers above are no number of anything on a node."""


class OfferError(ValueError):
    """The text describes no node. It names the item and the remedy."""


class Offer(NamedTuple):
    """What a node offers, and Slurm's Weight of it."""

    shape: Shape
    weight: int = 1


def read(text: str) -> Offer:
    """The offer that a text describes. Raises OfferError."""
    items = nodeconf.parse(text)
    if items.problems:
        raise OfferError(items.problems[0])

    def number(key: str, default: int, least: int = 1) -> int:
        value = items.get(key)
        if value is None:
            return default
        found = int(value) if value.isascii() and value.isdigit() and len(value) <= len(str(MOST)) else -1
        if not least <= found <= MOST:
            raise OfferError(f"{key}={value} must be a whole number of at least {least}")
        return found

    threads = number("ThreadsPerCore", 1)
    sockets = number("Sockets", number("Boards", 1) * number("SocketsPerBoard", 1))
    cores = number("CoresPerSocket", max(1, number("CPUs", 1) // (sockets * threads)))
    features = frozenset(filter(None, (items.get("Features") or items.get("Feature") or "").split(",")))
    try:
        resources = gres.total(gres.parse(items.get("Gres") or ""))
    except GresError as error:
        raise OfferError(f"Gres={items.get('Gres')}: {error}") from error
    memory = max(0, number("RealMemory", 1) - number("MemSpecLimit", 0, 0))
    shape = Shape(sockets, cores, threads, memory, resources, features, number("TmpDisk", 0, 0))
    return Offer(shape, number("Weight", 1, 0))


def text(offer: Offer) -> str:
    """The text that `read` reads back."""
    shape = offer.shape
    items = {
        "Sockets": shape.sockets,
        "CoresPerSocket": shape.cores,
        "ThreadsPerCore": shape.threads,
        "RealMemory": max(1, shape.memory),
        "TmpDisk": shape.tmp_disk,
        "Weight": offer.weight,
        "Gres": gres.render(shape.gres),
        "Features": ",".join(sorted(shape.features)),
    }
    return " ".join(f"{key}={value}" for key, value in items.items() if value != "")


def declared(nodeset: NodeSet) -> Offer | None:
    """What spec.autoscaling.node declares, with features and Weight of spec.extraConf; None without. Raises OfferError.

    Each worker has the name of its NodeSet as a feature.
    """
    spec = nodeset.spec.autoscaling
    if spec is None or not spec.node.strip():
        return None
    offer, extra = read(spec.node), nodeconf.parse(nodeset.spec.extra_conf)
    more = (extra.get("Features") or extra.get("Feature") or "").split(",")
    features = offer.shape.features | {nodeset.slurm_name, *filter(None, more)}
    weight = extra.get("Weight") or ""
    shape = replace(offer.shape, features=features)
    own = nodeconf.parse(spec.node).get("Weight") is None and weight.isascii() and weight.isdigit()
    return Offer(shape, int(weight) if own and len(weight) <= len(str(MOST)) else offer.weight)


def learnt(nodes: Iterable[PresentNode]) -> Offer | None:
    """What the nodes of a NodeSet offer: the one that jobs can use and that offers the most; None without such a node.

    Nodes of different sizes count as the largest: a job that fits only that one is possible.
    """
    usable = [it for it in nodes if it.usable]
    if not usable:
        return None
    best = max(usable, key=lambda it: (it.shape.all_cores * it.shape.threads, it.shape.memory, it.name))
    return Offer(best.shape, best.weight)


def partitions(nodeset: NodeSet, known: Iterable[Partition], nodes: Sequence[PresentNode]) -> frozenset[str]:
    """The partitions in which its nodes are, also before it has any."""
    found = {name for node in nodes for name in node.partitions}
    for partition in known:
        if not {"ALL", nodeset.slurm_name}.isdisjoint(partition.node_sets.split(",")):
            found.add(partition.name)
    if nodeset.spec.partition.enabled:
        found.add(nodeset.slurm_name)
    return frozenset(found)
