"""Time passes by timers alone."""

import asyncio
import time

import pytest

from tests.support.virtual_time import Deadlock, run, run_with_sockets


async def an_hour() -> float:
    start = asyncio.get_running_loop().time()
    await asyncio.sleep(3600)
    return asyncio.get_running_loop().time() - start


def test_an_hour_of_sleep_is_an_hour_on_the_loop_and_none_outside() -> None:
    start = time.monotonic()
    assert run(an_hour()) == pytest.approx(3600)
    assert run_with_sockets(an_hour()) == pytest.approx(3600)
    assert time.monotonic() - start < 60


def test_a_task_that_nothing_can_wake_is_reported() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(forever())
