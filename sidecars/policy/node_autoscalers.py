"""What Cluster Autoscaler and Karpenter report about pods that wait for a Kubernetes node.

They write Events on the pod. Cluster Autoscaler: `TriggeredScaleUp` when it adds a node for it, and
`NotTriggerScaleUp` while none of its node groups could run it. Karpenter: `Nominated` when a node
that it has ordered is for it, and `FailedScheduling`, as the scheduler of Kubernetes, but under its
own name. Both limit the rate of their Events, so none is no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from sidecars.contract.text import printable
from sidecars.policy.conditions import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COMING_SECONDS = 900.0
"""Seconds that a Kubernetes node that was ordered may take, from the last Event about it. As long
waits Cluster Autoscaler (`--max-node-provision-time`).
"""
REFUSED_SECONDS = 30.0
"""Seconds after the first of several refusals that a pod is still waited for: another group of
nodes may be tried.
"""
ASK_SECONDS = 10.0
"""Seconds between two reads of the Events of a namespace, while a pod of it has no Kubernetes
node.
"""
REASONS = ("TriggeredScaleUp", "NotTriggerScaleUp", "Nominated", "FailedScheduling")
"""Reasons of the Events that are read."""
_KARPENTER = "karpenter"
_LIMIT = 200
"""Characters of a message."""


class Answer(Enum):
    """What a node autoscaler does for a pod."""

    COMING = "coming"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Notice:
    """The last answer about a pod. Times are seconds since the epoch."""

    answer: Answer
    first: float
    """When it was first given."""
    last: float
    text: str = ""


def read(events: Iterable[Mapping[str, Any]]) -> dict[str, Notice]:
    """Return the last answer about each pod, by its uid. Events of another form are skipped."""
    found: dict[str, Notice] = {}
    for event in events:
        uid = _text(event.get("regarding"), "uid")
        notice = _notice(event)
        if not uid or notice is None:
            continue
        before = found.get(uid)
        if before is None or notice.last >= before.last:
            found[uid] = notice
    return found


def gives_up_at(since: float, wait: float, notice: Notice | None) -> float:
    """Return until when a pod is waited for that has waited since then, and for `wait` seconds
    without an answer.
    """
    if notice is None or notice.last < since:
        return since + wait
    if notice.answer is Answer.COMING:
        return max(since + wait, notice.last + COMING_SECONDS)
    return min(since + wait, max(since, notice.first) + REFUSED_SECONDS)


def _notice(event: Mapping[str, Any]) -> Notice | None:
    reason = _text(event, "reason")
    if reason in ("TriggeredScaleUp", "Nominated"):
        answer = Answer.COMING
    elif reason == "NotTriggerScaleUp" or (
        reason == "FailedScheduling"
        and _KARPENTER in (_text(event, "reportingController"), _source(event))
    ):
        answer = Answer.REFUSED
    else:
        return None
    series = event.get("series")
    times = [
        at
        for text in (
            _text(event, "deprecatedFirstTimestamp"),
            _text(event, "eventTime"),
            _text(event, "deprecatedLastTimestamp"),
            _text(series, "lastObservedTime"),
        )
        if text and (at := seconds(text)) is not None
    ]
    if not times:
        return None
    return Notice(answer, min(times), max(times), printable(_text(event, "note"), _LIMIT))


def _source(event: Mapping[str, Any]) -> str:
    return _text(event.get("deprecatedSource"), "component")


def _text(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
