"""What autoscaling applied to a NodeSet last: an annotation, which the planner writes, and which
the decision about the NodeSet's pods reads.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

ANNOTATION: Final = "slinky.slurm.net/autoscaling"


@dataclass(frozen=True, slots=True)
class Applied:
    """The record. Times are seconds since the epoch."""

    replicas: int
    """The number that was written."""
    remove: tuple[str, ...] = ()
    """The Slurm nodes that a lower number removes, in this order."""
    raised_at: float | None = None
    lowered_at: float | None = None
    node: str = ""
    """The resources of a node, as it has registered."""
    declared: str = ""
    """What the NodeSet declared when that node registered, in the same form."""
    reason: str = ""
    """Why, for people."""


def encode(applied: Applied) -> str:
    """Write the annotation, without what has its default."""
    fields = {
        "replicas": applied.replicas,
        "remove": applied.remove,
        "raisedAt": applied.raised_at,
        "loweredAt": applied.lowered_at,
        "node": applied.node,
        "declared": applied.declared,
        "reason": applied.reason,
    }
    kept = {
        key: value
        for key, value in fields.items()
        if key == "replicas" or value not in (None, (), "")
    }
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)


def decode(text: str) -> Applied | None:
    """Read the annotation; None for a text that is none."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or type(fields.get("replicas")) is not int:
        return None
    remove = fields.get("remove", [])
    texts = tuple(fields.get(key, "") for key in ("node", "declared", "reason"))
    times = (fields.get("raisedAt"), fields.get("loweredAt"))
    if (
        not isinstance(remove, list)
        or not all(isinstance(it, str) for it in (*remove, *texts))
        or not all(_is_time(it) for it in times)
    ):
        return None
    return Applied(fields["replicas"], tuple(remove), *times, *texts)


def _is_time(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
