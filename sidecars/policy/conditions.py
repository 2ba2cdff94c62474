"""Conditions of our resources: standard metav1.Condition lists, changed only where something
changed.

Every kind has a condition `Ready` that sums up: `kubectl get` prints its reason, its message names
the step in progress and the remedy.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sidecars.contract.text import printable
from sidecars.policy.reasons import Reason

MESSAGE_LIMIT = 32768
"""metav1.Condition.message, maxLength."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One desired condition. `message` may be empty only when nothing needs explanation.

    The message may quote Slurm or users: it is bounded and printable.
    """

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message, MESSAGE_LIMIT))


def merge(
    present: Iterable[Mapping[str, Any]],
    wanted: Collection[Condition],
    generation: int,
    now: float,
    unknown: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the new conditions list: `wanted` over `present`, sorted by type.

    A condition whose status stays keeps its lastTransitionTime. Those of the types `unknown`, of
    which nothing new is known, stay as they are, with the generation that they are of. Other types
    are dropped: the operator owns the whole list of the kinds it reconciles.
    """
    before = {str(condition.get("type")): condition for condition in present}
    found = {condition.type for condition in wanted}
    merged = [dict(it) for kind, it in before.items() if kind in unknown and kind not in found]
    for condition in wanted:
        old = before.get(condition.type)
        since = (
            old.get("lastTransitionTime")
            if old is not None and old.get("status") == condition.status
            else None
        )
        merged.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason.value,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": since or timestamp(now),
            }
        )
    return sorted(merged, key=lambda condition: str(condition["type"]))


def find(resource: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of this type in a custom resource's status, empty if it has none."""
    present = (resource.get("status") or {}).get("conditions") or ()
    return next((it for it in present if it.get("type") == kind), {})


def is_true(resource: Mapping[str, Any], kind: str) -> bool:
    """Return whether a custom resource has the condition of this type with status True."""
    return bool(find(resource, kind).get("status") == "True")


def timestamp(now: float) -> str:
    """Write seconds since the epoch as Kubernetes writes a time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str | None) -> float | None:
    """Return a Kubernetes time as seconds since the epoch, or None for None, an empty or an
    unreadable text.
    """
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
