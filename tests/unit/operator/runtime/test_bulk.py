"""Many requests of one pass."""

import asyncio
from functools import partial

from sidecars.operator.runtime import bulk
from tests.support.virtual_time import run


def test_each_step_is_done_and_only_so_many_are_under_way_at_once() -> None:
    under_way: set[int] = set()
    most = 0

    async def step(number: int) -> int:
        nonlocal most
        under_way.add(number)
        most = max(most, len(under_way))
        await asyncio.sleep(1)
        under_way.remove(number)
        return number

    async def scenario() -> None:
        begun = asyncio.get_running_loop().time()
        assert await bulk.each(partial(step, number) for number in range(3 * bulk.AT_ONCE)) == [
            *range(3 * bulk.AT_ONCE)
        ]
        assert asyncio.get_running_loop().time() - begun == 3

    run(scenario())
    assert most == bulk.AT_ONCE


def test_a_step_that_fails_stops_no_other_and_its_error_is_handed_back_in_its_place() -> None:
    async def step(number: int) -> None:
        if number == 1:
            raise ValueError(number)

    async def scenario() -> None:
        first, second, third = await bulk.each(partial(step, number) for number in range(3))
        assert (first, third) == (None, None)
        assert isinstance(second, ValueError)

    run(scenario())


def test_nothing_to_do_is_done_at_once() -> None:
    assert run(bulk.each([])) == []


def test_once_it_is_to_stop_no_step_is_begun_and_those_under_way_are_waited_for() -> None:
    async def step(number: int) -> int:
        await asyncio.sleep(1)
        return number

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        steps = (partial(step, number) for number in range(5 * bulk.AT_ONCE))
        done = await bulk.each(steps, lambda: loop.time() - begun < 1.5)
        assert done == [*range(2 * bulk.AT_ONCE)]

    run(scenario())
