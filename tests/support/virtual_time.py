"""Virtual time: an event loop whose clock stands still while tasks can run, and jumps to the next
timer otherwise.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

import looptime

T = TypeVar("T")


class Deadlock(RuntimeError):
    """No task can ever run again."""


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits for something that nobody will do")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time starts at 0 and passes only by timers. Sockets are never looked at."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds since the loop was created."""
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, in a VirtualLoop: for code that waits for nothing outside of this process.

    The loop that other tests have set as the current one stays.
    """
    return _run(VirtualLoop(), main)


def run_with_sockets(main: Coroutine[Any, Any, T]) -> T:
    """As `run`, for code that uses sockets, too. Slower."""
    return _run(looptime.new_event_loop(idle_timeout=5), main)


def _run(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    try:
        result: T = loop.run_until_complete(main)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    return result
