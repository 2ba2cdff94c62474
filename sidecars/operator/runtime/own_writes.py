"""The newest answers to this operator's own writes of custom resources: the watch may not have
shown them yet.

resourceVersions can be compared:
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sidecars.kube import Manifest, NotFound

_Place = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Our writes of one object."""

    uid: str
    version: int = 0
    """resourceVersion in the answer to the last write; 0 before the first."""
    finalizers: Sequence[str] = ()
    """The finalizers in that answer."""
    reported: int = 0
    """resourceVersion in the answer to the last write of the status; 0 before the first."""
    status: Mapping[str, Any] | None = None
    """The status in that answer."""
    pending: Mapping[str, Any] | None = None
    """The status that has been sent and not been answered."""


class OwnWrites:
    """Remembers them by object."""

    def __init__(self) -> None:
        self._written: dict[_Place, _Written] = {}

    async def write(
        self,
        manifest: Manifest,
        request: Awaitable[Manifest],
        status: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Send a write; the object as stored. `status`: the status that it writes. Raises what the
        request raises.
        """
        written = self._of(manifest)
        # The watch may show it before the answer arrives.
        self._written[_place(manifest)] = (
            replace(written, pending=status) if status is not None else written
        )
        try:
            stored = await request
        except NotFound:
            self.forget(manifest)
            raise
        self._answered(manifest, stored, is_report=status is not None)
        return stored

    def newest(self, manifest: Manifest) -> Manifest:
        """Return the object with its newest known finalizers, status and resourceVersion, and its
        spec and the rest as given.
        """
        written, metadata = self._of(manifest), manifest["metadata"]
        version = int(metadata["resourceVersion"])
        if written.version <= version:
            return manifest
        newest = {"finalizers": list(written.finalizers), "resourceVersion": str(written.version)}
        status = {"status": written.status} if written.reported > version else {}
        return {**manifest, "metadata": {**metadata, **newest}, **status}

    def is_reported(self, manifest: Manifest) -> bool:
        """Return whether the object's status is what this operator wrote, or older than that: no
        reason for another pass.
        """
        written, status = self._of(manifest), manifest.get("status")
        old = int(manifest["metadata"]["resourceVersion"]) <= written.reported
        return old or (status is not None and status in (written.status, written.pending))

    def forget(self, manifest: Manifest) -> None:
        """Drop what is remembered of a deleted object."""
        self._written.pop(_place(manifest), None)

    def _answered(self, manifest: Manifest, stored: Manifest, *, is_report: bool) -> None:
        place, metadata = _place(manifest), stored["metadata"]
        present, version = self._written.get(place), int(metadata["resourceVersion"])
        # It may have been deleted meanwhile, or another object may have its name.
        if present is None or present.uid != metadata["uid"] or version < present.version:
            return
        written = replace(present, version=version, finalizers=metadata.get("finalizers") or ())
        if is_report:
            written = replace(written, reported=version, status=stored.get("status"), pending=None)
        self._written[place] = written

    def _of(self, manifest: Manifest) -> _Written:
        """Return our writes of this object, not of a former one with the same name."""
        uid, written = manifest["metadata"]["uid"], self._written.get(_place(manifest))
        return written if written is not None and written.uid == uid else _Written(uid)


def _place(manifest: Manifest) -> _Place:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["namespace"], metadata["name"]
