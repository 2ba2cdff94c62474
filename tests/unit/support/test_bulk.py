"""Many requests at once: in order, bounded, and a failure is raised."""

import asyncio
from functools import partial

import pytest

from tests.support.bulk import AT_ONCE, each
from tests.support.virtual_time import run


def test_results_are_in_the_order_of_the_steps_whatever_ends_first() -> None:
    async def step(number: int) -> int:
        await asyncio.sleep(10 - number)
        return number

    assert run(each(partial(step, number) for number in range(10))) == list(range(10))


def test_a_bounded_number_of_requests_is_under_way() -> None:
    under_way = 0
    most = 0

    async def step() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1)
        under_way -= 1

    run(each(step for _ in range(3 * AT_ONCE)))
    assert most == AT_ONCE


def test_a_failure_is_raised() -> None:
    async def step() -> None:
        raise OSError("refused")

    with pytest.raises(ExceptionGroup) as failure:
        run(each([step]))
    assert failure.group_contains(OSError, match="refused")
