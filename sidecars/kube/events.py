"""Kubernetes Events for administrators: written in the background, best effort, repeats counted as a series."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecars.kube.client import Client
    from sidecars.kube.resources import Manifest


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class EventRecorder:
    """`component` is the reportingController (`slinky.slurm.net/slurm-operator`), `instance` the pod's name."""

    def __init__(
        self, client: Client, component: str, clock: Callable[[], datetime] = utc_now, *, instance: str = ""
    ) -> None:
        raise NotImplementedError

    def emit(
        self, regarding: Manifest, type: Literal["Normal", "Warning"], reason: str, action: str, note: str
    ) -> None:
        """Record that something happened to `regarding` (a Manifest, or a reference with apiVersion, kind, metadata).

        Never waits, never raises for what the server does: an event that can't be written is logged and dropped.
        `reason` and `action` are UpperCamelCase words, `note` a sentence (cut at 1024 bytes), no secret in either.
        """
        raise NotImplementedError

    async def flush(self) -> None:
        """Wait until what was emitted is written or dropped."""
        raise NotImplementedError
