"""The work queue: each key once, never twice at the same time, back-off per key; in virtual
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.kube import WorkQueue, run_workers
from tests.support.virtual_time import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def workers(
    queue: WorkQueue[str],
    handler: Callable[[str], Awaitable[float | None]],
    concurrency: int = 4,
    group: Callable[[str], str] | None = None,
) -> AsyncIterator[None]:
    task = asyncio.create_task(run_workers(queue, handler, concurrency, group=group))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_key_added_often_is_taken_once() -> None:
    queue = WorkQueue[str]()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_in_work_comes_again_after_done() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    key = await queue.get()
    queue.add(key)
    queue.add(key)
    assert len(queue) == 0
    queue.done(key)
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_done_of_a_key_that_is_not_in_work_is_an_error() -> None:
    with pytest.raises(ValueError, match="'a' is not in work"):
        WorkQueue[str]().done("a")


async def test_of_several_delays_the_earliest_counts() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    start = now()
    assert await queue.get() == "a"
    assert now() - start == 3
    queue.done("a")
    await asyncio.sleep(20)
    assert len(queue) == 0


async def test_retries_wait_longer_each_time_until_forgotten() -> None:
    queue = WorkQueue[str](base_delay=1, max_delay=16, rng=random.Random(1))  # noqa: S311 - spreads retries
    delays = [queue.retry("a") for _ in range(8)]
    assert all(
        0.5 <= delay / want <= 1
        for delay, want in zip(delays, [1, 2, 4, 8, 16, 16, 16, 16], strict=True)
    )
    queue.forget("a")
    assert queue.retry("a") <= 1


async def test_many_failing_keys_share_a_rate() -> None:
    queue = WorkQueue[int](base_delay=0.01, retry_rate=10, retry_burst=100)
    delays = [queue.retry(key) for key in range(200)]
    assert max(delays[:100]) <= 0.11
    assert 9.9 <= delays[-1] <= 10.1


async def test_a_cancelled_getter_loses_no_key() -> None:
    queue = WorkQueue[str]()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "a"


async def test_workers_never_handle_a_key_twice_at_the_same_time() -> None:
    queue = WorkQueue[str]()
    in_work: set[str] = set()
    most = 0

    async def handle(key: str) -> None:
        nonlocal most
        assert key not in in_work
        in_work.add(key)
        most = max(most, len(in_work))
        await asyncio.sleep(0.9)
        in_work.remove(key)

    async with workers(queue, handle, concurrency=3):
        for _ in range(20):
            for key in "abcde":
                queue.add(key)
            await asyncio.sleep(0.3)
        await asyncio.sleep(10)
    assert most == 3


async def test_a_failing_key_is_retried_and_hinders_no_other() -> None:
    queue = WorkQueue[str](base_delay=1)
    handled: list[str] = []

    async def handle(key: str) -> None:
        handled.append(key)
        if key == "bad" and handled.count("bad") < 3:
            raise RuntimeError("no")

    async with workers(queue, handle, concurrency=1):
        queue.add("bad")
        queue.add("good")
        await asyncio.sleep(10)
    assert handled == ["bad", "good", "bad", "bad"]
    assert queue.retry("bad") <= 1, "the back-off is reset"


@pytest.mark.parametrize("seconds", [0.9, 60.0])
async def test_never_more_handlers_than_allowed_run_at_once(seconds: float) -> None:
    queue = WorkQueue[str]()
    running = most = 0

    async def handle(_: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(seconds)
        running -= 1

    async with workers(queue, handle, concurrency=2):
        for key in "abcde":
            queue.add(key)
        await asyncio.sleep(2.5 * seconds)
        assert (most, running, len(queue)) == (2, 1, 0)


async def test_handlers_that_hang_delay_no_key_of_another_group_and_are_never_doubled() -> None:
    queue = WorkQueue[str]()
    began: dict[str, float] = {}

    async def handle(key: str) -> None:
        assert key not in began
        began[key] = now()
        if not key.startswith("sound"):
            await asyncio.sleep(60)

    async with workers(queue, handle, concurrency=2, group=lambda key: key.partition("/")[0]):
        for key in (
            "bad/a",
            "bad/b",
            "bad/c",
            "worse/a",
            "worse/b",
            "worse/c",
            "sound/a",
            "sound/b",
            "bad/a",
        ):
            queue.add(key)
        await asyncio.sleep(50)
    assert began == dict.fromkeys(
        ["bad/a", "bad/b", "worse/a", "worse/b", "sound/a", "sound/b"], began["bad/a"]
    )


async def test_groups_take_turns() -> None:
    queue = WorkQueue[str]()
    handled: list[str] = []

    async def handle(key: str) -> None:
        handled.append(key)

    for key in ("a1", "a2", "a3", "b1", "c1"):
        queue.add(key)
    async with workers(queue, handle, concurrency=1, group=lambda key: key[0]):
        await asyncio.sleep(1)
    assert handled == ["a1", "b1", "c1", "a2", "a3"]


async def test_a_handler_can_ask_to_be_called_again() -> None:
    queue = WorkQueue[str]()
    times: list[float] = []

    async def handle(key: str) -> float:
        times.append(now())
        return 5.0

    async with workers(queue, handle):
        queue.add("a")
        await asyncio.sleep(12)
    assert [round(time - times[0]) for time in times] == [0, 5, 10]


async def test_failures_are_reported_to_the_callback() -> None:
    queue = WorkQueue[str](base_delay=1)
    reported: list[tuple[str, str]] = []

    async def handle(key: str) -> None:
        raise RuntimeError("no")

    def failed(key: str, error: Exception, delay: float) -> None:
        reported.append((key, str(error)))

    task = asyncio.create_task(run_workers(queue, handle, 1, failed=failed))
    queue.add("a")
    await asyncio.sleep(0.1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert reported == [("a", "no")]


keys = st.sampled_from(["x/a", "x/b", "x/c", "y/a", "y/b"])
steps = st.one_of(
    st.tuples(st.sampled_from(["add", "retry", "get", "done"]), keys, st.none()),
    st.tuples(st.just("add_after"), keys, st.sampled_from([0.1, 1.0, 5.0])),
    st.tuples(st.just("wait"), st.none(), st.sampled_from([0.1, 1.0, 20.0])),
)


def group_of(key: str) -> str:
    return key[0]


async def play(limit: int, script: list[tuple[str, str, float]]) -> None:
    queue = WorkQueue[str](base_delay=1, max_delay=8)
    queue.limit(limit, group_of)
    owed: set[str] = set()
    in_work: set[str] = set()

    async def take() -> str | None:
        try:
            async with asyncio.timeout(0):
                return await queue.get()
        except TimeoutError:
            return None

    for step, key, seconds in script:
        if step == "add":
            queue.add(key)
        if step == "retry":
            queue.retry(key)
        if step == "add_after":
            queue.add_after(key, seconds)
        if step in ("add", "retry", "add_after"):
            owed.add(key)
        if step == "wait":
            await asyncio.sleep(seconds)
        if step == "get" and (taken := await take()) is not None:
            assert taken not in in_work, "a key is never in work twice"
            assert taken in owed, "a key is never taken unasked"
            in_work.add(taken)
            owed.discard(taken)
            assert [group_of(key) for key in in_work].count(group_of(taken)) <= limit, (
                "a group keeps to its limit"
            )
        if step == "done" and key in in_work:
            in_work.remove(key)
            queue.done(key)
    for key in in_work:
        queue.done(key)
    await asyncio.sleep(20)
    left: set[str] = set()
    while len(queue):
        taken = await queue.get()
        queue.done(taken)
        left.add(taken)
    assert owed <= left, "a key that was added is taken afterwards"


@given(st.integers(1, 3), st.lists(steps, max_size=40))
def test_any_order_of_calls_loses_no_key_and_doubles_none(
    limit: int, script: list[tuple[str, str, float]]
) -> None:
    run(play(limit, script))
