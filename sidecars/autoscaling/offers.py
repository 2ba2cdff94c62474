"""What one node of a NodeSet offers to jobs: declared, or as its nodes have registered.

The text is that of `slurmd -C`: `Sockets=1 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=64000
Gres=gpu:a100:4`. The text of what was learnt is remembered, so that it is known while a NodeSet has
no nodes.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sidecars.autoscaling.records import Shape
from sidecars.slurm import gres, nodeconf
from sidecars.slurm.gres import GresError
from sidecars.workloads import quantities
from sidecars.workloads.nodeset.limits import limits
from sidecars.workloads.resources import ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecars.autoscaling.records import PresentNode
    from sidecars.slurm.records import Partition
    from sidecars.workloads.resources import NodeSet

MOST = 1 << 40
"""Numbers above are no number of anything on a node."""


_CPUS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
RESERVED_PART, MOST_RESERVED = 8, 1024
"""What part of its memory a worker reserves for slurmd and the system, and the most in MiB."""
_OF_EXTRA_CONF = ("CoreSpecCount", "CpuSpecList", "MemSpecLimit")
"""Items of spec.extraConf that count where spec.autoscaling.node has none."""
_OWN_CPUS = frozenset(
    {"boards", "corespeccount", "corespersocket", "cpus", "cpuspeclist", "procs", "sockets"}
    | {"socketsperboard", "threadspercore"}
)
"""With one of these in spec.extraConf, a worker registers no CoreSpecCount for its CPU limit."""


class OfferError(ValueError):
    """The text describes no node. It names the item and the remedy."""


class Offer(NamedTuple):
    """What a node offers, and Slurm's Weight of it."""

    shape: Shape
    weight: int = 1


