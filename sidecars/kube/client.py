"""Requests to the Kubernetes API, typed; see https://kubernetes.io/docs/reference/using-api/api-concepts/.

One request per call (lists are paged), each with a deadline. Keeps no objects: that is the reflector's.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from sidecars.kube.errors import (
    UNREADABLE,
    ApiError,
    Gone,
    LeadershipLost,
    Malformed,
    Unauthorized,
    Unreachable,
    api_error,
)
from sidecars.kube.records import ObjectMeta, PartialObjectMetadata
from sidecars.kube.store import Key

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from sidecars.kube.credentials import Credentials
    from sidecars.kube.resources import Manifest, Resource

T = TypeVar("T")
_MANIFEST: type[Manifest] = dict
PAGE = 250
"""Objects asked for per page of a list. The text of a page is held beside all records: 500 pods of 18 kB are 15 MiB."""
_LONGEST_MESSAGE = 300
_JSON = "application/json"
_METADATA_LIST = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_APART = 4


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list. `resource_version` is that of the whole list; `malformed` are the objects that don't decode."""

    items: Sequence[T]
    resource_version: str
    malformed: Mapping[Key, Malformed]
    first: bool
    """A list starts with this page: pages that came before it, of a list that broke off, are void."""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One line of a watch. `object` is None for a BOOKMARK, and for an object that `malformed` tells about."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str
    malformed: tuple[Key, Malformed] | None = None


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Items(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta
    items: list[T] | None


class _Line(msgspec.Struct, Generic[T], frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: T


class _Envelope(msgspec.Struct, frozen=True):
    """What every object has, whatever else is wrong with it."""

    metadata: ObjectMeta


class _Status(msgspec.Struct, frozen=True):
    """https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/"""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


@functools.cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


@functools.cache
def _of(generic: Any, type: Any) -> Any:
    """The generic Struct of a type known at run time only."""
    return generic[type]


class _Body(aiohttp.payload.Payload):
    """A request's body. `before` is called when the connection is there and nothing has been sent on it yet."""

    _autoclose = True

    def __init__(self, content: bytes, content_type: str, before: Callable[[], None]) -> None:
        super().__init__(content, content_type=content_type)
        self._size = len(content)
        self._content = content
        self._before = before

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._content.decode(encoding, errors)

    async def write(self, writer: aiohttp.abc.AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None) -> None:
        self._before()
        await writer.write(self._content)


class Client:
    """All verbs on all resources. Calls raise KubeErrors: ApiError when refused, Unreachable without an answer in time.

    A 429 is waited out within the deadline as its Retry-After says (for an eviction it means a PodDisruptionBudget and
    is raised), and so is a 5xx with Retry-After for reads. A 401 is tried once more with credentials read anew.
    Nothing else is retried: whoever calls knows whether that is safe. A manifest to write names its namespace.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        credentials: Credentials,
        *,
        concurrency: int = 64,
        timeout: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """Use `connect`, which owns the session."""
        self._session = session
        self._credentials = credentials
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout = timeout
        self._sleep = sleep
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._seconds_left: Callable[[], float] | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        credentials: Credentials,
        *,
        concurrency: int = 64,
        timeout: float = 30.0,
        user_agent: str = "slurm-charts",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> AsyncIterator[Client]:
        """A client while the block runs: at most `concurrency` requests at once (watches apart), each `timeout` s."""
        session = aiohttp.ClientSession(
            # Requests are bounded by the client's own limit, which watches must not use up.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            read_bufsize=2**18,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            # Compression would cost more CPU than the bytes it saves inside a cluster.
            headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
        )
        async with session:
            yield cls(session, credentials, concurrency=concurrency, timeout=timeout, sleep=sleep, rng=rng)
        # Connections whose request was cancelled still say goodbye by TLS; aiohttp offers nothing to wait for
        # (https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown).
        await asyncio.sleep(0.25)

    def guarded(self, seconds_left: Callable[[], float]) -> Client:
        """The same client for one who must lead to write. Give it `Election.left`.

        A write asks at the very moment of sending: with 0 seconds left or less it raises LeadershipLost and isn't sent.
        It waits no longer than those seconds for its answer.
        """
        other = copy.copy(self)
        other._seconds_left = seconds_left  # noqa: SLF001 - its own copy
        return other

    def apart(self) -> Client:
        """The same client for one whose requests must not wait for those of others."""
        other = copy.copy(self)
        other._slots = asyncio.Semaphore(_APART)  # noqa: SLF001 - its own copy
        return other

    @overload
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest: ...
    @overload
    async def get(self, resource: Resource, namespace: str | None, name: str, type: type[T]) -> T: ...
    async def get(self, resource: Resource, namespace: str | None, name: str, type: type[Any] = dict) -> Any:
        """Read one object; `namespace` is None for cluster-scoped resources. Raises NotFound."""
        path = resource.path(namespace, name)
        return _decode(await self._call("GET", path), type, f"GET {path}")

    @overload
    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
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
        """All objects (of one namespace, or of all) and the list's resourceVersion. Malformed if one of them is."""
        items: builtins.list[Any] = []
        version = ""
        pages = self.pages(resource, namespace, type, label_selector=label_selector, field_selector=field_selector)
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
        """The same, page by page. When a continue token expires on the way, the list starts again, unpaged.

        With the type PartialObjectMetadata, the server sends metadata only.
        """
        path = resource.path(namespace)
        accept = _METADATA_LIST if type is PartialObjectMetadata else _JSON
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        token, limit = "", page_size
        while True:
            query = {"limit": str(limit or ""), "continue": token, **selectors}
            try:
                # The body has no name here, so that it is gone before the next one is asked for.
                page, token_after = _page(
                    await self._call("GET", path, query, accept=accept), type, f"GET {path}", resource, first=not token
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

    async def replace(self, resource: Resource, manifest: Manifest, *, subresource: str | None = None) -> Manifest:
        """PUT; the object as stored. With metadata.resourceVersion, raises Conflict if it is no longer that one."""
        namespace, name = _place(resource, manifest)
        return await self._write("PUT", resource.path(namespace, name, subresource), manifest, _MANIFEST)

    async def apply(
        self,
        resource: Resource,
        manifest: Manifest,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> Manifest:
        """Server-side apply: the manifest holds exactly the fields that the manager wants to own; the object as stored.

        `subresource="status"` writes status alone. Without `force`, raises Conflict for fields of other managers.
        https://kubernetes.io/docs/reference/using-api/server-side-apply/
        """
        namespace, name = _place(resource, manifest)
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        path = resource.path(namespace, name, subresource)
        return await self._write("PATCH", path, manifest, _MANIFEST, query, "application/apply-patch+yaml")

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
        """JSON merge patch (RFC 7386): None removes a key, lists are replaced whole; the object as stored."""
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": field_manager}
        return await self._write("PATCH", path, patch, _MANIFEST, query, "application/merge-patch+json")

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
        """JSON patch (RFC 6902); a failed `test` operation raises Invalid. The object as stored."""
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": field_manager}
        return await self._write("PATCH", path, operations, type, query, "application/json-patch+json")

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
        """Ask for deletion (finalizers and grace may delay it). With `uid` or `resource_version`, only that very object
        or version, else Conflict. Raises NotFound.
        """
        options = _delete_options(uid, resource_version, grace_period_seconds, propagation_policy)
        await self._call("DELETE", resource.path(namespace, name), body=options)

    async def evict(
        self, namespace: str, name: str, *, uid: str | None = None, grace_period_seconds: int | None = None
    ) -> None:
        """Delete a pod if its PodDisruptionBudgets allow it, else raise TooManyRequests at once.

        https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, None, grace_period_seconds, None),
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        await self._call("POST", path, body=eviction, wait_out=False)

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
        """One watch stream from a resourceVersion on, with bookmarks, until the server ends it. A Reflector does more.

        The first event is a BOOKMARK of that version: the server has accepted.
        Raises Gone when the version is too old, Unreachable when the stream is cut or silent for `read_deadline`
        seconds (bookmarks come about once a minute). With the type PartialObjectMetadata, the server sends metadata
        only.
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
        request = f"WATCH {path}"
        access = await self._credentials.access()
        headers = {"Accept": _METADATA if type is PartialObjectMetadata else _JSON}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=read_deadline)
        try:
            async with self._session.get(
                self._url(path, query),
                headers=headers | _authorization(access.authorization),
                ssl=access.ssl or True,
                server_hostname=access.server_hostname,
                timeout=timeout,
            ) as response:
                if response.status != 200:
                    raise self._refusal(response, await response.read(), request)
                yield WatchEvent("BOOKMARK", None, resource_version)
                try:
                    async for line in _lines(response.content):
                        yield _event(line, type, request)
                except _Truncated:
                    raise Unreachable(f"{request}: the stream ended in the middle of an event") from None
                finally:
                    # One who leaves early doesn't wait for a TLS farewell.
                    if response.connection is not None and response.connection.transport is not None:
                        response.connection.transport.abort()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{request}: {_cause(error)}") from error

    async def _write(
        self,
        method: str,
        path: str,
        body: object,
        type: type[T],
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> T:
        answer = await self._call(method, path, query, body, content_type)
        return _decode(answer, type, f"{method} {path}")

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = _JSON,
        *,
        accept: str = _JSON,
        wait_out: bool = True,
    ) -> bytes:
        """The body of a 2xx answer."""
        request = f"{method} {path}"
        url = self._url(path, query)
        content = None if body is None else msgspec.json.encode(body)
        deadline = self._timeout
        if method != "GET" and self._seconds_left is not None:
            deadline = min(deadline, self._seconds_left())
            self._check_lead(request)
        try:
            async with asyncio.timeout(deadline) as limit, self._slots:
                renewed = False
                while True:
                    try:
                        return await self._send(method, url, content, content_type, accept, request)
                    except Unauthorized:
                        if renewed:
                            raise
                        renewed = True
                        self._credentials.invalidate()
                    except _Later as later:
                        # A crowd that was turned away together must not come back together.
                        wait = later.seconds + self._rng.uniform(0.0, 0.5)
                        left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
                        if not wait_out or wait >= left:
                            raise later.error from None
                        await self._sleep(wait)
        except TimeoutError:
            raise Unreachable(f"{request}: no answer within {deadline:g} s") from None

    async def _send(
        self, method: str, url: URL, content: bytes | None, content_type: str, accept: str, request: str
    ) -> bytes:
        access = await self._credentials.access()
        body = None
        if content is not None:
            body = _Body(content, content_type, functools.partial(self._check_lead, request))
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers={"Accept": accept} | _authorization(access.authorization),
                ssl=access.ssl or True,
                server_hostname=access.server_hostname,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
                if 200 <= response.status < 300:
                    return answer
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error.__cause__, LeadershipLost):
                raise error.__cause__ from None
            raise Unreachable(f"{request}: {_cause(error)}") from error
        refusal = self._refusal(response, answer, request)
        after = _retry_after(response)
        if after is not None and (response.status == 429 or (response.status >= 500 and method == "GET")):
            raise _Later(refusal, after)
        raise refusal

    def _check_lead(self, request: str) -> None:
        if self._seconds_left is not None and self._seconds_left() <= 0:
            raise LeadershipLost(f"{request}: not sent, the lease is not held")

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        given = {name: value for name, value in (query or {}).items() if value}
        return URL(f"{self._credentials.server}{path}{'?' if given else ''}{urlencode(given)}", encoded=True)

    def _refusal(self, response: aiohttp.ClientResponse, body: bytes, request: str) -> ApiError:
        try:
            status = _decoder(_Status).decode(body)
        except UNREADABLE:
            status = _Status(message=body[:_LONGEST_MESSAGE].decode(errors="replace").strip())
        message = status.message
        if response.status == 401:
            message = f"{message or 'not let in'} (credentials: {self._credentials.source})"
        return api_error(
            response.status,
            status.reason,
            message,
            status.details,
            request=request,
            retry_after=_retry_after(response),
        )


class _Later(Exception):
    """The server asks to come again in so many seconds, if there is time."""

    def __init__(self, error: ApiError, seconds: float) -> None:
        super().__init__(error, seconds)
        self.error = error
        self.seconds = seconds


class _Truncated(Exception):
    """The stream ended without a line's end."""


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length, as fast as they come."""
    rest: list[bytes] = []
    async for chunk in content.iter_any():
        lines = chunk.split(b"\n")
        if len(lines) > 1:
            rest.append(lines[0])
            lines[0] = b"".join(rest)
            rest = []
        rest.append(lines.pop())
        for line in lines:
            if line:
                yield line
    if any(rest):
        raise _Truncated


def _cause(error: Exception) -> str:
    """What went wrong, without aiohttp's own objects in it."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(cause) or cause.__class__.__name__


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() and len(value) < 9 else None


def _authorization(value: str | None) -> dict[str, str]:
    return {} if value is None else {"Authorization": value}


def _place(resource: Resource, manifest: Manifest) -> tuple[str | None, str]:
    """Namespace and name of a manifest to write."""
    metadata = manifest.get("metadata") or {}
    namespace = metadata.get("namespace") if resource.namespaced else None
    if resource.namespaced and not namespace:
        raise ValueError(f"a {resource.kind} to write needs metadata.namespace")
    return namespace, metadata.get("name") or ""


def _delete_options(
    uid: str | None, resource_version: str | None, grace_period_seconds: int | None, propagation_policy: str | None
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


def _decode(body: bytes | msgspec.Raw, type: type[T], request: str) -> T:
    wanted: Any = type
    try:
        item: T = _decoder(wanted).decode(body)
    except UNREADABLE as error:
        raise Malformed(f"{request}: the answer is not what the API promises: {error}") from None
    return item


def _page(body: bytes, type: Any, request: str, resource: Resource, *, first: bool) -> tuple[Page[Any], str]:
    """One page and the continue token of the next. An object that doesn't decode is told apart from the others."""
    malformed: dict[Key, Malformed] = {}
    try:
        answer = _decoder(_of(_Items, type)).decode(body)
        items = answer.items or []
    except msgspec.ValidationError:
        answer = _decode(body, _of(_Items, msgspec.Raw), request)
        items = []
        for raw in answer.items or []:
            try:
                items.append(_decode(raw, type, request))
            except Malformed as fault:
                malformed[_key(raw, request)] = fault
    except UNREADABLE as error:
        raise Malformed(f"{request}: the answer is not what the API promises: {error}") from None
    if type is dict:
        for item in items:  # the items of built-in lists don't say what they are
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
    return Page(items, answer.metadata.resource_version, malformed, first), answer.metadata.continue_


def _event(line: bytes, type: Any, request: str) -> WatchEvent[Any]:
    """Raises ApiError for an ERROR event."""
    malformed: Malformed | None = None
    # The two kinds whose object isn't one of the resource; the server writes the type first.
    if line[:18].find(b"BOOKMARK") < 0 and line[:18].find(b"ERROR") < 0:
        try:
            event = _decoder(_of(_Line, type)).decode(line)
            if event.type not in ("BOOKMARK", "ERROR"):
                item = msgspec.convert(event.object, _Envelope) if type is dict else event.object
                return WatchEvent(event.type, event.object, item.metadata.resource_version)
        except UNREADABLE as error:
            malformed = Malformed(f"{request}: an object is not what the API promises: {error}")
    raw = _decode(line, _of(_Line, msgspec.Raw), request)
    if raw.type == "ERROR":
        status = _decode(raw.object, _Status, request)
        raise api_error(status.code, status.reason, status.message, status.details, request=request)
    meta = _decode(raw.object, _Envelope, request).metadata
    if raw.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", None, meta.resource_version)
    fault = malformed or Malformed(f"{request}: an object is not what the API promises")
    return WatchEvent(raw.type, None, meta.resource_version, (Key(meta.namespace, meta.name), fault))


def _key(raw: msgspec.Raw, request: str) -> Key:
    meta = _decode(raw, _Envelope, request).metadata
    return Key(meta.namespace, meta.name)
