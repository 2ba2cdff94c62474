"""The many requests of one pass: a few at a time, because the operator's other requests must not
wait for them.

A pass may want to create thousands of pods. All at once they would fill the client's queue for
seconds, or for longer than a request may take.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 32
"""Requests of one pass that are under way together; half of what the client lets through."""

SLICE_SECONDS = 10.0
"""For how long a pass marks pods, deletes or creates them; the next one continues, after the status
was written.
"""

URGENT_SECONDS = 1.0
"""The same when something urgent has come up, like a cordon; even then every pass sends some
requests.
"""


def a_slice(now: Callable[[], float], is_urgent: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function for `each`: whether a pass that begins these requests now may begin another
    of them. `is_urgent`: something has come up meanwhile that must not wait for the whole slice.
    """
    start = now()

    def going_on() -> bool:
        limit = URGENT_SECONDS if is_urgent() else SLICE_SECONDS
        return 0 <= now() - start < limit

    return going_on


async def each(
    steps: Iterable[Callable[[], Awaitable[T]]], going_on: Callable[[], bool] = lambda: True
) -> list[T | Exception]:
    """Do every step, begun in this order, whatever becomes of the others; what each returned or
    raised, in order.

    Once `going_on` returns False, no further step begins: the answers are those of the first so
    many.
    """
    todo = list(steps)
    results: dict[int, T | Exception] = {}
    numbered = iter(enumerate(todo))

    async def work() -> None:
        while going_on() and (following := next(numbered, None)) is not None:
            number, step = following
            try:
                results[number] = await step()
            except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it
                results[number] = error

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(AT_ONCE, len(todo))):
            workers.create_task(work())
    return [results[number] for number in range(len(results))]


async def all_of(
    steps: Sequence[Callable[[], Awaitable[None]]], going_on: Callable[[], bool] = lambda: True
) -> bool:
    """Do every step while `going_on` returns True, then raise the first failure. Returns whether
    all were begun.
    """
    results = await each(steps, going_on)
    for result in results:
        if result is not None:
            raise result
    return len(results) == len(steps)
