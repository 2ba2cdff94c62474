"""Slurm's node records as the planner uses them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sidecars.autoscaling.records import PresentNode, Shape
from sidecars.contract.reasons import OURS
from sidecars.contract.reservations import is_closing
from sidecars.contract.text import printable
from sidecars.slurm import gres, states
from sidecars.slurm.owners import is_intended, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecars.slurm.records import Node, Reservation

_NOT_IDLE = frozenset(
    {"PLANNED", "RESERVED", "MAINTENANCE", "NOT_RESPONDING", "REBOOT_REQUESTED", "REBOOT_ISSUED"}
    | {"POWERED_DOWN", "POWERING_UP"}
)
"""Flags of a node that must stay although no job is on it: backfill plans with it, or its state is
in question.
"""
_NOT_USABLE = frozenset(
    {
        "MAINTENANCE",
        "RESERVED",
        "NOT_RESPONDING",
        "INVALID_REG",
        "INVALID",
        "POWERING_DOWN",
        "EXTERNAL",
    }
)
_SAVING = frozenset({"POWERED_DOWN", "POWERING_UP"})
UP_FIRST = 1 << 33
"""Is added to the weight of a node that is not up: Slurm uses it after all nodes that are."""
_ELSEWHERE = frozenset(
    {"MAINTENANCE", "EXTERNAL", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED"}
)
"""Flags of a node from which nobody expects that it runs jobs now."""
_RUNNING = ("IDLE", "MIXED", "ALLOCATED")
_INVALID = frozenset({"INVALID_REG", "INVALID"})
_REASON_LIMIT = 128
"""Characters of a node's reason in a message."""


def reserved(reservations: Iterable[Reservation], now: float) -> dict[str, float]:
    """Return the `reserved_at` of each node with a reservation that hasn't ended. Raises Malformed.

    A node of which only some cores are reserved counts as a whole. A node that the operator has
    closed is not reserved for anyone: its record shows that no job gets it now.
    """
    found: dict[str, float] = {}
    for reservation in reservations:
        if is_closing(reservation.name):
            continue
        if not reservation.end_time or reservation.end_time > now:
            begin = float(reservation.start_time)
            found |= {name: min(begin, found.get(name, begin)) for name in reservation.node_names()}
    return found


def present(
    node: Node, nodeset: str, reserved_at: float | None = None, *, powers_up: bool | None = None
) -> PresentNode:
    """Return the node. One whose GRES can't be read is not usable. `reserved_at`: see `reserved`.

    `powers_up`: whether Slurm itself powers it up for a job; None: if it is of no NodeSet that the
    planner scales.
    """
    saving = not node.states.isdisjoint(_SAVING)
    powers_up = not nodeset if powers_up is None else powers_up
    prevents = _NOT_USABLE - {"NOT_RESPONDING"} if saving else _NOT_USABLE
    try:
        resources, used = gres.total(gres.parse(node.gres)), gres.total(gres.parse(node.gres_used))
    except gres.GresError:
        resources, used = None, ()
    shape = _shape(node, resources or ())
    in_use = {(item.name, item.type): item.count for item in used}
    base = states.base_state(node.states)
    usable = (
        resources is not None
        and base in _RUNNING
        and not states.is_drain(node.states)
        and not node.reservation
        and node.states.isdisjoint(prevents)
        and (powers_up or not saving)
    )
    idle = (
        base == "IDLE"
        and usable
        and not states.is_busy(node.states)
        and node.states.isdisjoint(_NOT_IDLE)
    )
    return PresentNode(
        name=node.name,
        nodeset=nodeset,
        shape=shape,
        partitions=frozenset(node.partitions),
        weight=node.weight + UP_FIRST * saving,
        usable=usable,
        idle_since=float(max(node.last_busy, node.slurmd_start_time))
        if idle and reserved_at is None
        else None,
        free_cores=max(0, node.effective_cpus - node.alloc_cpus) // shape.threads,
        free_memory=max(0, shape.memory - node.alloc_memory),
        free_gres=tuple(
            gres.Gres(it.name, it.type, max(0, it.count - in_use.get((it.name, it.type), 0)))
            for it in shape.gres
        ),
        reserved_at=reserved_at,
        fault=_fault(node, base, is_readable=resources is not None),
        started_at=float(node.slurmd_start_time),
        owner=node.owner,
        unsettled=saving or "COMPLETING" in node.states,
    )


def _fault(node: Node, base: str | None, *, is_readable: bool) -> str:
    """See `PresentNode.fault`."""
    if not node.states.isdisjoint(_ELSEWHERE):
        return ""
    if not is_readable:
        return f"its GRES {printable(node.gres, _REASON_LIMIT)!r} can't be read"
    flags = sorted(node.states & (_INVALID | {"DRAIN", "FAIL", "NOT_RESPONDING"}))
    if base in _RUNNING and not states.is_drain(node.states) and set(flags) <= {"DRAIN"}:
        return ""
    if is_intended(node) and (_INVALID.isdisjoint(flags) or owner_of(node) in OURS):
        return ""
    state = "+".join([base or "no known state", *flags])
    return f"{state}: {printable(node.reason, _REASON_LIMIT)}" if node.reason else state


def _shape(node: Node, resources: tuple[gres.Gres, ...]) -> Shape:
    return _one(
        max(1, node.sockets),
        max(1, node.cores),
        max(1, node.threads),
        node.effective_memory,
        resources,
        frozenset(node.active_features or node.features),
        node.temporary_disk,
        node.specialized_cores,
    )


@lru_cache(maxsize=1024)
def _one(
    sockets: int,
    cores: int,
    threads: int,
    memory: int,
    resources: tuple[gres.Gres, ...],
    features: frozenset[str],
    tmp_disk: int,
    specialized_cores: int,
) -> Shape:
    """Return one object for all nodes of one shape."""
    return Shape(sockets, cores, threads, memory, resources, features, tmp_disk, specialized_cores)
