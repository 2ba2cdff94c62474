"""A Kubernetes API server's double in this process: the model of `tests.support.world.api` behind
real HTTP, with faults by script.

Runs in the test's event loop, in virtual time too.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from aiohttp import web

from sidecars.kube import Credentials
from sidecars.kube.errors import ApiError
from tests.support.world.api import Api, Change, Place, Selector, event, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

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


class KubeDouble:
    """Use as an async context manager; then `credentials` reach it.

    `faults` are used up by reads (lists and watches), `write_faults` by writes, one each, in order;
    None is a healthy request. `always` applies to every read while it is set, and so does `body`:
    the answer as it stands. `closed`: the namespaces in which the user may change nothing, as
    access reviews answer. `webhook` looks at the body of each write: why it is refused, "" if it
    isn't.
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
        self.closed: set[str] = set()
        self.webhook: Callable[[Any], str] = lambda _: ""
        self._api = Api(time.time, _refusal)
        self._streams: set[asyncio.Task[Any]] = set()
        self._port = 0

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(
            web.Server(self._answer, handler_cancellation=True), shutdown_timeout=0.0
        )
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
        """Create or replace the object, whatever the rules are; as stored."""
        return self._api.put(resource.path(), copy.deepcopy(manifest))

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete the object at once; nothing if it doesn't exist."""
        self._api.remove(resource.path(), namespace, name)

    def objects(self, resource: Resource) -> dict[tuple[str, str], Manifest]:
        """What is stored, by namespace and name."""
        return {
            (item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
            for item in self._api.all(resource.path())
        }

    def compact(self) -> None:
        """Versions and continue tokens before this are too old."""
        self._api.compact()

    def end_streams(self) -> None:
        """End all watches, as the server does after timeoutSeconds."""
        for stream in list(self._streams):
            stream.cancel()

    def reads(self, resource: Resource) -> list[Call]:
        """The lists and watches of a resource so far."""
        return [
            call
            for call in self.calls
            if call.method == "GET" and call.path.endswith(f"/{resource.plural}")
        ]

    # The server.

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        query = dict(request.query)
        at = asyncio.get_running_loop().time()
        self.calls.append(
            Call(at, request.method, request.path, query, dict(request.headers), body)
        )
        if (
            self.token is not None
            and request.headers.get("Authorization") != f"Bearer {self.token}"
        ):
            return _status(401, "Unauthorized", "Unauthorized")
        if request.path.endswith("/selfsubjectaccessreviews"):
            return web.json_response(_review(body, self.closed), status=201)
        place = place_of(request.path)
        if place.namespace in self.closed and request.method != "GET":
            verb = {"POST": "create", "DELETE": "delete"}.get(request.method, "patch")
            return _status(
                403,
                "Forbidden",
                f'the user cannot {verb} resource "x" in the namespace "{place.namespace}"',
            )
        denied = self.webhook(body) if request.method != "GET" else ""
        if denied:
            return _status(403, "Forbidden", f'admission webhook "w" denied the request: {denied}')
        reads = request.method == "GET" and not place.name
        faults = self.faults if reads else self.write_faults
        fault = (self.always if reads else None) or (faults.popleft() if faults else None)
        if fault is not None and (reads or request.method != "GET"):
            refusal = await self._refuse(fault, request, watch="watch" in query)
            if refusal is not None:
                return refusal
        if request.method == "GET" and self.body is not None:
            return _json(self.body)
        if reads and "watch" in query:
            return await self._watch(request, place, int(query["resourceVersion"]), fault)
        if request.method == "DELETE":
            # No kubelet ends a pod here within its grace period.
            body = {**(body or {}), "gracePeriodSeconds": 0}
        try:
            if reads:
                return self._list(request, place, query)
            answer = self._api.handle(
                request.method, place, query, body, request.headers.get("Content-Type", "")
            )
        except ApiError as error:
            return _status(error.status, error.reason, error.message)
        return _json(answer, 201 if request.method == "POST" else 200)

    async def _refuse(
        self, fault: Fault, request: web.BaseRequest, *, watch: bool
    ) -> web.StreamResponse | None:
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

    def _list(self, request: web.BaseRequest, place: Place, query: dict[str, str]) -> web.Response:
        if "limit" in query:
            query = {**query, "limit": str(min(int(query["limit"]), self.page_limit))}
        metadata_only = _partial(request, "PartialObjectMetadataList")
        return _json(self._api.page(place, query, metadata_only=metadata_only))

    async def _watch(
        self, request: web.BaseRequest, place: Place, since: int, fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if fault == "gone" or since < self._api.compacted:
            await response.write(
                _line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
            )
        elif fault == "error":
            await response.write(
                _line("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError"})
            )
        elif fault == "bookmark":
            await response.write(_bookmark(since))
        elif fault == "silent":
            await asyncio.Event().wait()
        elif fault != "empty":
            task = asyncio.create_task(
                self._stream(request, response, place, since, cut=fault == "truncated")
            )
            self._streams.add(task)
            try:
                await asyncio.wait(
                    {task}, timeout=float(request.query.get("timeoutSeconds", "300"))
                )
            finally:
                self._streams.discard(task)
                task.cancel()
        return response

    async def _stream(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        place: Place,
        since: int,
        *,
        cut: bool,
    ) -> None:
        selector = Selector.of(place, request.query)
        metadata_only = _partial(request, "PartialObjectMetadata")
        changes: asyncio.Queue[Change] = asyncio.Queue()
        for change in self._api.changes(place.collection, since):
            changes.put_nowait(change)
        self._api.listeners.append(changes.put_nowait)
        try:
            while True:
                try:
                    async with asyncio.timeout(self.bookmark_seconds):
                        change = await changes.get()
                except TimeoutError:
                    if changes.empty():  # a bookmark promises that everything before it was sent
                        await response.write(_bookmark(self._api.version))
                    continue
                line = event(change, selector, metadata_only=metadata_only)
                if change.collection != place.collection or not line:
                    continue
                line += b"\n"
                await response.write(line[: len(line) // 2] if cut else line)
                if cut:
                    assert request.transport is not None
                    request.transport.abort()
                    return
        finally:
            self._api.listeners.remove(changes.put_nowait)


def _review(body: Any, closed: set[str]) -> Manifest:
    where = body["spec"]["resourceAttributes"]["namespace"]
    return {**body, "status": {"allowed": where not in closed}}


def _partial(request: web.BaseRequest, kind: str) -> bool:
    """Whether the request accepts the objects only in that form."""
    return request.headers.get("Accept") == f"application/json;as={kind};g=meta.k8s.io;v=v1"


def _refusal(_: Place, item: Manifest) -> str | None:
    annotations = item["metadata"].get("annotations") or {}
    if sum(map(len, itertools.chain(*annotations.items()))) <= MOST_ANNOTATIONS:
        return None
    return f"metadata.annotations: Too long: may not be more than {MOST_ANNOTATIONS}"


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _status(
    code: int, reason: str, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return web.json_response(body, status=code, headers=headers)


def _bookmark(version: int) -> bytes:
    return _line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def _line(kind: str, item: Any) -> bytes:
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"
