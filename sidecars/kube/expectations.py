"""Which of a controller's own creates and deletes its cache hasn't shown yet.

A controller that decides by a cache that lags behind its own writes would create twice. So it notes
what it is about to write, its watch handlers note what they see, and it decides again only when
both agree (as Kubernetes' own ReplicaSet controller does), or after `ttl`, because a watch event
can be missed for good.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

K = TypeVar("K", bound="Hashable")


@dataclass(slots=True)
class _Pending:
    since: float
    creations: int = 0
    deletions: set[str] = field(default_factory=set)


class Expectations(Generic[K]):
    """Creations by count, deletions by uid, per controller key. `clock` in seconds, monotonic."""

    def __init__(self, *, ttl: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl = ttl
        self._clock = clock
        self._pending: dict[K, _Pending] = {}

    def expect_creations(self, key: K, count: int) -> None:
        """Call before sending them; take back with `creation_observed` those that failed."""
        if count > 0:
            self._entry(key).creations += count

    def expect_deletions(self, key: K, uids: Iterable[str]) -> None:
        """Call before sending them; take back with `deletion_observed` those that failed."""
        uids = set(uids)
        if uids:
            self._entry(key).deletions |= uids

    def creation_observed(self, key: K) -> None:
        """Record that one object was added, or that its creation failed. More than expected is no
        harm.
        """
        pending = self._pending.get(key)
        if pending is not None:
            pending.creations = max(0, pending.creations - 1)
            self._settle(key, pending)

    def deletion_observed(self, key: K, uid: str) -> None:
        """Record that the object is gone or has its deletionTimestamp, or that its deletion
        failed.
        """
        pending = self._pending.get(key)
        if pending is not None:
            pending.deletions.discard(uid)
            self._settle(key, pending)

    def satisfied(self, key: K) -> bool:
        """Return whether nothing is outstanding, or for longer than `ttl`: the cache may be decided
        by.
        """
        return self.remaining(key) <= 0

    def remaining(self, key: K) -> float:
        """Return the seconds after which `satisfied` is true even if nothing more is seen, 0.0 when
        it is true. Look again then.
        """
        pending = self._pending.get(key)
        return 0.0 if pending is None else max(0.0, pending.since + self._ttl - self._clock())

    def forget(self, key: K) -> None:
        """Forget the expectations of a controller whose object is gone."""
        self._pending.pop(key, None)

    def _entry(self, key: K) -> _Pending:
        if self.satisfied(key):
            self._pending.pop(key, None)  # what outlived its ttl must not block later requests
        entry = self._pending.setdefault(key, _Pending(self._clock()))
        entry.since = self._clock()
        return entry

    def _settle(self, key: K, pending: _Pending) -> None:
        if not pending.creations and not pending.deletions:
            del self._pending[key]
