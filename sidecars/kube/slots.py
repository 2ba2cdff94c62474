"""How many requests are sent at once, and which of them wait. Knows nothing of HTTP; time is the event loop's."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE = 5.0
"""Seconds that a background request waits for the others to end, before it is sent beside them."""
_BACKGROUND_SHARE = 8


class _Waiter(NamedTuple):
    since: float
    turn: asyncio.Future[None]


class Slots:
    """At most `concurrency` requests at once. Ordinary requests get their slots in the order in which they ask.

    Background requests use slots that nobody else wants: they wait while an ordinary request waits or is sent. Without
    any, an eighth of the slots (at least one) is theirs, so that the next ordinary request finds a free one.
    They always end: one that has waited for `PATIENCE` seconds is sent beside the ordinary requests, but only one
    at a time. They keep their own order.
    """

    def __init__(self, concurrency: int) -> None:
        self._free = asyncio.Semaphore(concurrency)
        self._most_background = max(1, concurrency // _BACKGROUND_SHARE)
        self._ordinary = 0  # that wait or are sent
        self._background = 0  # that are sent
        self._waiting: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def slot(self, *, background: bool = False) -> AsyncIterator[None]:
        """Wait for a slot, and occupy it while the block runs."""
        if background:
            await self._wait_for_turn()
        else:
            self._ordinary += 1
        try:
            async with self._free:
                yield
        finally:
            if background:
                self._background -= 1
            else:
                self._ordinary -= 1
            self._admit()

    async def _wait_for_turn(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.time(), loop.create_future())
        self._waiting.append(waiter)
        self._admit()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.cancelled():
                with contextlib.suppress(ValueError):  # passed over already
                    self._waiting.remove(waiter)
            else:
                self._background -= 1  # the turn came, and is passed on
            self._admit()
            raise

    def _admit(self) -> None:
        """Let those background requests proceed that may."""
        while self._waiting and self._may_proceed(self._waiting[0]):
            turn = self._waiting.popleft().turn
            if not turn.cancelled():  # its task may not know yet that it was cancelled
                self._background += 1
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and not self._background:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._waiting[0].since + PATIENCE, self._admit)

    def _may_proceed(self, waiter: _Waiter) -> bool:
        if not self._ordinary:
            return self._background < self._most_background
        return not self._background and asyncio.get_running_loop().time() >= waiter.since + PATIENCE
