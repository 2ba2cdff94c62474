"""A work queue of keys: each key at most once in it, and at most once in work, with delays,
back-off and fairness.

The semantics are those of client-go's workqueue: a key that is added while it is in work comes
again after `done`. Time is the event loop's. Knows nothing of Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

_log = logging.getLogger(__name__)
K = TypeVar("K", bound="Hashable")


@dataclass(slots=True)
class _Group(Generic[K]):
    """The keys of one group."""

    name: Hashable
    waiting: deque[K] = field(default_factory=deque)
    in_work: int = 0


class WorkQueue(Generic[K]):
    """Use from one event loop only.

    `retry` waits base_delay seconds, doubled for each try in a row up to max_delay, less up to half
    of it by chance; and over all keys at most retry_rate retries per second, after a burst of
    retry_burst, so that a thousand failing keys don't become a storm.
    """

    def __init__(
        self,
        *,
        base_delay: float = 0.05,
        max_delay: float = 60.0,
        retry_rate: float = 50.0,
        retry_burst: int = 500,
        rng: random.Random | None = None,
    ) -> None:
        self._base_delay, self._max_delay = base_delay, max_delay
        self._retry_gap, self._retry_burst = 1 / retry_rate, retry_burst
        self._next_retry = float("-inf")
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._limit: int | None = None
        self._group_of: Callable[[K], Hashable] = _one_group
        self._groups: dict[Hashable, _Group[K]] = {}
        self._ready: dict[
            Hashable, None
        ] = {}  # groups with a key that may be taken, the next one first
        self._waiting: dict[K, None] = {}
        self._again: dict[K, None] = {}
        self._in_work: dict[K, _Group[K]] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Return the number of keys that wait to be taken, without those in work or delayed."""
        return len(self._waiting)

    def limit(self, limit: int, group: Callable[[K], Hashable] | None = None) -> None:
        """Have at most `limit` keys of one group in work, from now on. With `group` None, all keys
        are one group.

        Groups take turns, and within a group keys are taken in the order in which they were added.
        A key's group is asked for when the key is added.
        """
        self._limit, self._group_of = limit, group or _one_group
        waiting = list(self._waiting)
        self._groups = {
            each.name: _Group(each.name, in_work=each.in_work) for each in self._in_work.values()
        }
        self._in_work = {key: self._groups[each.name] for key, each in self._in_work.items()}
        self._ready.clear()
        for key in waiting:
            self._put(key)

    def add(self, key: K) -> None:
        """Put the key in, unless it waits already. One that is in work comes again after `done`."""
        if key in self._in_work:
            self._again[key] = None
        elif key not in self._waiting:
            self._waiting[key] = None
            self._put(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Put the key in after so many seconds. Of several delays of a key, the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    def retry(self, key: K) -> float:
        """Put the key in again after its back-off; the seconds until then."""
        tries = self._failures.get(key, 0)
        self._failures[key] = tries + 1
        delay = min(self._base_delay * 2.0 ** min(tries, 60), self._max_delay) * self._rng.uniform(
            0.5, 1.0
        )
        now = asyncio.get_running_loop().time()
        self._next_retry = (
            max(self._next_retry, now - self._retry_burst * self._retry_gap) + self._retry_gap
        )
        delay = max(delay, self._next_retry - now)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the key's back-off. It stays queued or delayed if it is."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key and take it into work; call `done` with it afterwards, whatever
        happened.
        """
        while not self._ready:
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()  # the wake-up was meant for whoever waits next
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        group = self._groups[next(iter(self._ready))]
        key = group.waiting.popleft()
        group.in_work += 1
        del self._ready[group.name]  # the other groups come first
        self._check(group)
        del self._waiting[key]
        self._in_work[key] = group
        return key

    def done(self, key: K) -> None:
        """Record that the work on the key has ended. Raises ValueError for a key that was not in
        work.
        """
        if key not in self._in_work:
            raise ValueError(f"{key!r} is not in work")
        group = self._in_work.pop(key)
        group.in_work -= 1
        if key in self._again:
            del self._again[key]
            self.add(key)
        self._check(group)

    def _due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _put(self, key: K) -> None:
        name = self._group_of(key)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(name)
        group.waiting.append(key)
        self._check(group)

    def _check(self, group: _Group[K]) -> None:
        """See whether a key of the group may be taken."""
        if not group.waiting and not group.in_work:
            self._groups.pop(group.name, None)
        elif group.waiting and (self._limit is None or group.in_work < self._limit):
            self._ready[group.name] = None
            self._wake()

    def _wake(self) -> None:
        while self._ready and self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


def _one_group(_: object) -> Hashable:
    return None


async def run_workers(
    queue: WorkQueue[K],
    handler: Callable[[K], Awaitable[float | None]],
    concurrency: int,
    *,
    group: Callable[[K], Hashable] | None = None,
    failed: Callable[[K, Exception, float], None] | None = None,
) -> None:
    """Call `handler` with each key, never twice at once with the same, until cancelled.

    At most `concurrency` keys of one group are handled at once, however long each takes; `group`
    None: of all keys. Keys that may wait for the same slow server belong into one group: no other
    group waits for them.

    A handler that returns ends the key's back-off; a number asks for the key again in so many
    seconds. One that raises has its key retried, and `failed(key, error, seconds until then)` is
    called (without it, the error is logged).
    """

    async def handle(key: K) -> None:
        try:
            again = await handler(key)
        except Exception as error:  # noqa: BLE001 - one key's failure is never another's
            delay = queue.retry(key)
            if failed is not None:
                failed(key, error, delay)
            else:
                _log.error("%s failed, next try in %.1f s", key, delay, exc_info=error)
        else:
            queue.forget(key)
            if again is not None:
                queue.add_after(key, again)
        finally:
            queue.done(key)

    queue.limit(concurrency, group)
    async with asyncio.TaskGroup() as tasks:
        while True:
            tasks.create_task(handle(await queue.get()))
