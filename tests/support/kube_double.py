"""A Kubernetes API server's double in this process: real HTTP, objects in memory, faults by script.

Serves any resource: list (paged), watch (with bookmarks), get, create, replace, patch, delete; lists and
watches as PartialObjectMetadata where the request accepts only that. It does what
controllers see of resourceVersion, uid, 409, 404 and 410; it validates and defaults nothing, and an apply is
a merge. Runs in the test's event loop, in virtual time too.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from aiohttp import web

from sidecars.kube import Credentials

if TYPE_CHECKING:
    from sidecars.kube import Manifest, Resource

Fault = Literal[
    "500",  # an error, at once
    "429",  # too many requests, come again in a second
    "410",  # HTTP 410, to a list or a watch
    "403",  # not allowed
    "404",  # the kind is not there
    "hang",  # no answer, ever
    "drop",  # the connection is closed instead of an answer
    "truncated",  # half an answer; of a watch, half an event
    "garbage",  # HTTP 200, no JSON
    "empty",  # a watch that ends at once
    "gone",  # 410 inside a watch
    "error",  # another error inside a watch
    "silent",  # a watch that delivers no further event
    "bookmark",  # a watch that ends after one bookmark
]
READ_FAULTS: tuple[Fault, ...] = (
    *("500", "429", "410", "hang", "drop", "truncated", "garbage"),
    *("empty", "gone", "error", "silent", "bookmark"),
)


MOST_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations of an object, with their keys."""


class Call(NamedTuple):
    """A request that came in, `at` seconds of the loop's clock."""

    at: float
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class _Change(NamedTuple):
    version: int
    kind: str
    item: Manifest


@dataclass
class _Collection:
    """The objects of one resource, and what happened to them."""

    items: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    history: list[_Change] = field(default_factory=list)


class _Path(NamedTuple):
    collection: str
    namespace: str
    name: str
    subresource: str


