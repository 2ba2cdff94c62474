"""A work queue of keys: each key at most once in it, and at most once in work, with delays and back-off.

The semantics are those of client-go's workqueue: a key that is added while it is in work comes again after `done`.
Time is the event loop's. Knows nothing of Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

HELD_FOR = 1.0
"""Seconds after which a handler gives its turn away: it waits for something, and other keys must not wait with it."""

_log = logging.getLogger(__name__)
K = TypeVar("K", bound="Hashable")


class WorkQueue(Generic[K]):
    """Use from one event loop only.

    `retry` waits base_delay seconds, doubled for each try in a row up to max_delay, less up to half of it by chance;
    and over all keys at most retry_rate retries per second, after a burst of retry_burst, so that a thousand
    failing keys don't become a storm.
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
        self._waiting: deque[K] = deque()
        self._since: dict[K, float] = {}
        self._again: dict[K, None] = {}
        self._in_work: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self.adds = 0
        """Keys that entered the queue so far."""
        self.retries = 0
        """Calls of `retry` so far."""

    def __len__(self) -> int:
        """Keys that wait to be taken; not those in work or delayed."""
        return len(self._waiting)

    def oldest(self) -> float:
        """Seconds for which the head of the queue has waited; 0.0 when it is empty."""
        return asyncio.get_running_loop().time() - self._since[self._waiting[0]] if self._waiting else 0.0

    def add(self, key: K) -> None:
        """Put the key in, unless it waits already. One that is in work comes again after `done`."""
        if key in self._in_work:
            self._again[key] = None
        elif key not in self._since:
            self._since[key] = asyncio.get_running_loop().time()
            self._waiting.append(key)
            self.adds += 1
            self._wake()

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
        self.retries += 1
        delay = min(self._base_delay * 2.0 ** min(tries, 60), self._max_delay) * self._rng.uniform(0.5, 1.0)
        now = asyncio.get_running_loop().time()
        self._next_retry = max(self._next_retry, now - self._retry_burst * self._retry_gap) + self._retry_gap
        delay = max(delay, self._next_retry - now)
        self.add_after(key, delay)
        return delay

    def failures(self, key: K) -> int:
        """Retries since the last `forget`."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Start the key's back-off anew. It stays queued or delayed if it is."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key and take it into work; call `done` with it afterwards, whatever happened."""
        while not self._waiting:
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
        key = self._waiting.popleft()
        del self._since[key]
        self._in_work.add(key)
        return key

    def done(self, key: K) -> None:
        """The key is no longer in work. ValueError for one that wasn't."""
        if key not in self._in_work:
            raise ValueError(f"{key!r} is not in work")
        self._in_work.remove(key)
        if key in self._again:
            del self._again[key]
            self.add(key)

    def _due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _wake(self) -> None:
        while self._waiting and self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


async def run_workers(
    queue: WorkQueue[K],
    handler: Callable[[K], Awaitable[float | None]],
    concurrency: int,
    *,
    failed: Callable[[K, Exception, float], None] | None = None,
) -> None:
    """Call `handler` with each key, never twice at once with the same, until cancelled. `concurrency` are at work at a
    time; one that takes longer than `HELD_FOR` goes on, and counts no more.

    A handler that returns ends the key's back-off; a number asks for the key again in so many seconds. One that raises
    has its key retried, and `failed(key, error, seconds until then)` is called (without it, the error is logged).
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

    async def work() -> None:
        while True:
            task = tasks.create_task(handle(await queue.get()))
            await asyncio.wait({task}, timeout=HELD_FOR)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work())
