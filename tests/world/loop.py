"""Virtual time: an event loop whose clock stands still while there is work and jumps when there is none.

Nothing here waits for the outside, so this is less, and much quicker, than looptime, which the other tests use.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Nothing is left that could ever happen."""


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits for something that nobody will do")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time starts at 0 and passes only by timers."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it in a virtual loop of its own, which ends with it; what other tests set as the current loop stays."""
    loop = VirtualLoop()
    try:
        result: T = loop.run_until_complete(main)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    return result
