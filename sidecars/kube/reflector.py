"""Keeps a store equal to what the API server stores: list, watch, and recovery from every way in
which a watch ends.

See https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes.
What is missed while no watch runs is found by the next list: objects that are gone then are DELETED
to the store's subscribers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from sidecars.kube.errors import (
    ApiError,
    Forbidden,
    Gone,
    KubeError,
    Malformed,
    NotFound,
    TooManyRequests,
)
from sidecars.kube.namespaces import is_leaving
from sidecars.kube.store import Key, Store, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from sidecars.kube.client import Client
    from sidecars.kube.resources import Resource
    from sidecars.kube.responses import WatchEvent
    from sidecars.objects import Manifest

_log = logging.getLogger(__name__)
T = TypeVar("T")
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_HEALTHY = 10.0
"""Seconds that a stream must have lived to reset the back-off."""


class Reflector(Generic[T]):
    """The objects of one resource, in all namespaces or in the given ones, in `store`."""

    @overload
    def __init__(
        self: Reflector[Manifest],
        client: Client,
        resource: Resource,
        *,
        namespaces: Sequence[str] | None = None,
        label_selector: str = "",
        field_selector: str = "",
        served: Callable[[], None] | None = None,
        rng: random.Random | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespaces: Sequence[str] | None = None,
        type: type[T],
        label_selector: str = "",
        field_selector: str = "",
        served: Callable[[], None] | None = None,
        rng: random.Random | None = None,
    ) -> None: ...
    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespaces: Sequence[str] | None = None,
        type: type[Any] = dict,
        label_selector: str = "",
        field_selector: str = "",
        served: Callable[[], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`namespaces` None: all.

        With the type PartialObjectMetadata, the server sends no contents. With `served`,
        the API server may lack the kind: the store is empty meanwhile, and `served` is called when
        the API server begins to serve the kind.
        """
        self.store: Store[T] = Store()
        self.resource = resource
        self.refused: dict[str, bool] = {}
        """Namespaces whose last list the API server refused, for want of rights: the store may lack
        objects of theirs. True: the namespace is being deleted or does not exist, and nothing of it
        is in the store.
        """
        rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        source = _Source(client, resource, type, label_selector, field_selector)
        scopes: Sequence[str | None] = (
            [None] if namespaces is None else list(dict.fromkeys(namespaces))
        )
        self._feeds = [
            _Feed(source, scope, self.store, self.refused, served, rng) for scope in scopes
        ]

    async def run(self) -> None:
        """List and watch until cancelled; survives every fault of the server and the network. Call
        once.
        """
        async with asyncio.TaskGroup() as feeds:
            for feed in self._feeds:
                feeds.create_task(feed.run())

    @property
    def served(self) -> bool:
        """Whether the API server has the kind, as far as is known."""
        return not any(feed.absent for feed in self._feeds)

    @property
    def fault(self) -> KubeError | None:
        """Why the store may lag behind at the moment; None while every watch is well."""
        return next((feed.fault for feed in self._feeds if feed.fault is not None), None)

    async def wait_synced(self, timeout: float) -> None:
        """Wait for the first complete list of each namespace, except of those that become
        `refused`.

        TimeoutError naming the resource and the last fault after `timeout` s.
        """
        try:
            async with asyncio.timeout(timeout):
                for feed in self._feeds:
                    await feed.answered.wait()
        except TimeoutError:
            reason = f": {self.fault}" if self.fault is not None else ""
            raise TimeoutError(
                f"no complete list of {self.resource.plural} within {timeout:g} s{reason}"
            ) from None


def _must_exist(item: object) -> bool:
    """Return whether an object can't be gone, although the API server doesn't serve its kind.

    A CRD is deleted after its objects, and an object with finalizers after it was marked as being
    deleted (https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/).
    """
    metadata = item["metadata"] if isinstance(item, dict) else {}
    return bool(metadata.get("finalizers")) and "deletionTimestamp" not in metadata


@dataclass(frozen=True, slots=True)
class _Source(Generic[T]):
    """What the API server is asked for."""

    client: Client
    resource: Resource
    type: type[T]
    label_selector: str
    field_selector: str