class KubeDouble:
    """Use as an async context manager; then `credentials` reach it.

    `faults` are used up by reads (lists and watches), `write_faults` by writes, one each, in order; None is a healthy
    request. `always` applies to every read while it is set, and so does `body`: the answer as it stands.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.faults: deque[Fault | None] = deque()
        self.write_faults: deque[Fault | None] = deque()
        self.always: Fault | None = None
        self.body: bytes | None = None
        self.page_limit = 10**9
        self.bookmark_seconds = 60.0
        self.token: str | None = None
        self._collections: dict[str, _Collection] = {}
        self._version = 1
        self._compacted = 0
        self._uids = 0
        self._pages: dict[str, tuple[int, list[Manifest]]] = {}
        self._changed: set[asyncio.Event] = set()
        self._streams: set[asyncio.Task[Any]] = set()
        self._port = 0

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._answer, handler_cancellation=True), shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.cancel()
        await self._runner.cleanup()

    @property
    def credentials(self) -> Credentials:
        """Plain HTTP, with `token` unless it is empty."""
        token = self.token.encode() if self.token else None
        return Credentials(server=f"http://127.0.0.1:{self._port}", source="double", token=token)

    # What a test does behind the API's back.

    def put(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Create or replace the object; as stored."""
        return self._store(resource.path(), copy.deepcopy(manifest))

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete the object at once; nothing if it doesn't exist."""
        self._drop(resource.path(), (namespace, name))

    def objects(self, resource: Resource) -> dict[tuple[str, str], Manifest]:
        """What is stored, by namespace and name."""
        return dict(self._collection(resource.path()).items)

    def compact(self) -> None:
        """Forget the continue tokens and the history: versions before this are too old for a new watch."""
        self._version += 1
        self._compacted = self._version
        self._pages.clear()

    def end_streams(self) -> None:
        """End all watches, as the server does after timeoutSeconds."""
        for stream in list(self._streams):
            stream.cancel()

    def reads(self, resource: Resource) -> list[Call]:
        """The lists and watches of a resource so far."""
        return [call for call in self.calls if call.method == "GET" and call.path.endswith(f"/{resource.plural}")]

    # The server.

    def _collection(self, path: str) -> _Collection:
        return self._collections.setdefault(path, _Collection())

    def _store(self, path: str, item: Manifest) -> Manifest:
        self._version += 1
        collection = self._collection(path)
        metadata = item.setdefault("metadata", {})
        key = (metadata.get("namespace") or "", metadata["name"])
        old = collection.items.get(key)
        if old is None:
            self._uids += 1
            metadata["uid"] = f"uid-{self._uids}"
        else:
            metadata["uid"] = old["metadata"]["uid"]
        metadata["resourceVersion"] = str(self._version)
        collection.items[key] = item
        self._record(collection, "ADDED" if old is None else "MODIFIED", item)
        return item

    def _drop(self, path: str, key: tuple[str, str]) -> None:
        collection = self._collection(path)
        item = collection.items.pop(key, None)
        if item is not None:
            self._version += 1
            last = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
            self._record(collection, "DELETED", last)

    def _record(self, collection: _Collection, kind: str, item: Manifest) -> None:
        collection.history.append(_Change(self._version, kind, item))
        for changed in self._changed:
            changed.set()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        query = dict(request.query)
        at = asyncio.get_running_loop().time()
        self.calls.append(Call(at, request.method, request.path, query, dict(request.headers), body))
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized", "Unauthorized")
        path = _parse(request.path)
        reads = request.method == "GET" and not path.name
        faults = self.faults if reads else self.write_faults
        fault = (self.always if reads else None) or (faults.popleft() if faults else None)
        if fault is not None and (reads or request.method != "GET"):
            refusal = await self._refuse(fault, request, watch="watch" in query)
            if refusal is not None:
                return refusal
        if request.method == "GET":
            if self.body is not None:
                return web.Response(body=self.body, content_type="application/json")
            if path.name:
                item = self._collection(path.collection).items.get((path.namespace, path.name))
                return web.json_response(item) if item is not None else _status(404, "NotFound", "not found")
            if "watch" in query:
                return await self._watch(request, path, int(query["resourceVersion"]), fault)
            return self._list(request, path, query)
        return self._write(request.method, path, body)

    async def _refuse(self, fault: Fault, request: web.BaseRequest, *, watch: bool) -> web.StreamResponse | None:
        """The faults that replace an answer."""
        if fault == "500":
            return _status(500, "InternalError", "etcdserver: no leader")
        if fault == "429":
            return _status(429, "TooManyRequests", "too many requests", {"Retry-After": "1"})
        if fault == "410":
            return _status(410, "Expired", "too old resource version")
        if fault == "403":
            return _status(403, "Forbidden", "the user cannot do this")
        if fault == "404":
            return _status(404, "NotFound", "the server could not find the requested resource")
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "drop":
            assert request.transport is not None
            request.transport.abort()
            await asyncio.Event().wait()
        if fault == "garbage":
            return web.Response(text="<html>gateway</html>\n")
        if fault == "truncated" and not watch:
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"metadata": {"resourceVersion": "1"}, "items": [')
            assert request.transport is not None
            request.transport.abort()
            return response
        return None

    def _list(self, request: web.BaseRequest, path: _Path, query: dict[str, str]) -> web.Response:
        token = query.get("continue")
        if token:
            if token not in self._pages:
                return _status(410, "Expired", "the provided continue parameter is too old")
            version, items = self._pages.pop(token)
        else:
            version, items = self._version, self._items(path)
        limit = min(int(query.get("limit") or 10**9), self.page_limit if "limit" in query else 10**9)
        metadata = {"resourceVersion": str(version)}
        if len(items) > limit:
            metadata["continue"] = f"{version}-{len(items) - limit}-{path.namespace}"
            self._pages[metadata["continue"]] = version, items[limit:]
        partial = _partial(request, "PartialObjectMetadataList")
        sent = [_without_contents(item) if partial else item for item in items[:limit]]
        return web.json_response({"kind": "List", "metadata": metadata, "items": sent})

    def _items(self, path: _Path) -> list[Manifest]:
        items = self._collection(path.collection).items
        return [item for (namespace, _), item in sorted(items.items()) if path.namespace in ("", namespace)]

    async def _watch(
        self, request: web.BaseRequest, path: _Path, since: int, fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if fault == "gone" or since < self._compacted:
            await response.write(_line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
        elif fault == "error":
            await response.write(_line("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError"}))
        elif fault == "bookmark":
            await response.write(_bookmark(since))
        elif fault == "silent":
            await asyncio.Event().wait()
        elif fault != "empty":
            task = asyncio.create_task(self._stream(request, response, path, since, cut=fault == "truncated"))
            self._streams.add(task)
            try:
                await asyncio.wait({task}, timeout=float(request.query.get("timeoutSeconds", "300")))
            finally:
                self._streams.discard(task)
                task.cancel()
        return response

    async def _stream(
        self, request: web.BaseRequest, response: web.StreamResponse, path: _Path, since: int, *, cut: bool
    ) -> None:
        partial = _partial(request, "PartialObjectMetadata")
        changed = asyncio.Event()
        self._changed.add(changed)
        try:
            while True:
                changed.clear()
                for change in list(self._collection(path.collection).history):
                    if change.version > since and path.namespace in ("", change.item["metadata"].get("namespace")):
                        line = _line(change.kind, _without_contents(change.item) if partial else change.item)
                        await response.write(line[: len(line) // 2] if cut else line)
                        if cut:
                            assert request.transport is not None
                            request.transport.abort()
                            return
                        since = change.version
                if changed.is_set():
                    continue
                try:
                    async with asyncio.timeout(self.bookmark_seconds):
                        await changed.wait()
                except TimeoutError:
                    if not changed.is_set():  # a bookmark promises that everything before it was sent
                        await response.write(_bookmark(self._version))
        finally:
            self._changed.discard(changed)

    def _write(self, method: str, path: _Path, body: Any) -> web.Response:
        collection, key = self._collection(path.collection), (path.namespace, path.name)
        old = collection.items.get(key)
        if method == "POST":
            if (path.namespace, body["metadata"]["name"]) in collection.items:
                return _status(409, "AlreadyExists", "already exists")
            return web.json_response(self._store(path.collection, body), status=201)
        if old is None:
            if method == "PATCH" and "kind" in body:
                return web.json_response(self._store(path.collection, body), status=201)
            return _status(404, "NotFound", "not found")
        if isinstance(body, list):
            try:
                new = operated(copy.deepcopy(old), body)
            except (KeyError, IndexError, ValueError) as error:
                return _status(422, "Invalid", f"the patch doesn't fit: {error}")
            if sum(map(len, itertools.chain(*new["metadata"].get("annotations", {}).items()))) > MOST_ANNOTATIONS:
                return _status(
                    422, "Invalid", f"metadata.annotations: Too long: may not be more than {MOST_ANNOTATIONS}"
                )
            return web.json_response(self._store(path.collection, new))
        wanted = (body or {}).get("preconditions", {}) if method == "DELETE" else _metadata(body)
        for name in ("uid", "resourceVersion"):
            if name in wanted and wanted[name] != old["metadata"][name]:
                return _status(409, "Conflict", f"{name} is {old['metadata'][name]}")
        if method == "DELETE":
            self._drop(path.collection, key)
            return _status(200, "", "")
        new = _merged(copy.deepcopy(old), body) if method == "PATCH" else body
        return web.json_response(self._store(path.collection, new))


def _partial(request: web.BaseRequest, kind: str) -> bool:
    """Whether the request accepts the objects only in that form."""
    return request.headers.get("Accept") == f"application/json;as={kind};g=meta.k8s.io;v=v1"


def _without_contents(item: Manifest) -> Manifest:
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": item["metadata"]}


def _metadata(body: Any) -> dict[str, Any]:
    return (body.get("metadata") or {}) if isinstance(body, dict) else {}


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = old if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def operated(item: Any, operations: list[Any]) -> Any:
    """RFC 6902: add, remove and test. Raises KeyError, IndexError or ValueError."""
    for operation in operations:
        *parents, last = (
            word.replace("~1", "/").replace("~0", "~") for word in operation["path"].removeprefix("/").split("/")
        )
        at = item
        for word in parents:
            at = at[int(word)] if isinstance(at, list) else at[word]
        where = len(at) if last == "-" else int(last) if isinstance(at, list) else last
        match operation["op"]:
            case "add" if isinstance(at, list):
                at.insert(where, operation["value"])
            case "add":
                at[where] = operation["value"]
            case "remove":
                del at[where]
            case "test" if at[where] != operation["value"]:
                raise ValueError(operation["path"])
    return item


def _parse(path: str) -> _Path:
    """/api/v1 or /apis/GROUP/VERSION, then [namespaces/NAMESPACE/]PLURAL[/NAME[/SUBRESOURCE]]."""
    parts = path.strip("/").split("/")
    prefix, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    rest += [""] * (3 - len(rest))
    return _Path("/" + "/".join([*prefix, rest[0]]), namespace, rest[1], rest[2])


def _status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)


def _bookmark(version: int) -> bytes:
    return _line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def _line(kind: str, item: Any) -> bytes:
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"
