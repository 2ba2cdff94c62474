"""Where the workers of a Kubernetes node are in the topologies of a Controller, from the node's
labels. Pure.

A line such as `fabric:fabric:zone-a:rack-1,nvlink:domain-7` is the value of slurmd's Topology item.
It names each switch from the root down: slurmctld creates those that it doesn't have, and finds
them again after a restart. With the last switch alone it would find nothing, and end.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sidecars.contract.annotations import TOPOLOGY
from sidecars.slurm.nodeconf import number_too_long, topology_problem
from sidecars.workloads import topology as files
from sidecars.workloads.resources import Topology, Tree

Labels = Mapping[str, str]

_Position = tuple[int, str]
"""How many switches are above a switch, and the one right above."""

Positions = Mapping[tuple[str, str], _Position]
"""Where each switch is, by topology and name."""


@dataclass(frozen=True, slots=True)
class Line:
    """The value of the Topology item; "" for none."""

    text: str
    problems: tuple[str, ...] = ()
    """Why a worker isn't where its labels say: label, value and remedy."""
    waits: bool = False
    """Whether a topology is left out, because topology.yaml doesn't have it or the block yet."""


def positions(topologies: Sequence[Topology], nodes: Iterable[Labels]) -> Positions:
    """Find where the switches are. Where labels contradict each other, most Kubernetes nodes
    decide, then the names.
    """
    votes: dict[tuple[str, str], Counter[_Position]] = {}
    for labels in nodes:
        for topology in topologies:
            for position, switch in _steps(topology, _switches(topology, labels)):
                votes.setdefault((topology.name, switch), Counter())[position] += 1
    return {switch: min(found, key=lambda it: (-found[it], it)) for switch, found in votes.items()}


def blocks(topologies: Sequence[Topology], nodes: Iterable[Labels]) -> dict[str, set[str]]:
    """Return the blocks of each block topology that the labels name."""
    found: dict[str, set[str]] = {it.name: set() for it in topologies if it.block is not None}
    for labels in nodes:
        for topology in topologies:
            name = _block(topology, labels)
            if name:
                found[topology.name].add(name)
    return found


def line(
    topologies: Sequence[Topology], labels: Labels, where: Positions, known: files.Blocks
) -> Line:
    """Return the line of the workers of a Kubernetes node with these labels.

    `known`: the switches and blocks in the topology.yaml of the running slurmctld, by topology.
    """
    parts: list[str] = []
    problems: list[str] = []
    waits = False
    for topology in topologies:
        known_here = known.get(topology.name, ())
        if topology.tree is not None and files.root(topology) not in known_here:
            waits = True
        elif topology.tree is not None:
            switches = _switches(topology, labels)
            problem = _missing(topology.tree, labels) or _contradiction(
                topology, topology.tree, switches, where
            )
            if problem:
                problems.append(f"topology {topology.name}: {problem}")
            path = switches if switches and not problem else [files.elsewhere(topology)]
            parts.append(":".join([topology.name, files.root(topology), *path]))
        elif name := _block(topology, labels):
            if name in known_here:
                parts.append(f"{topology.name}:{name}")
            else:
                waits = True
    return Line(",".join(parts), tuple(problems), waits)


def annotated(annotation: str, stamped: str | None) -> Line:
    """Return the line of an annotation. Where that would end slurmctld, the pod keeps what it has,
    if that is usable.
    """
    problem = topology_problem(annotation)
    if not problem:
        return Line(annotation)
    kept = "" if stamped is None or topology_problem(stamped) else stamped
    return Line(kept, (f"the annotation {TOPOLOGY}: {problem}",))


def lost(nodes: Mapping[str, str], config: Mapping[str, str]) -> list[str]:
    """Return why slurmctld would end with these files of /etc/slurm, from the lines of its nodes by
    name.

    A topology.conf, which counts without a topology.yaml, and what can't be read are left to
    slurmctld.
    """
    text = config.get(files.FILE)
    if text is None and files.FORMER_FILE in config:
        return []
    places = files.places(text) if text is not None else {}
    if places is None:
        return []
    found: dict[str, list[str]] = {}
    for node, item in sorted(nodes.items()):
        for part in filter(None, item.split(",")):
            name, *path = part.split(":")
            has = places.get(name, frozenset())
            if has is not None and path and path[0] not in has:
                found.setdefault(f"{name}:{path[0]}", []).append(node)
    remedy = f"keep it in {files.FILE} until no Slurm node has it, as `scontrol show node` shows"
    return [
        f"{place!r} isn't in {files.FILE}, but Slurm node {on[0]}"
        f"{f' (and {len(on) - 1} more)' if len(on) > 1 else ''} has this topology: slurmctld "
        f"would end; {remedy}"
        for place, on in found.items()
    ]


def _switches(topology: Topology, labels: Labels) -> list[str]:
    """Return the switches from the top to the one of the node itself, [] unless the node has all
    labels.
    """
    tree = topology.tree
    if tree is None:
        return []
    values = [_name(labels.get(label, "")) for label in tree.labels]
    if not all(values):
        return []
    return (
        [".".join(values[: place + 1]) for place in range(len(values))]
        if tree.join_names
        else values
    )


def _steps(topology: Topology, switches: Sequence[str]) -> Iterable[tuple[_Position, str]]:
    above = [files.root(topology), *switches]
    return (((depth, above[depth]), switch) for depth, switch in enumerate(switches))


def _missing(tree: Tree, labels: Labels) -> str:
    """Describe the missing labels. A node without any of the labels is just elsewhere, and one with
    some of them has a fault.
    """
    missing = [label for label in tree.labels if not labels.get(label)]
    if not missing or len(missing) == len(tree.labels):
        return ""
    return (
        f"the label {missing[0]} is missing; set it, or remove the others "
        f"({', '.join(tree.labels)})"
    )


def _contradiction(
    topology: Topology, tree: Tree, switches: Sequence[str], where: Positions
) -> str:
    for ours, label in zip(_steps(topology, switches), tree.labels, strict=False):
        (position, switch) = ours
        if switch in {files.root(topology), files.elsewhere(topology)}:
            return (
                f"the label {label} can't have the value {switch}, which is a switch of its own; "
                "rename the topology"
            )
        most = where.get((topology.name, switch), position)
        if most != position:
            return (
                f"the label {label} puts switch {switch} below {position[1]}, but most Kubernetes "
                f"nodes have it below {most[1]}; correct the labels, or set joinNames if the "
                "names aren't unique"
            )
    return ""


def _block(topology: Topology, labels: Labels) -> str:
    return _name(labels.get(topology.block.label, "")) if topology.block is not None else ""


def _name(value: str) -> str:
    """Return a name that Slurm can read: it reads digits at the end of a name as a number, which
    must fit into 64 bits.
    """
    return f"{value}_" if number_too_long(value) else value
