"""Kubernetes' objects, read field by field. A missing field, or one of another type, is an empty
value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecars.explain.core.records import Moment
from sidecars.policy.conditions import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sidecars.explain.core.records import Object

POD_HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"
APP = "app.kubernetes.io/name"
SHOWN_EVENTS = 10
"""Events of one object in a timeline."""
_ROUTINE = frozenset({"Pulling", "Pulled", "Created", "Started"})


@dataclass(frozen=True, slots=True)
class ConditionSeen:
    """A condition of an object's status."""

    type: str
    status: str
    reason: str
    message: str
    since: float | None


def dig(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, None without it."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text(value: Any, *path: str) -> str:
    """Return the string at a path of keys, "" without one."""
    found = dig(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Any, *path: str) -> int:
    """Return a whole number, or 0 without one."""
    found = dig(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def items(value: Any, *path: str) -> list[Object]:
    """Return the objects of the list at a path of keys, [] without one."""
    found = dig(value, *path)
    return [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []


def time(value: Any, *path: str) -> float | None:
    """Return a time, or None without one."""
    return seconds(text(value, *path))


def name(value: Object) -> str:
    """metadata.name"""
    return text(value, "metadata", "name")


def label(value: Object, key: str) -> str:
    """Return the value of a label."""
    return text(value, "metadata", "labels", key)


def annotation(value: Object, key: str) -> str:
    """Return the value of an annotation."""
    return text(value, "metadata", "annotations", key)


def terminating(value: Object) -> bool:
    """Return whether the object is being deleted."""
    return bool(text(value, "metadata", "deletionTimestamp"))


def conditions(value: Object) -> list[ConditionSeen]:
    """Return the conditions of its status."""
    return [
        ConditionSeen(
            text(it, "type"),
            text(it, "status"),
            text(it, "reason"),
            text(it, "message"),
            time(it, "lastTransitionTime"),
        )
        for it in items(value, "status", "conditions")
    ]


def condition(value: Object, kind: str) -> ConditionSeen | None:
    """Return the condition of a type."""
    return next((it for it in conditions(value) if it.type == kind), None)


def named(objects: Sequence[Object] | None, wanted: str) -> Object | None:
    """Return the object of this name."""
    return next((it for it in objects or () if name(it) == wanted), None)


def owned(objects: Sequence[Object] | None, owner: Object) -> list[Object]:
    """Return the objects that `owner` owns."""
    uid = text(owner, "metadata", "uid")
    return [
        it
        for it in objects or ()
        if uid
        and any(
            text(reference, "uid") == uid for reference in items(it, "metadata", "ownerReferences")
        )
    ]


def slurm_node(pod: Object) -> str:
    """Return the name of a worker pod's node in Slurm."""
    return label(pod, POD_HOSTNAME) or text(pod, "spec", "hostname") or name(pod)


def is_worker(pod: Object) -> bool:
    """Return whether it is the pod of a slurmd."""
    return label(pod, APP) == "slurmd"


def events_of(events: Sequence[Object] | None, kind: str, wanted: str) -> list[Object]:
    """Return the Events of an object, the last one first."""
    found = [
        it
        for it in events or ()
        if text(it, "involvedObject", "name") == wanted
        and text(it, "involvedObject", "kind") == kind
    ]
    return sorted(found, key=lambda it: event_time(it) or 0.0, reverse=True)


def recent(events: Sequence[Object], uid: str = "", *, since: float = 0.0) -> list[Object]:
    """Return the last Events that tell something: not those of former objects of the name, and not
    what each container does when it starts.
    """
    found = [
        it
        for it in events
        if text(it, "involvedObject", "uid") in ("", uid)
        and text(it, "reason") not in _ROUTINE
        and (event_time(it) or 0.0) >= since
    ]
    return found[:SHOWN_EVENTS]


def event_time(event: Object) -> float | None:
    """Return when the Event last happened."""
    for path in (
        ("series", "lastObservedTime"),
        ("lastTimestamp",),
        ("eventTime",),
        ("metadata", "creationTimestamp"),
    ):
        found = time(event, *path)
        if found is not None:
            return found
    return None


def moments(events: Sequence[Object], source: str) -> Iterator[Moment]:
    """Yield the Events as entries of a timeline."""
    for event in events:
        at = event_time(event)
        if at is not None:
            yield Moment(at, f"{text(event, 'reason')}: {text(event, 'message')}", source)
