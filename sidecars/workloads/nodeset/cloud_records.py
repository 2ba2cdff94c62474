"""The node records of a NodeSet with Slurm's power saving, as lines of slurm.conf."""

from sidecars.slurm import gres, nodeconf
from sidecars.slurm.nodeconf import Item
from sidecars.slurm.records import Node
from sidecars.workloads.nodeset.node_conf import node_conf
from sidecars.workloads.resources import NodeSet, ResourceError

_NOT_OF_A_RECORD = frozenset({"nodeaddr", "nodehostname", "nodename", "port", "reason", "state", "suspendtime"})


def registered(node: Node) -> str:
    """What the worker of this record offers, as items of a node line; "" for one that has never registered."""
    return "" if "CLOUD" in node.states or not (node.slurmd_start_time and node.cpus) else offered(node)


def offered(node: Node) -> str:
    """What a record shows that a worker offers, as items of a node line."""
    numbers = {
        "Sockets": node.sockets,
        "CoresPerSocket": node.cores,
        "ThreadsPerCore": node.threads,
        "RealMemory": node.real_memory,
        "CoreSpecCount": node.specialized_cores,
        "MemSpecLimit": node.specialized_memory,
    }
    items = [Item("CPUs", str(node.cpus)), *(Item(key, str(value)) for key, value in numbers.items() if value)]
    found = _gres(node.gres)
    return nodeconf.render([*items, Item("Gres", found)] if found else items)


def cloud_record(nodeset: NodeSet, *, always_on: bool = False) -> str:
    """The rest of the line that begins with NodeName; "" while it is unknown what a worker offers.

    In ascending order of what wins: what a worker has registered, spec.powerSaving.node, spec.extraConf. `always_on`:
    Slurm never stops the node. Raises ResourceError.
    """
    saving = nodeset.spec.power_saving
    declared = nodeconf.parse(saving.node)
    if declared.problems:
        raise ResourceError("spec.powerSaving.node", declared.problems[0])
    own = nodeconf.parse(node_conf(nodeset)).items
    offered = declared.items or nodeconf.parse(nodeset.status.node_conf).items
    if not offered and "realmemory" not in {item.key.lower() for item in own}:
        return ""
    items: dict[str, Item] = {}
    for item in (Item("Weight", str(saving.price)), *offered, *own):
        if item.key.lower() not in _NOT_OF_A_RECORD:
            items[item.key.lower()] = item
    if "gres" in items and "gresconf" not in items:
        try:
            items["gresconf"] = Item("GresConf", _gres_conf(items["gres"].value))
        except gres.GresError as error:
            raise ResourceError("spec.powerSaving.node", str(error)) from error
    idle = "INFINITE" if always_on else str(saving.idle_seconds)
    return nodeconf.render([Item("State", "CLOUD"), *items.values(), Item("SuspendTime", idle)])


def is_current(node: Node, conf: str) -> bool:
    """Whether a record shows what this `cloud_record` describes, as far as the REST API reports it."""
    wanted = nodeconf.parse(conf)
    idle = wanted.get("SuspendTime") or ""
    numbers = {"CPUs": node.cpus, "RealMemory": node.real_memory, "Weight": node.weight}
    return (
        all(wanted.get(key) in (None, str(value)) for key, value in numbers.items())
        and set((wanted.get("Features") or "").split(",")) == set(node.features)
        and _gres(wanted.get("Gres") or "") == _gres(node.gres)
        and node.suspend_time == (int(idle) if idle.isdigit() else None)
    )


def _gres(text: str) -> str:
    """A node's generic resources, without the sockets that they belong to; the text itself if it is of another form."""
    try:
        return gres.render(gres.parse(text))
    except gres.GresError:
        return text


def _gres_conf(value: str) -> str:
    """The lines of gres.conf for these: without them Slurm creates no record with Gres. Raises GresError."""
    found = []
    for it in gres.parse(value):
        kind = f",type={it.type}" if it.type else ""
        found.append(f"name={it.name}{kind},count={it.count}")
    return ";".join(found)
