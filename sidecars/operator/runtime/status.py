"""Writes the status of custom resources."""

from collections.abc import Callable, Collection, Mapping
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
        self,
        resource: Resource,
        manifest: Manifest,
        wanted: Collection[Condition],
        more: Mapping[str, Any] | None = None,
        unknown: Collection[str] = (),
    ) -> None:
        """Write the status if it differs: these conditions, and the fields of `more`. Raises
        ApiError.

        `unknown`: types of conditions that stay as they are if `wanted` lacks them.
        """
        metadata, present = (
            manifest["metadata"],
            self._own_writes.newest(manifest).get("status") or {},
        )
        status = {
            **(more or {}),
            "conditions": conditions.merge(
                present.get("conditions") or [],
                wanted,
                metadata.get("generation", 0),
                self._now(),
                unknown,
            ),
        }
        if any(present.get(name) != value for name, value in status.items()):
            request = self._client.merge_patch(
                resource,
                metadata["namespace"],
                metadata["name"],
                {"status": status},
                subresource="status",
            )
            await self._own_writes.write(manifest, request, {**present, **status})