def read(text: str) -> Offer:
    """Return the offer that a text describes. Raises OfferError."""
    items = nodeconf.parse(text)
    if items.problems:
        raise OfferError(items.problems[0])

    def number(key: str, default: int, least: int = 1) -> int:
        value = items.get(key)
        if value is None:
            return default
        found = (
            int(value)
            if value.isascii() and value.isdigit() and len(value) <= len(str(MOST))
            else -1
        )
        if not least <= found <= MOST:
            raise OfferError(f"{key}={value} must be a whole number of at least {least}")
        return found

    threads = number("ThreadsPerCore", 1)
    sockets = number("Sockets", number("Boards", 1) * number("SocketsPerBoard", 1))
    cores = number("CoresPerSocket", max(1, number("CPUs", 1) // (sockets * threads)))
    features = frozenset(
        filter(None, (items.get("Features") or items.get("Feature") or "").split(","))
    )
    try:
        resources = gres.total(gres.parse(items.get("Gres") or ""))
    except GresError as error:
        raise OfferError(f"Gres={items.get('Gres')}: {error}") from error
    memory = max(0, number("RealMemory", 1) - number("MemSpecLimit", 0, 0))
    specialized = number("CoreSpecCount", _listed_cores(items.get("CpuSpecList"), threads), 0)
    shape = Shape(
        sockets,
        cores,
        threads,
        memory,
        resources,
        features,
        number("TmpDisk", 0, 0),
        min(specialized, sockets * cores),
    )
    return Offer(shape, number("Weight", 1, 0))


def _listed_cores(cpus: str | None, threads: int) -> int:
    """Return the cores of the CPUs of a CpuSpecList. Raises OfferError."""
    found = 0
    for part in filter(None, (cpus or "").split(",")):
        ends = _CPUS.fullmatch(part)
        if ends is None or (last := int(ends[2] or ends[1])) < (first := int(ends[1])):
            raise OfferError(f"CpuSpecList={cpus} must be a list of numbers such as 0-3,8")
        found += last // threads - first // threads + 1
    return found


def text(offer: Offer) -> str:
    """Return the text that `read` reads back."""
    shape = offer.shape
    items = {
        "Sockets": shape.sockets,
        "CoresPerSocket": shape.cores,
        "ThreadsPerCore": shape.threads,
        "RealMemory": max(1, shape.memory),
        "CoreSpecCount": shape.specialized_cores or "",
        "TmpDisk": shape.tmp_disk,
        "Weight": offer.weight,
        "Gres": gres.render(shape.gres),
        "Features": ",".join(sorted(shape.features)),
    }
    return " ".join(f"{key}={value}" for key, value in items.items() if value != "")


def declared(nodeset: NodeSet) -> Offer | None:
    """Return what spec.autoscaling.node declares, with features, Weight, specialized cores and
    memory of spec.extraConf, None without. Raises OfferError.

    Each worker has the name of its NodeSet as a feature. As `register` does, the CPU limit of
    slurmd limits the cores for jobs, unless the specialized cores or the CPUs are set.
    """
    spec = nodeset.spec.autoscaling
    if spec is None or not spec.node.strip():
        return None
    node, extra = nodeconf.parse(spec.node), nodeconf.parse(nodeset.spec.extra_conf)
    own = {"corespeccount", "cpuspeclist"} & node.keys
    system = (
        f"{key}={value}"
        for key in _OF_EXTRA_CONF
        if (value := extra.get(key)) is not None
        and (key == "MemSpecLimit" or not own)
        and node.get(key) is None
    )
    offer = read(" ".join((spec.node, *system)))
    if not own and extra.keys.isdisjoint(_OWN_CPUS):
        offer = _limited(offer, nodeset)
    more = (extra.get("Features") or extra.get("Feature") or "").split(",")
    features = offer.shape.features | {nodeset.slurm_name, *filter(None, more)}
    weight = extra.get("Weight") or ""
    shape = replace(offer.shape, features=features)
    other = node.get("Weight") is None and weight.isascii() and weight.isdigit()
    return Offer(shape, int(weight) if other and len(weight) <= len(str(MOST)) else offer.weight)


def _limited(offer: Offer, nodeset: NodeSet) -> Offer:
    """Return the offer with the cores that jobs can use under the CPU limit of slurmd. A limit that
    can't be read is reported where the pods are created.
    """
    shape = offer.shape
    try:
        limit = quantities.whole(limits(nodeset).get("cpu", 0), "spec.slurmd.resources.limits.cpu")
    except ResourceError:
        return offer
    kept = math.ceil(limit / shape.threads)
    specialized = max(0, shape.sockets * shape.cores - kept) if limit else 0
    return offer._replace(shape=replace(shape, specialized_cores=specialized))


def learnt(nodes: Iterable[PresentNode]) -> Offer | None:
    """Return what the nodes of a NodeSet offer: the one that jobs can use and that offers the most,
    None without such a node. Nodes of different sizes count as the largest: a job that fits only
    that one is possible.
    """
    usable = [it for it in nodes if it.usable]
    if not usable:
        return None
    best = max(
        usable, key=lambda it: (it.shape.all_cores * it.shape.threads, it.shape.memory, it.name)
    )
    return Offer(best.shape, best.weight)


def differs(declared: Offer, learnt: Offer) -> str:
    """Describe what workers have registered otherwise than was declared; "" for nothing.

    Memory that a worker reserves for slurmd and the system is no difference.
    """
    wanted, found = declared.shape, learnt.shape
    pairs = [
        ("cores", wanted.all_cores, found.all_cores),
        ("ThreadsPerCore", wanted.threads, found.threads),
        ("Gres", gres.render(wanted.gres) or "none", gres.render(found.gres) or "none"),
    ]
    reserve = min(wanted.memory // RESERVED_PART, MOST_RESERVED)
    if not wanted.memory - reserve <= found.memory <= wanted.memory:
        pairs.append(("memory", f"{wanted.memory} MiB", f"{found.memory} MiB"))
    text = [f"{key} {has} instead of {want}" for key, want, has in pairs if has != want]
    missing = ",".join(sorted(wanted.features - found.features))
    text += [f"no feature {missing}"] if missing else []
    return f"workers have registered {', '.join(text)}" if text else ""


def partitions(
    nodeset: NodeSet, known: Iterable[Partition], nodes: Sequence[PresentNode]
) -> frozenset[str]:
    """Return the partitions in which its nodes are, also before it has any."""
    found = {name for node in nodes for name in node.partitions}
    for partition in known:
        if not {"ALL", nodeset.slurm_name}.isdisjoint(partition.node_sets.split(",")):
            found.add(partition.name)
    if nodeset.spec.partition.enabled:
        found.add(nodeset.slurm_name)
    return frozenset(found)
