"""Reads objects as `kubectl get` does, but without a process: tests look all the time, beside what
they look at.
"""

import asyncio
import http.client
import json
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from sidecars.kube import load_credentials

_SECONDS = 60
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ReadError(Exception):
    """The API server has refused, or not answered. The text is kubectl's."""


class Look(NamedTuple):
    """What to read: one object, or all of a kind."""

    kind: str
    name: str = ""
    namespace: str = "default"
    selector: str = ""


def look_of(words: Sequence[str]) -> Look | None:
    """The arguments of `kubectl get`; None for others than a kind, a name, `-n` and `-l`."""
    options = {"-n": "default", "-l": ""}
    rest, left = [], iter(words)
    for word in left:
        if word in options:
            options[word] = next(left, "")
        else:
            rest.append(word)
    if any(word.startswith("-") or set(word) & {"/", ","} for word in rest) or len(rest) not in (
        1,
        2,
    ):
        return None
    return Look(rest[0], rest[1] if len(rest) == 2 else "", options["-n"], options["-l"])


class _Kind(NamedTuple):
    path: str
    resource: str
    namespaced: bool


@dataclass
class Reader:
    """The cluster of a kubeconfig. Connections are kept until it is gone, and each is used by one
    thread at a time.
    """

    kubeconfig: Path
    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _free: list[http.client.HTTPSConnection] = field(default_factory=list)

    def __post_init__(self) -> None:
        weakref.finalize(self, _close, self._free)
        credentials = load_credentials(self.kubeconfig)
        self._server = urlsplit(credentials.server)
        # The caller may be in an event loop.
        with ThreadPoolExecutor(1) as thread:
            self._access = thread.submit(lambda: asyncio.run(credentials.access())).result()

    def read(self, look: Look) -> Any:
        """The object, or the list of the objects. Raises ReadError."""
        kind = look.kind.lower()
        if kind not in self._kinds:
            self._kinds = dict(self._served())
        if kind not in self._kinds:
            raise ReadError(f"error: the server doesn't have a resource type {look.kind!r}")
        path, resource, namespaced = self._kinds[kind]
        parts = [
            path,
            *(("namespaces", look.namespace) if namespaced else ()),
            resource,
            *filter(None, [look.name]),
        ]
        query = f"?{urlencode({'labelSelector': look.selector})}" if look.selector else ""
        found = self._get("/".join(parts) + query)
        for item in found.get("items", (found,)):
            # The items of a list don't say what they are.
            item |= {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
            item["metadata"].pop("managedFields", None)
        return found

    def _served(self) -> Iterator[tuple[str, _Kind]]:
        """Each kind under each of its names, the preferred one of a name last."""
        groups = [
            group for path in ("/api", "/apis") for group in self._get(path, _DISCOVERY)["items"]
        ]
        for item in reversed(groups):
            group = item["metadata"].get("name", "")
            for version in reversed(item["versions"]):
                path = (
                    f"/apis/{group}/{version['version']}" if group else f"/api/{version['version']}"
                )
                for it in version["resources"]:
                    kind = _Kind(path, it["resource"], it["scope"] == "Namespaced")
                    names = [
                        it["resource"],
                        it.get("singularResource", ""),
                        it["responseKind"]["kind"].lower(),
                    ]
                    for name in filter(None, (*names, *it.get("shortNames", ()))):
                        yield name, kind
                        yield f"{name}.{group}", kind

    def _get(self, path: str, accept: str = "application/json") -> Any:
        headers = {"Accept": accept}
        if self._access.authorization:
            headers["Authorization"] = self._access.authorization
        try:
            response, body = self._answer(path, headers)
        except (OSError, http.client.HTTPException) as error:
            raise ReadError(f"GET {path}: {type(error).__name__}: {error}") from error
        if response.status == 200:
            return json.loads(body)
        try:
            status = json.loads(body)
            raise ReadError(f"Error from server ({status['reason']}): {status['message']}")
        except (ValueError, KeyError, TypeError):
            # As for a kind whose definition has been deleted: 404 Not Found, in plain text.
            reason = response.reason.replace(" ", "")
            raise ReadError(f"Error from server ({reason}): GET {path}: {body[:300]!r}") from None

    def _answer(self, path: str, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        while (kept := self._kept()) is not None:
            try:
                return self._asked(kept, path, headers)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):
                # An API server that was restarted since has closed it. To read again changes
                # nothing.
                continue
        host, port = self._server.hostname or "", self._server.port
        fresh = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=self._access.ssl)
        return self._asked(fresh, path, headers)

    def _kept(self) -> http.client.HTTPSConnection | None:
        try:
            return self._free.pop()
        except IndexError:
            return None

    def _asked(
        self, connection: http.client.HTTPSConnection, path: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer, once all of it has been read; then the connection is free. It is closed after
        an error.
        """
        with ExitStack() as closing:
            closing.callback(connection.close)
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read()
            closing.pop_all()
        self._free.append(connection)
        return response, body


def _close(connections: list[http.client.HTTPSConnection]) -> None:
    while connections:
        connections.pop().close()
