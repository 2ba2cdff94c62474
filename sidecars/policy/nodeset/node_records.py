"""Slurm node records that pods of a NodeSet left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecars.contract import reasons
from sidecars.slurm import states
from sidecars.slurm.owners import must_be_drained, reason_to_write, why_retained

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecars.slurm.records import Node

ORPHANED_SECONDS = 5.0
"""How long a node record must have been without its pod before it is deleted: longer than a watch event takes."""


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """What to do about node records without a pod."""

    delete: tuple[str, ...] = ()
    down: Mapping[str | None, tuple[str, ...]] = field(default_factory=dict)
    """Nodes to set DOWN by reason. None doesn't change the reason; these are drained as well."""
    look_again: float | None = None
    """Seconds until time alone may have changed this; None when no record is left to be deleted."""


def orphaned_records(orphans: Iterable[Node], orphaned_since: Mapping[str, float], now: float) -> RecordPlan:
    """What to do about node records that carry the uid of a deleted pod.

    `orphaned_since`: when each was first seen so; one that is missing in it is seen for the first time. A record with
    a foreign state or reason, or a reservation, is set DOWN and left to the administrator. If it isn't only reserved,
    it is drained too, so that no later pod of its name returns it to service.
    A busy one is set DOWN, which ends its jobs in Slurm, and deleted once it is free.
    """
    delete: list[str] = []
    down: dict[str | None, list[str]] = {}
    wait: list[float] = []
    for node in orphans:
        age = now - orphaned_since.get(node.name, now)
        if age < ORPHANED_SECONDS:
            wait.append(ORPHANED_SECONDS - age)
            continue
        busy = states.is_busy(node.states)
        retain = bool(why_retained(node))
        if (retain or busy) and (not states.is_down(node.states) or must_be_drained(node)):
            down.setdefault(reason_to_write(node, reasons.RECORD_ORPHANED), []).append(node.name)
        if busy and not retain:
            wait.append(1.0)
        elif not retain:
            delete.append(node.name)
    by_reason = {reason: tuple(names) for reason, names in down.items()}
    return RecordPlan(tuple(delete), by_reason, min(wait, default=None))
