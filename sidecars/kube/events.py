"""Kubernetes Events for administrators: written in the background, best effort, repeats counted as
a series.

https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sidecars.contract.text import printable
from sidecars.kube.errors import KubeError, NotFound
from sidecars.kube.resources import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecars.kube.client import Client
    from sidecars.objects import Manifest

_log = logging.getLogger(__name__)
_SERIES = timedelta(minutes=6)
"""A repeat within this time belongs to the series; a series is written at most this often, save its
second event.
"""
_MOST_SERIES = 4096
_MOST_IN_FLIGHT = 256
_LONGEST_NOTE = 1024


def utc_now() -> datetime:
    """Return the wall clock."""
    return datetime.now(UTC)


class _Kind(NamedTuple):
    """Events that are equal in this are repeats of one event."""

    regarding: tuple[str, ...]
    type: str
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Series:
    namespace: str
    name: str
    count: int
    last: datetime
    written: datetime


class EventRecorder:
    """`component` is the reportingController (such as `example.com/operator`), `instance` the pod's
    name.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        clock: Callable[[], datetime] = utc_now,
        *,
        instance: str = "",
    ) -> None:
        self._client, self._component, self._instance, self._clock = (
            client,
            component,
            instance or component,
            clock,
        )
        self._series: dict[_Kind, _Series] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def emit(
        self,
        regarding: Manifest,
        type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Record that something happened to `regarding` (a Manifest, or a part of it with
        apiVersion, kind, metadata).

        Never waits, never raises for what the server does: an event that can't be written is logged
        and dropped. `reason` and `action` are UpperCamelCase words, `note` a sentence (written
        printable, cut at 1 KiB), no secret in either.
        """
        reference = _reference(regarding)
        note = printable(note, _LONGEST_NOTE).encode()[:_LONGEST_NOTE].decode(errors="ignore")
        kind = _Kind(tuple(reference.values()), type, reason, action, note)
        now = self._clock()
        series = self._series.pop(kind, None)
        if series is not None and now - series.last < _SERIES:
            self._series[kind] = series  # the newest is last, the oldest is dropped first
            series.count += 1
            series.last = now
            if series.count == 2 or now - series.written >= _SERIES:
                series.written = now
                self._start(self._repeat(series, series.count))
            return
        # The API server keeps the events of cluster-scoped objects in the namespace default.
        namespace = reference.get("namespace", "default")
        name = (
            f"{reference.get('name', 'unknown')[:200]}.{int(now.timestamp() * 1e6):x}."
            f"{len(self._series):x}"
        )
        self._series[kind] = _Series(namespace, name, 1, now, now)
        while len(self._series) > _MOST_SERIES:
            del self._series[next(iter(self._series))]
        event: Manifest = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": _micro_time(now),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "regarding": reference,
            "type": type,
            "reason": reason,
            "action": action,
            "note": note,
        }
        self._start(self._create(event, kind))

    async def flush(self) -> None:
        """Wait until what was emitted is written or dropped."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, writing: Any) -> None:
        if len(self._tasks) >= _MOST_IN_FLIGHT:
            writing.close()
            _log.warning("too many events at once: one is dropped")
            return
        task = asyncio.create_task(writing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, event: Manifest, kind: _Kind) -> None:
        try:
            await self._client.create(EVENTS, event)
        except KubeError as error:
            self._series.pop(kind, None)  # so that a repeat is written as an event of its own
            _log.warning("event %s (%s) could not be written: %s", kind.reason, kind.note, error)

    async def _repeat(self, series: _Series, count: int) -> None:
        patch = {"series": {"count": count, "lastObservedTime": _micro_time(series.last)}}
        try:
            await self._client.merge_patch(EVENTS, series.namespace, series.name, patch)
        except NotFound:
            series.last = datetime.min.replace(
                tzinfo=UTC
            )  # it has expired: the next repeat starts a new series
        except KubeError as error:
            _log.warning("the series of event %s could not be written: %s", series.name, error)


def _reference(regarding: Manifest) -> dict[str, str]:
    metadata = regarding.get("metadata") or {}
    values = {
        "apiVersion": regarding.get("apiVersion"),
        "kind": regarding.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
    }
    return {name: value for name, value in values.items() if value}


def _micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