class _Feed(Generic[T]):
    """One list and watch, of one namespace or of all."""

    def __init__(
        self,
        source: _Source[T],
        namespace: str | None,
        store: Store[T],
        refused: dict[str, bool],
        served: Callable[[], None] | None,
        rng: random.Random,
    ) -> None:
        self._source, self._namespace, self._store = source, namespace, store
        self._client, self._resource = source.client, source.resource
        self._refused = refused
        self._served = served
        self._rng = rng
        self._version = ""
        self._failures = 0
        self._opened: float | None = None
        self._useful = False
        self.answered = asyncio.Event()
        """Set with the first complete list or refusal."""
        self.absent = False
        self.fault: KubeError | None = None

    async def run(self) -> None:
        while True:
            self._begin()
            fault: KubeError | None = None
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone as gone:
                fault, self._version = gone, ""
            except (ApiError, Malformed) as error:
                if isinstance(error, NotFound) and self._served is not None:
                    self._lacking()
                    await self._pause(None)
                    continue
                if isinstance(error, Forbidden) and self._namespace is not None:
                    self._version = ""
                    self._refused[self._namespace] = await is_leaving(self._client, self._namespace)
                    self.answered.set()
                    if self._refused[self._namespace]:
                        self._empty()
                        await self._pause(None)
                        continue
                fault = error
                if self._opened is not None:
                    # The stream reported it, and from the same version on it would report it again.
                    self._version = ""
            except KubeError as error:
                fault = error
            # How a stream that lived ends, silence of a quiet resource included, is no sign of how
            # the next one ends.
            if fault is not None and not self._lived:
                self._failed(fault)
            await self._pause(fault)

    def _begin(self) -> None:
        self._opened = None
        self._useful = False

    async def _list(self) -> None:
        """Take in a complete list. Until it is complete, nothing of it counts as gone."""
        listed: set[Key] = set()
        version = ""
        pages = self._client.pages(
            self._resource,
            self._namespace,
            self._source.type,
            label_selector=self._source.label_selector,
            field_selector=self._source.field_selector,
        )
        async for page in pages:
            if page.first:
                listed.clear()
            for item in page.items:
                self._store.put(item)
                listed.add(identity(item).key)
            for key, error in page.malformed.items():
                self._store.mark_malformed(key, error)
                listed.add(key)
            version = page.resource_version
        self._discard_all_but(listed)
        self._version = version
        self._permitted()
        self.answered.set()
        if self.absent:
            self.absent = False
            if self._served is not None:
                self._served()

    def _lacking(self) -> None:
        """Note that the API server doesn't know the kind."""
        self._permitted()
        if not self.absent:
            _log.info(
                "%s: the API server doesn't serve this kind; its CRD doesn't exist", self._what
            )
        self._empty(but={key for key in self._store.known() if _must_exist(self._store.get(*key))})
        self.absent = True

    def _empty(self, but: AbstractSet[Key] = frozenset()) -> None:
        """Count the objects as gone: the kind or the namespace does not exist, or the namespace is
        being deleted.
        """
        self._discard_all_but(but)
        self._version = ""
        self.fault = None
        self.answered.set()

    def _permitted(self) -> None:
        if self._namespace is not None:
            self._refused.pop(self._namespace, None)

    def _discard_all_but(self, kept: AbstractSet[Key]) -> None:
        for key in self._store.known():
            if key not in kept and self._namespace in (None, key.namespace):
                self._store.discard(key)

    async def _watch(self) -> None:
        stream = self._client.watch(
            self._resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._source.label_selector,
            field_selector=self._source.field_selector,
            # At random, so that the watches of many processes don't all end, and start, together.
            timeout_seconds=self._rng.randint(300, 600),
            type=self._source.type,
        )
        async with contextlib.aclosing(stream):
            async for event in stream:
                if self._opened is None:
                    self._opened = _now()
                    self._recovered()
                self._take(event)

    def _take(self, event: WatchEvent[T]) -> None:
        self._useful = self._useful or event.kind != "BOOKMARK"
        if event.malformed is not None:
            key, error = event.malformed
            if event.kind == "DELETED":
                self._store.discard(key)
            else:
                self._store.mark_malformed(key, error)
        elif event.object is not None:
            if event.kind == "DELETED":
                self._store.discard(identity(event.object).key, event.object)
            else:
                self._store.put(event.object)
        self._version = event.resource_version or self._version

    async def _pause(self, fault: KubeError | None) -> None:
        """Before the next request: hardly at all after a stream that lived, else longer each time.

        A stream that ended at once counts like a refusal, whatever its status was, unless it
        brought something.
        """
        if self._lived:
            self._failures = 0
        delay = min(
            _FIRST_DELAY * 2.0 ** min(self._failures, 30), _LONGEST_DELAY
        ) * self._rng.uniform(0.5, 1.0)
        if isinstance(fault, TooManyRequests) and fault.retry_after is not None:
            delay += fault.retry_after
        self._failures = max(0, self._failures - 1) if self._useful else self._failures + 1
        await asyncio.sleep(delay)

    @property
    def _lived(self) -> bool:
        return self._opened is not None and _now() - self._opened >= _HEALTHY

    def _failed(self, fault: KubeError) -> None:
        if self.fault is None:
            _log.warning("%s: the cache may lag behind: %s", self._what, fault)
        self.fault = fault

    def _recovered(self) -> None:
        if self.fault is not None:
            _log.info("%s: the cache follows again", self._what)
        self.fault = None

    @property
    def _what(self) -> str:
        return f"{self._resource.plural} of {self._namespace or 'all namespaces'}"


def _now() -> float:
    return asyncio.get_running_loop().time()
