"""The node records of a NodeSet with Slurm's power saving, as lines of slurm.conf."""

import contextlib
import re
from collections.abc import Mapping

from sidecars.slurm import gres, nodeconf
from sidecars.slurm.nodeconf import Item
from sidecars.slurm.records import Node
from sidecars.workloads.nodeset.node_conf import check_key, node_conf
from sidecars.workloads.resources import NodeSet, ResourceError

_DECLARED, _OWN = "spec.powerSaving.node", "spec.extraConf"

_NOT_OF_A_RECORD = frozenset(
    {"nodeaddr", "nodehostname", "nodename", "port", "reason", "state", "suspendtime"}
)

_SMALL, _LARGE, _MEMORY = 0xFFFF, 0xFFFF_FFF0, 1 << 40
_RANGES: Mapping[str, tuple[int, int]] = {
    "boards": (1, _SMALL),
    "corespeccount": (0, _SMALL),
    "corespersocket": (1, _SMALL),
    "cpus": (1, _SMALL),
    "memspeclimit": (0, _MEMORY),
    "procs": (1, _SMALL),
    "realmemory": (1, _MEMORY),
    "restrictedcorespergpu": (0, _SMALL),
    "sockets": (1, _SMALL),
    "socketsperboard": (1, _SMALL),
    "threadspercore": (1, _SMALL),
    "tmpdisk": (0, _LARGE),
    "weight": (0, _LARGE),
}
"""The lowest and the highest value of the keys whose value is a number: slurmctld has 16 or 32 bits
for most.
"""

_IN_MIB = frozenset({"memspeclimit", "realmemory", "tmpdisk"})


def registered(node: Node) -> str:
    """Return what the worker of this record offers, as items of a node line, "" for one that has
    never registered.
    """
    return (
        ""
        if "CLOUD" in node.states or not (node.slurmd_start_time and node.cpus)
        else offered(node)
    )


def offered(node: Node) -> str:
    """Return what a record shows that a worker offers, as items of a node line."""
    numbers = {
        "Sockets": node.sockets,
        "CoresPerSocket": node.cores,
        "ThreadsPerCore": node.threads,
        "RealMemory": node.real_memory,
        "CoreSpecCount": node.specialized_cores,
        "MemSpecLimit": node.specialized_memory,
    }
    items = [
        Item("CPUs", str(node.cpus)),
        *(Item(key, str(value)) for key, value in numbers.items() if value),
    ]
    found = _gres(node.gres)
    return nodeconf.render([*items, Item("Gres", found)] if found else items)


_NEVER = 1_000_000_000
"""Seconds from which on a SuspendTime stops no node: the global one of clusters with power
saving.
"""


_LOW_MEMORY = re.compile(
    r"Low RealMemory \(reported:([0-9]{1,19}) < ([0-9]{1,9}(?:\.[0-9]{1,9})?)%"
)
_FEWER_GRES = re.compile(r"gres/([^ ]+) count reported lower than configured \(([0-9]{1,19}) <")


def cloud_record(nodeset: NodeSet) -> str:
    """Compose the rest of the line that begins with NodeName; "" while it is unknown what a worker
    offers.

    In ascending order of what wins: what a worker has registered, spec.powerSaving.node,
    spec.extraConf. It has no SuspendTime: the operator stops idle nodes. Raises ResourceError.
    """
    saving = nodeset.spec.power_saving
    declared = nodeconf.parse(saving.node)
    if declared.problems:
        raise ResourceError(_DECLARED, declared.problems[0])
    for item in declared.items:
        if item.key.lower() == "suspendtime":
            raise ResourceError(
                _DECLARED, "SuspendTime is set by powerSaving.idleSeconds: remove it"
            )
        if item.key.lower() not in _NOT_OF_A_RECORD:
            check_key(nodeset, item, _DECLARED)
            _check_number(item, _DECLARED)
    _check_together({item.key.lower(): item for item in declared.items})
    own = nodeconf.parse(node_conf(nodeset)).items
    offered = declared.items or nodeconf.parse(nodeset.status.node_conf).items
    items: dict[str, Item] = {}
    for item in own:
        _check_number(item, _OWN)
    for item in (Item("Weight", str(saving.price)), *offered, *own):
        if item.key.lower() not in _NOT_OF_A_RECORD:
            items[item.key.lower()] = item
    if not offered and "realmemory" not in items:
        return ""
    if "gres" in items:
        try:
            items.setdefault("gresconf", Item("GresConf", _gres_conf(items["gres"].value)))
        except gres.GresError as error:
            place = _OWN if any(item.key.lower() == "gres" for item in own) else _DECLARED
            raise ResourceError(place, str(error)) from error
    return nodeconf.render([Item("State", "CLOUD"), *items.values()])


