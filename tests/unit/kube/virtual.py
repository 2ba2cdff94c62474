"""Runs a coroutine in virtual time, for tests that need a loop per example."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import looptime

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, but leaves alone the loop that pytest-asyncio has set for this thread."""
    loop = looptime.new_event_loop(idle_timeout=5)
    try:
        result: T = loop.run_until_complete(main)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    return result
