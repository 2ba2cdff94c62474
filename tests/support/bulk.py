"""Many requests, a bounded number at a time, as the operator sends them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 32
"""Requests that are under way together."""


async def each(steps: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Do every step, begun in this order; what each returned, in order. Raises the first
    failure.
    """
    results: dict[int, T] = {}
    numbered = iter(enumerate(steps))

    async def work() -> None:
        for number, step in numbered:
            results[number] = await step()

    async with asyncio.TaskGroup() as workers:
        for _ in range(AT_ONCE):
            workers.create_task(work())
    return [results[number] for number in range(len(results))]