def _check_number(item: Item, place: str) -> None:
    """Raise ResourceError for a number that slurmctld would refuse or read as another one."""
    key = item.key.lower()
    if key not in _RANGES:
        return
    least, most = _RANGES[key]
    digits = item.value.isascii() and item.value.isdigit() and len(item.value) <= len(str(most))
    if not digits or not least <= int(item.value) <= most:
        unit = ": it is in MiB" if key in _IN_MIB else ""
        raise ResourceError(place, f"{item} must be a whole number from {least} to {most}{unit}")


def _check_together(items: Mapping[str, Item]) -> None:
    """Raise ResourceError for numbers that contradict each other, of which slurmctld would replace
    some.
    """

    def number(*keys: str) -> int | None:
        return next((int(items[key].value) for key in keys if key in items), None)

    if "sockets" in items and ("socketsperboard" in items or "boards" in items):
        raise ResourceError(_DECLARED, "set Sockets, or Boards and SocketsPerBoard, not both")
    memory, reserved = number("realmemory"), number("memspeclimit")
    if memory is not None and reserved is not None and reserved >= memory:
        raise ResourceError(
            _DECLARED, f"MemSpecLimit={reserved} must be lower than RealMemory={memory}"
        )
    cpus, cores, threads = (
        number("cpus", "procs"),
        number("corespersocket") or 1,
        number("threadspercore") or 1,
    )
    sockets = number("sockets") or (number("boards") or 1) * (number("socketsperboard") or 0)
    if cpus is None:
        return
    fitting = (
        {sockets, sockets * cores, sockets * cores * threads}
        if sockets
        else {cpus - cpus % (cores * threads)}
    )
    if cpus not in fitting:
        choice = " or ".join(map(str, sorted(fitting - {0}))) or str(cores * threads)
        raise ResourceError(
            _DECLARED, f"CPUs={cpus} must be {choice}: sockets, cores and threads contradict it"
        )


def shown(node: Node) -> str:
    """Return the line, as by `cloud_record`, with which Slurm creates a record of power saving like
    this one again.
    """
    items = [
        Item("State", "CLOUD"),
        Item("Weight", str(node.weight)),
        *nodeconf.parse(offered(node)).items,
    ]
    if node.gres:
        with contextlib.suppress(gres.GresError):
            items.append(Item("GresConf", _gres_conf(_gres(node.gres))))
    if node.features:
        items.append(Item("Features", ",".join(node.features)))
    if node.topology:
        items.append(Item("Topology", node.topology))
    if not _stops_never(node):
        items.append(Item("SuspendTime", str(node.suspend_time)))
    return nodeconf.render(items)


def _stops_never(node: Node) -> bool:
    """Return whether the record has no SuspendTime of its own: Slurm stops the node only if
    asked.
    """
    return node.suspend_time is None or node.suspend_time >= _NEVER


def would_suffice(node: Node, conf: str) -> bool:
    """Return whether a worker that registered with less than its record has enough for this
    `cloud_record`.

    slurmctld's reason has what the worker reported, of CPUs only that they were fewer.
    """
    wanted = nodeconf.parse(conf)
    memory = _LOW_MEMORY.search(node.reason)
    if memory and 100 * int(memory[1]) < float(memory[2]) * int(wanted.get("RealMemory") or 1):
        return False
    for name, count in _FEWER_GRES.findall(node.reason):
        if sum(it.count for it in gres.parse(wanted.get("Gres") or "") if it.name == name) > int(
            count
        ):
            return False
    return "CPUs" not in node.reason or int(wanted.get("CPUs") or 1) < node.cpus


def is_current(node: Node, conf: str) -> bool:
    """Return whether a record shows what this `cloud_record` describes, as far as the REST API
    reports it.
    """
    wanted = nodeconf.parse(conf)
    numbers = {"CPUs": node.cpus, "RealMemory": node.real_memory, "Weight": node.weight}
    return (
        all(wanted.get(key) in (None, str(value)) for key, value in numbers.items())
        and set((wanted.get("Features") or "").split(",")) == set(node.features)
        and _gres(wanted.get("Gres") or "") == _gres(node.gres)
        and _stops_never(node)
    )


def _gres(text: str) -> str:
    """Return a node's generic resources, without the sockets that they belong to. A text of another
    form is returned as it is.
    """
    try:
        return gres.render(gres.parse(text))
    except gres.GresError:
        return text


def _gres_conf(value: str) -> str:
    """Return the lines of gres.conf for these: without them Slurm creates no record with Gres.
    Raises GresError.
    """
    found = []
    for it in gres.parse(value):
        kind = f",type={it.type}" if it.type else ""
        found.append(f"name={it.name}{kind},count={it.count}")
    return "+".join(found)
