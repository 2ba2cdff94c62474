"""Writes the status of custom resources, and recognises its own writes when the watch shows them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sidecars.kube import Client, Manifest, NotFound, Resource
from sidecars.policy import conditions
from sidecars.policy.conditions import Condition

if TYPE_CHECKING:
    from sidecars.operator.runtime.queues import Key


@dataclass(frozen=True, slots=True)
class _Reported:
    """Our status writes of one object."""

    uid: str
    version: int = 0
    """resourceVersion in the answer to the last write; 0 before the first."""
    status: Mapping[str, Any] | None = None
    """The status in that answer."""
    finalizers: Sequence[str] = ()
    """The finalizers in that answer."""
    pending: Mapping[str, Any] | None = None
    """The status that has been sent and not been answered."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Our last write of the finalizers of one object."""

    uid: str
    version: int
    finalizers: Sequence[str]


class StatusWriter:
    """`now` gives seconds since the epoch, for `lastTransitionTime`."""

    def __init__(self, client: Client, now: Callable[[], float]) -> None:
        self._client = client
        self._now = now
        self._reported: dict[tuple[str, Key], _Reported] = {}
        self._finalizers: dict[tuple[str, Key], _Written] = {}

    async def report(
        self, resource: Resource, manifest: Manifest, wanted: Iterable[Condition], more: Mapping[str, Any] | None = None
    ) -> None:
        """Write the status if it differs: these conditions, and the fields of `more`. Raises ApiError."""
        metadata, present = manifest["metadata"], self._status_of(resource, manifest)
        status = {
            **(more or {}),
            "conditions": conditions.merge(
                present.get("conditions") or [], wanted, metadata.get("generation", 0), self._now()
            ),
        }
        if any(present.get(name) != value for name, value in status.items()):
            place = (resource.kind, (metadata["namespace"], metadata["name"]))
            # The watch may show it before the answer arrives.
            self._reported[place] = replace(self._reported_of(resource.kind, manifest), pending={**present, **status})
            try:
                stored = await self._client.merge_patch(
                    resource, metadata["namespace"], metadata["name"], {"status": status}, subresource="status"
                )
            except NotFound:
                self.forget(manifest)
                raise
            answer = stored["metadata"]
            self._reported[place] = _Reported(
                answer["uid"],
                int(answer["resourceVersion"]),
                stored.get("status"),
                finalizers=answer.get("finalizers") or (),
            )

    def is_reported(self, manifest: Manifest) -> bool:
        """Whether its status is what this operator wrote, or older than that: no reason for another pass."""
        reported, status = self._reported_of(manifest["kind"], manifest), manifest.get("status")
        old = int(manifest["metadata"]["resourceVersion"]) <= reported.version
        return old or (status is not None and status in (reported.status, reported.pending))

    def finalizers_of(self, manifest: Manifest) -> tuple[list[str], str]:
        """The newest known finalizers, and the newest resourceVersion by which the object is known to have them.

        The watch may not have shown our last writes yet.
        """
        metadata = manifest["metadata"]
        found, version = metadata.get("finalizers") or [], int(metadata["resourceVersion"])
        written = self._finalizers.get(_place(manifest))
        if written is not None and written.uid == metadata["uid"] and written.version > version:
            found, version = list(written.finalizers), written.version
        reported = self._reported_of(manifest["kind"], manifest)
        if reported.version > version and list(reported.finalizers) == found:
            version = reported.version
        return found, str(version)

    def finalizers_written(self, manifest: Manifest) -> None:
        """The object as it is after our write of its finalizers."""
        metadata = manifest["metadata"]
        version, found = int(metadata["resourceVersion"]), tuple(metadata["finalizers"])
        self._finalizers[_place(manifest)] = _Written(metadata["uid"], version, found)

    def forget(self, manifest: Manifest) -> None:
        """Drop what is remembered of a deleted object."""
        self._reported.pop(_place(manifest), None)
        self._finalizers.pop(_place(manifest), None)

    def _status_of(self, resource: Resource, manifest: Manifest) -> Mapping[str, Any]:
        """The newest known status: the watch may not have shown our last write yet.

        resourceVersions can be compared:
        https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
        """
        reported = self._reported_of(resource.kind, manifest)
        newer = reported.version > int(manifest["metadata"]["resourceVersion"])
        return (reported.status if newer else manifest.get("status")) or {}

    def _reported_of(self, kind: str, manifest: Manifest) -> _Reported:
        """Our status writes of this object, not of a former one with the same name."""
        metadata = manifest["metadata"]
        found = self._reported.get((kind, (metadata["namespace"], metadata["name"])))
        return found if found is not None and found.uid == metadata["uid"] else _Reported(metadata["uid"])


def _place(manifest: Manifest) -> tuple[str, "Key"]:
    metadata = manifest["metadata"]
    return manifest["kind"], (metadata["namespace"], metadata["name"])
