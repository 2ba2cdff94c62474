"""The cache that a reflector fills: records by namespace and name, named indexes, subscribers.

Reads are plain dictionary look-ups and hand out the shared records themselves: never change what
you get. Only a reflector writes. Knows nothing of HTTP.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, ValuesView

    from sidecars.kube.errors import Malformed

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Key(NamedTuple):
    """Namespace (empty for cluster-scoped objects) and name."""

    namespace: str
    name: str


class Identity(NamedTuple):
    """What distinguishes an object, and its version, from others."""

    key: Key
    uid: str
    resource_version: str


def identity(item: Any) -> Identity:
    """Return the identity of a record (with `.metadata`) or a Manifest. Raises KeyError or
    AttributeError without a name.
    """
    if isinstance(item, dict):
        meta = item["metadata"]
        key = Key(meta.get("namespace") or "", meta["name"])
        return Identity(key, meta.get("uid") or "", meta.get("resourceVersion") or "")
    meta = item.metadata
    return Identity(Key(meta.namespace, meta.name), meta.uid, meta.resource_version)


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One change of the cache. ADDED has only `new`, DELETED only `old` (its last known state),
    MODIFIED both.
    """

    kind: Literal["ADDED", "MODIFIED", "DELETED"]
    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        """The newest state: `new`, or `old` of a deleted object."""
        item = self.new if self.new is not None else self.old
        assert item is not None, "an event has old, new or both"  # noqa: S101 - states an invariant of this class
        return item


class _Index(Generic[T]):
    """Objects by the values that a function finds in them."""

    def __init__(self, values: Callable[[T], Iterable[Hashable]]) -> None:
        self._values = values
        self._entries: dict[Hashable, dict[Key, T]] = {}

    def replace(self, key: Key, old: T | None, new: T | None) -> None:
        if old is not None:
            for value in self._values(old):
                entry = self._entries.get(value)
                if entry is not None:
                    entry.pop(key, None)
                    if not entry:
                        del self._entries[value]
        if new is not None:
            for value in self._values(new):
                self._entries.setdefault(value, {})[key] = new

    def get(self, value: Hashable) -> list[T]:
        return list(self._entries.get(value, {}).values())


class Store(Generic[T]):
    """Objects of one resource. Use from the event loop's thread only."""

    def __init__(self) -> None:
        self._items: dict[Key, T] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._handlers: list[Callable[[Event[T]], None]] = []
        self.malformed: dict[Key, Malformed] = {}
        """Objects whose newest state couldn't be decoded: `get` still gives their last good state,
        if any.
        """

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._items

    def get(self, namespace: str | None, name: str) -> T | None:
        """Return the object, or None when it isn't in the cache. A cluster-scoped one has the
        namespace None or ''.
        """
        return self._items.get(Key(namespace or "", name))

    def values(self) -> ValuesView[T]:
        """Return all objects, in no order. A live view: copy it before awaiting."""
        return self._items.values()

    def by(self, index: str, value: Hashable) -> list[T]:
        """Return the objects for which the index's function gave that value, in no order. KeyError
        for an unknown index.
        """
        return self._indexes[index].get(value)

    def add_index(self, name: str, values: Callable[[T], Iterable[Hashable]]) -> None:
        """Index by what `values` gives for an object: none, one or several values. It must be pure
        and not raise.
        """
        if name in self._indexes:
            raise ValueError(f"the index {name!r} exists already")
        index = _Index(values)
        for key, item in self._items.items():
            index.replace(key, None, item)
        self._indexes[name] = index

    def subscribe(self, handler: Callable[[Event[T]], None]) -> None:
        """Call `handler` synchronously after each change, and at once with ADDED for every object
        in the cache.

        A handler maps the event to keys of a queue and returns. One that raises is logged; the
        others, and the cache, are not affected.
        """
        self._handlers.append(handler)
        for item in list(self._items.values()):
            self._call(handler, Event("ADDED", None, item))

    # For the reflector.

    def put(self, item: T) -> None:
        """Take in the newest state. The same version again is no event; another uid is a DELETED
        and an ADDED.
        """
        key, uid, version = identity(item)
        self.malformed.pop(key, None)
        old = self._items.get(key)
        if old is not None:
            was = identity(old)
            if was.uid == uid and was.resource_version == version and version:
                return
            if was.uid != uid:
                self.discard(key)
                old = None
        self._items[key] = item
        self._changed(key, Event("ADDED" if old is None else "MODIFIED", old, item))

    def discard(self, key: Key, last: T | None = None) -> None:
        """Forget the object; `last` is its final state if known. No event if it wasn't there."""
        self.malformed.pop(key, None)
        old = self._items.pop(key, None)
        if old is None:
            return
        for index in self._indexes.values():
            index.replace(key, old, None)
        self._emit(Event("DELETED", old if last is None else last, None))

    def mark_malformed(self, key: Key, error: Malformed) -> None:
        """Record that the object exists, but that its newest state can't be decoded. No event
        follows.
        """
        if key not in self.malformed:
            _log.warning("%s/%s: %s", key.namespace, key.name, error)
        self.malformed[key] = error

    def known(self) -> list[Key]:
        """Return the keys of all objects that exist, malformed ones included."""
        return [*self._items, *(key for key in self.malformed if key not in self._items)]

    def _changed(self, key: Key, event: Event[T]) -> None:
        for index in self._indexes.values():
            index.replace(key, event.old, event.new)
        self._emit(event)

    def _emit(self, event: Event[T]) -> None:
        for handler in self._handlers:
            self._call(handler, event)

    @staticmethod
    def _call(handler: Callable[[Event[T]], None], event: Event[T]) -> None:
        try:
            handler(event)
        except Exception:  # noqa: BLE001 - a handler must not stop the cache
            _log.exception("a handler failed on %s of %s", event.kind, identity(event.object).key)
