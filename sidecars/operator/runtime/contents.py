"""The contents of Secrets and ConfigMaps.

Those that the operator applies are watched whole. Of all others only metadata is watched: a cluster
has thousands that no custom resource refers to. What one refers to is read by name.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from sidecars import objects
from sidecars.kube import CONFIG_MAPS, SECRETS, Client, Event, Forbidden, NotFound, identity
from sidecars.operator.runtime.caches import Caches
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.reasons import Ready
from sidecars.workloads import references
from sidecars.workloads.facts import config_map_contents
from sidecars.workloads.references import Kind, Reference

REFERENCES = "references"
"""Index of each cache of custom resources: by what they refer to."""


class NotReadError(NotUsableError):
    """The object exists and its contents have not been read, so they must not be taken for
    missing.
    """

    retried = True

    def __init__(self, reference: Reference, problem: str) -> None:
        super().__init__(Ready.REFERENCE_UNREAD, f"{reference.kind} {reference.name!r}: {problem}")


class Contents:
    """What is read is kept as long as a custom resource refers to it."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._read: dict[Reference, objects.Secret | objects.ConfigMap] = {}
        for reflector in caches.custom_resources():
            reflector.store.add_index(REFERENCES, references.of)
        caches.other_secrets.store.subscribe(partial(self._forget_deleted, "Secret"))
        caches.other_config_maps.store.subscribe(partial(self._forget_deleted, "ConfigMap"))

    async def read(self, references: Iterable[Reference]) -> None:
        """Have the contents of these objects at least as new as the caches show them; missing
        objects are left out.

        Raises KubeError, and NotUsableError where the API server forbids it.
        """
        stores = [reflector.store for reflector in self._caches.custom_resources()]
        for reference in list(self._read):
            if not any(store.by(REFERENCES, reference) for store in stores):
                del self._read[reference]
        # All of them, whatever becomes of the others: what could be read serves.
        results = await asyncio.gather(*map(self._fetch, references), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    def exists(self, reference: Reference) -> bool:
        """Return whether the object exists, by the caches."""
        return self._own(reference) is not None or self._metadata(reference) is not None

    def secret(self, namespace: str, name: str) -> objects.Secret | None:
        """Return the Secret, or None if it doesn't exist. Raises NotReadError."""
        own = self._caches.own_secrets.store.get(namespace, name)
        if own is not None:
            return own
        found = self._found(Reference("Secret", namespace, name))
        assert found is None or isinstance(found, objects.Secret)  # noqa: S101 - by the kind
        return found

    def config_map(self, namespace: str, name: str) -> Mapping[str, str | bytes] | None:
        """Return the ConfigMap's contents by key, or None if it doesn't exist. Raises
        NotReadError.
        """
        own = self._caches.own_config_maps.store.get(namespace, name)
        if own is not None:
            return config_map_contents(own.get("data"), own.get("binaryData"))
        found = self._found(Reference("ConfigMap", namespace, name))
        assert found is None or isinstance(found, objects.ConfigMap)  # noqa: S101 - by the kind
        return {**found.data, **found.binary_data} if found is not None else None

    def _own(self, reference: Reference) -> object | None:
        caches = self._caches
        own = caches.own_secrets if reference.kind == "Secret" else caches.own_config_maps
        return own.store.get(reference.namespace, reference.name)

    def _metadata(self, reference: Reference) -> objects.PartialMeta | None:
        """Return the metadata of an object that the operator doesn't apply, as last seen, None if
        it doesn't exist.
        """
        caches = self._caches
        others = caches.other_secrets if reference.kind == "Secret" else caches.other_config_maps
        found = others.store.get(reference.namespace, reference.name)
        return found.metadata if found is not None else None

    def _found(self, reference: Reference) -> objects.Secret | objects.ConfigMap | None:
        metadata, found = self._metadata(reference), self._read.get(reference)
        if metadata is None:
            return None
        if found is None or found.metadata.uid != metadata.uid:
            raise NotReadError(reference, "it has just appeared and is being read")
        # An older version serves until the pass that its change brings about.
        return found

    async def _fetch(self, reference: Reference) -> None:
        metadata = self._metadata(reference)
        if metadata is None:
            return
        found = self._read.get(reference)
        same = found is not None and found.metadata.uid == metadata.uid
        # A read may have brought a newer version than the watch has shown.
        if found is not None and same and _version(found.metadata) >= _version(metadata):
            return
        resource, kind = (
            (SECRETS, objects.Secret)
            if reference.kind == "Secret"
            else (CONFIG_MAPS, objects.ConfigMap)
        )
        try:
            answer: objects.Secret | objects.ConfigMap = await self._client.get(
                resource, reference.namespace, reference.name, kind
            )
        except NotFound:
            if self._read.get(reference) is found:
                self._read.pop(reference, None)
            return
        except Forbidden as error:
            raise NotReadError(reference, f"the operator may not read it: {error}") from error
        # Another pass may have sent its request later and have its answer already.
        known = self._read.get(reference)
        if known is None or _version(known.metadata) <= _version(answer.metadata):
            self._read[reference] = answer

    def _forget_deleted(self, kind: Kind, event: Event[objects.PartialObjectMetadata]) -> None:
        if event.new is None:
            key = identity(event.object).key
            self._read.pop(Reference(kind, key.namespace, key.name), None)


def _version(metadata: objects.ObjectMeta | objects.PartialMeta) -> int:
    return int(metadata.resource_version)
