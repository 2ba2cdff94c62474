"""A Slurm cluster at a glance: nodes by state, the queue by reason, GPUs, NodeSets, and drains with
their owners.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecars.explain.core import node as of_node
from sidecars.explain.core import nodeset, objects
from sidecars.slurm import gres, states
from sidecars.slurm.owners import owner_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecars.explain.core.records import Missing, Seen
    from sidecars.slurm.records import Node


@dataclass(frozen=True, slots=True)
class Drain:
    """Nodes out of service for one reason."""

    reason: str
    owner: str
    nodes: tuple[str, ...]
    busy: int
    """How many of them still have jobs."""


@dataclass(frozen=True, slots=True)
class Top:
    """The counts. None: not read."""

    nodes: Mapping[str, int] | None
    """By state."""
    cpus: tuple[int, int] | None
    """Allocated, and all that jobs can use of nodes in service."""
    gpus: Mapping[str, tuple[int, int]] | None
    """Allocated and all, by type."""
    pending: Mapping[str, int] | None
    """Jobs by Slurm's reason."""
    running: int | None
    nodesets: Mapping[str, str] | None
    drains: tuple[Drain, ...] | None
    missing: tuple[Missing, ...] = ()


def top(seen: Seen) -> Top:
    """Return the cluster as it was read."""
    nodes = seen.slurm.nodes
    waiting, running, nodesets = seen.slurm.waiting, seen.slurm.running, seen.kube.nodesets
    return Top(
        None if nodes is None else dict(Counter(map(state, nodes)).most_common()),
        None
        if nodes is None
        else (
            sum(it.alloc_cpus for it in nodes),
            sum(it.effective_cpus for it in nodes if not _is_out(it)),
        ),
        None if nodes is None else _gpus(nodes),
        None
        if waiting is None
        else dict(Counter(it.reason or "None" for it in waiting).most_common()),
        None if running is None else len(running),
        None if nodesets is None else {objects.name(it): nodeset.state(it) for it in nodesets},
        None if nodes is None else _drains(nodes),
        seen.missing,
    )


def state(node: Node) -> str:
    """Return one word for a node, as `sinfo` would group it."""
    if states.is_down(node.states):
        return "down"
    if states.is_drain(node.states):
        return "draining" if states.is_busy(node.states) else "drained"
    for flag in (
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_UP",
        "POWERING_DOWN",
        "MAINTENANCE",
        "RESERVED",
        "COMPLETING",
    ):
        if flag in node.states:
            return flag.lower()
    return (states.base_state(node.states) or "unknown").lower()


def _is_out(node: Node) -> bool:
    return states.is_down(node.states) or states.is_drain(node.states)


def _gpus(nodes: tuple[Node, ...]) -> dict[str, tuple[int, int]]:
    used: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for node in nodes:
        for text, counter in ((node.gres, total), (node.gres_used, used)):
            try:
                found = gres.total(gres.parse(text))
            except gres.GresError:
                continue
            for it in found:
                if it.name == "gpu":
                    counter[it.type or "gpu"] += it.count
    return {kind: (used[kind], count) for kind, count in sorted(total.items())}


def _drains(nodes: tuple[Node, ...]) -> tuple[Drain, ...]:
    found: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        if _is_out(node):
            found.setdefault(
                (node.reason or "without a reason", of_node.WHO[owner_of(node)]), []
            ).append(node)
    drains = [
        Drain(
            reason,
            owner,
            tuple(sorted(it.name for it in each)),
            sum(states.is_busy(it.states) for it in each),
        )
        for (reason, owner), each in found.items()
    ]
    return tuple(sorted(drains, key=lambda it: (-len(it.nodes), it.reason)))
