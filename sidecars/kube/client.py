"""Requests to the Kubernetes API, typed; see
https://kubernetes.io/docs/reference/using-api/api-concepts/.

One request per call (lists are paged), each with a deadline. Keeps no objects: that is the
reflector's.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec

from sidecars.kube import responses
from sidecars.kube.errors import Gone
from sidecars.kube.resources import PODS
from sidecars.kube.responses import Page, WatchEvent
from sidecars.kube.transport import JSON, Transport
from sidecars.objects import PartialObjectMetadata

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

    from sidecars.kube.credentials import Credentials
    from sidecars.kube.resources import Resource
    from sidecars.objects import Manifest

T = TypeVar("T")
_MANIFEST: type[Manifest] = dict
PAGE = 250
"""Objects per page of a list. The text of a page is in memory beside all records: 500 pods of 18 kB
are 15 MiB.
"""
_METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class Client:
    """All verbs on all resources. Calls raise KubeErrors: ApiError when refused, Unreachable
    without an answer in time.

    `Transport` describes what is retried, which is little. A manifest to write names its namespace.
    """

    def __init__(self, transport: Transport) -> None:
        """Use `connect`."""
        self._transport = transport

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        credentials: Credentials,
        *,
        concurrency: int = 32,
        timeout: float = 30.0,
        rng: random.Random | None = None,
    ) -> AsyncIterator[Client]:
        """Provide a client while the block runs. At most `concurrency` requests run at once,
        watches apart, each for at most `timeout` s.
        """
        rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        async with Transport.connect(
            credentials, concurrency=concurrency, timeout=timeout, rng=rng
        ) as transport:
            yield cls(transport)

    def guarded(self, seconds_left: Callable[[], float]) -> Client:
        """Return the same client for a caller that must lead to write. Pass `Election.left`.

        A write asks immediately before it is sent: with 0 seconds left or less it raises
        LeadershipLost and isn't sent. It waits at most those seconds for its answer.
        """
        return Client(self._transport.guarded(seconds_left))

    def apart(self) -> Client:
        """Return the same client with request slots of its own, for a caller that must not wait for
        the requests of others.
        """
        return Client(self._transport.apart())

    @overload
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest: ...
    @overload
    async def get(
        self, resource: Resource, namespace: str | None, name: str, type: type[T]
    ) -> T: ...
    async def get(
        self, resource: Resource, namespace: str | None, name: str, type: type[Any] = dict
    ) -> Any:
        """Read one object; `namespace` is None for cluster-scoped resources. Raises NotFound."""
        path = resource.path(namespace, name)
        return responses.decode(await self._transport.request("GET", path), type, f"GET {path}")

    async def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        since: str,
        limit: int,
        previous: bool = False,
    ) -> str:
        """Return the log of a container from a time on (RFC 3339), at most `limit` bytes of it.

        `previous`: of its former instance. Raises NotFound and BadRequest for a container that has
        none.
        """
        query = {"container": container, "sinceTime": since, "limitBytes": str(limit)}
        if previous:
            query["previous"] = "true"
        answer = await self._transport.request(
            "GET", PODS.path(namespace, pod, "log"), query, accept=f"{JSON}, */*"
        )
        return answer.decode(errors="replace")

    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> tuple[builtins.list[Manifest], str]: ...
    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        type: type[T],
    ) -> tuple[builtins.list[T], str]: ...
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        type: type[Any] = dict,
    ) -> tuple[builtins.list[Any], str]:
        """Return all objects (of one namespace, or of all) and the list's resourceVersion.
        Malformed if one of them is.
        """
        items: builtins.list[Any] = []
        version = ""
        pages = self.pages(
            resource, namespace, type, label_selector=label_selector, field_selector=field_selector
        )
        async for page in pages:
            for error in page.malformed.values():
                raise error
            if page.first:
                items.clear()
            items += page.items
            version = page.resource_version
        return items, version

    async def pages(
        self,
        resource: Resource,
        namespace: str | None,
        type: type[T],
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE,
    ) -> AsyncIterator[Page[T]]:
        """Yield the same, page by page. When a continue token expires on the way, the list starts
        again, unpaged.

        With the type PartialObjectMetadata, the server sends metadata only.
        """
        path = resource.path(namespace)
        accept = _METADATA_LIST if type is PartialObjectMetadata else JSON
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        token, limit = "", page_size
        while True:
            query = {"limit": str(limit or ""), "continue": token, **selectors}
            try:
                # The body has no name here, so that it is freed before the next one is requested.
                page, token_after = responses.page(
                    await self._transport.request("GET", path, query, accept=accept),
                    type,
                    f"GET {path}",
                    resource,
                    first=not token,
                )
            except Gone:
                if not token:
                    raise
                token, limit = "", 0
                continue
            yield page
            if not token_after:
                return
            token = token_after

    @overload
    async def create(self, resource: Resource, manifest: Manifest) -> Manifest: ...
    @overload
    async def create(self, resource: Resource, manifest: Manifest, type: type[T]) -> T: ...
    async def create(self, resource: Resource, manifest: Manifest, type: type[Any] = dict) -> Any:
        """POST, in the manifest's namespace; the object as stored. Raises AlreadyExists."""
        namespace, _ = _place(resource, manifest)
        return await self._write("POST", resource.path(namespace), manifest, type)

    async def apply(
        self,
        resource: Resource,
        manifest: Manifest,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Manifest:
        """Server-side apply: the manifest has exactly the fields that the manager wants to own; the
        object as stored.

        `subresource="status"` writes status alone. Without `force`, raises Conflict for fields of
        other managers. With `dry_run` it is refused as otherwise, and not stored.
        https://kubernetes.io/docs/reference/using-api/server-side-apply/
        """
        namespace, name = _place(resource, manifest)
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        path = resource.path(namespace, name, subresource)
        return await self._write(
            "PATCH", path, manifest, _MANIFEST, query, "application/apply-patch+yaml"
        )

    async def merge_patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str | None = None,
        field_manager: str = "",
    ) -> Manifest:
        """Apply a JSON merge patch (RFC 7386): None removes a key, lists are replaced whole. Return
        the object as stored.
        """
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": field_manager}
        return await self._write(
            "PATCH", path, patch, _MANIFEST, query, "application/merge-patch+json"
        )

    async def json_patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        type: type[T],
        *,
        subresource: str | None = None,
        field_manager: str = "",
    ) -> T:
        """Apply a JSON patch (RFC 6902). A failed `test` operation raises Invalid. Return the
        object as stored.
        """
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": field_manager}
        return await self._write(
            "PATCH", path, operations, type, query, "application/json-patch+json"
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: Literal["Foreground", "Background", "Orphan"] | None = None,
    ) -> None:
        """Ask for deletion (finalizers and grace may delay it). With `uid` or `resource_version`,
        only that very object or version, else Conflict. Raises NotFound.
        """
        options = _delete_options(uid, resource_version, grace_period_seconds, propagation_policy)
        content = msgspec.json.encode(options)
        await self._transport.request("DELETE", resource.path(namespace, name), content=content)

    @overload
    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        read_deadline: float = 70.0,
    ) -> AsyncGenerator[WatchEvent[Manifest]]: ...
    @overload
    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        read_deadline: float = 70.0,
        type: type[T],
    ) -> AsyncGenerator[WatchEvent[T]]: ...
    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        read_deadline: float = 70.0,
        type: type[Any] = dict,
    ) -> AsyncGenerator[WatchEvent[Any]]:
        """Yield one watch stream from a resourceVersion on, with bookmarks, until the server ends
        it. A Reflector does more.

        The first event is a BOOKMARK of that version: the server has accepted. Raises Gone when the
        version is too old, Unreachable when the stream is cut or silent for `read_deadline` seconds
        (bookmarks come about once a minute). With the type PartialObjectMetadata, the server sends
        metadata only.
        """
        path = resource.path(namespace)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        accept = _METADATA if type is PartialObjectMetadata else JSON
        async with self._transport.stream(
            path, query, accept=accept, read_deadline=read_deadline
        ) as lines:
            yield WatchEvent("BOOKMARK", None, resource_version)
            async for line in lines:
                yield responses.event(line, type, f"WATCH {path}")

    async def _write(
        self,
        method: str,
        path: str,
        body: object,
        type: type[T],
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> T:
        content = msgspec.json.encode(body)
        answer = await self._transport.request(
            method, path, query, content=content, content_type=content_type
        )
        return responses.decode(answer, type, f"{method} {path}")


def _place(resource: Resource, manifest: Manifest) -> tuple[str | None, str]:
    """Return namespace and name of a manifest to write."""
    metadata = manifest.get("metadata") or {}
    namespace = metadata.get("namespace") if resource.namespaced else None
    if resource.namespaced and not namespace:
        raise ValueError(f"a {resource.kind} to write needs metadata.namespace")
    return namespace, metadata.get("name") or ""


def _delete_options(
    uid: str | None,
    resource_version: str | None,
    grace_period_seconds: int | None,
    propagation_policy: str | None,
) -> dict[str, Any]:
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    given = {name: value for name, value in preconditions.items() if value is not None}
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if given:
        options["preconditions"] = given
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if propagation_policy is not None:
        options["propagationPolicy"] = propagation_policy
    return options
