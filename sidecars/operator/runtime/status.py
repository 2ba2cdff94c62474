"""Writes the status of custom resources."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sidecars.kube import Client, Manifest, Resource
from sidecars.operator.runtime.own_writes import OwnWrites
from sidecars.policy import conditions
from sidecars.policy.conditions import Condition


class StatusWriter:
    """`now` gives seconds since the epoch, for `lastTransitionTime`."""

    def __init__(self, client: Client, own_writes: OwnWrites, now: Callable[[], float]) -> None:
        self._client = client
        self._own_writes = own_writes
        self._now = now

    async def report(
        self, resource: Resource, manifest: Manifest, wanted: Iterable[Condition], more: Mapping[str, Any] | None = None
    ) -> None:
        """Write the status if it differs: these conditions, and the fields of `more`. Raises ApiError."""
        metadata, present = manifest["metadata"], self._own_writes.newest(manifest).get("status") or {}
        status = {
            **(more or {}),
            "conditions": conditions.merge(
                present.get("conditions") or [], wanted, metadata.get("generation", 0), self._now()
            ),
        }
        if any(present.get(name) != value for name, value in status.items()):
            request = self._client.merge_patch(
                resource, metadata["namespace"], metadata["name"], {"status": status}, subresource="status"
            )
            await self._own_writes.write(manifest, request, {**present, **status})
