"""Slots of requests: the order, the bound, and what background requests wait for; in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.kube.slots import PATIENCE, Slots
from tests.support.virtual_time import run

pytestmark = pytest.mark.looptime


class Requests:
    """Requests that occupy a slot for some seconds; their names in the order in which they were sent, and when."""

    def __init__(self, concurrency: int) -> None:
        self.slots = Slots(concurrency)
        self.sent: list[tuple[str, float]] = []
        self.under_way: set[str] = set()

    async def send(self, name: str, seconds: float, *, background: bool = False) -> None:
        async with self.slots.slot(background=background):
            self.sent.append((name, asyncio.get_running_loop().time()))
            self.under_way.add(name)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.under_way.remove(name)

    def start(self, name: str, seconds: float = 1.0, *, background: bool = False) -> asyncio.Task[None]:
        return asyncio.create_task(self.send(name, seconds, background=background))


async def end(*tasks: asyncio.Task[None]) -> None:
    await asyncio.gather(*tasks)


async def test_ordinary_requests_are_sent_in_order_and_never_too_many_at_once() -> None:
    requests = Requests(2)
    await end(*(requests.start(name) for name in "abcde"))
    assert requests.sent == [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2)]


async def test_a_background_request_waits_until_no_other_is_under_way() -> None:
    requests = Requests(16)
    first = requests.start("ordinary", 3)
    await asyncio.sleep(1)
    await end(first, requests.start("background", background=True))
    assert requests.sent == [("ordinary", 0), ("background", 3)]


async def test_background_requests_alone_leave_slots_for_the_next_ordinary_request() -> None:
    requests = Requests(16)
    background = [requests.start(f"b{number}", background=True) for number in range(5)]
    await asyncio.sleep(0.5)
    assert requests.under_way == {"b0", "b1"}
    await end(*background, requests.start("ordinary", 0.1))
    assert requests.sent == [("b0", 0), ("b1", 0), ("ordinary", 0.5), ("b2", 1), ("b3", 1), ("b4", 2)]


async def test_background_requests_whose_patience_ends_are_sent_one_at_a_time() -> None:
    requests = Requests(16)
    hanging = [requests.start(f"o{number}", 60) for number in range(4)]
    await end(*(requests.start(f"b{number}", 2, background=True) for number in range(3)))
    background = [(name, when) for name, when in requests.sent if name.startswith("b")]
    assert background == [("b0", PATIENCE), ("b1", PATIENCE + 2), ("b2", PATIENCE + 4)]
    await end(*hanging)


async def test_a_background_request_whose_patience_ends_takes_its_place_among_those_that_wait_for_a_slot() -> None:
    requests = Requests(2)
    others = [requests.start("first", 0.5)]
    background = requests.start("background", background=True)
    for number in range(30):  # always more than slots
        others += [requests.start(f"o{number}"), requests.start(f"p{number}")]
        await asyncio.sleep(0.5)
    await end(background, *others)
    order = [name for name, _ in requests.sent]
    # Of those that had asked for a slot by then, the last.
    assert order[: order.index("background")][-2:] == ["o9", "p9"]


async def test_a_background_request_that_is_given_up_takes_no_turn() -> None:
    requests = Requests(8)
    first = requests.start("first", 2, background=True)
    given_up = requests.start("given up", background=True)
    last = requests.start("last", background=True)
    await asyncio.sleep(1)
    given_up.cancel()
    await end(first, last)
    assert [name for name, _ in requests.sent] == ["first", "last"]


async def test_a_background_request_cancelled_as_its_turn_comes_passes_it_on() -> None:
    requests = Requests(8)
    async with requests.slots.slot():
        cancelled = requests.start("cancelled", background=True)
        following = requests.start("following", background=True)
        await asyncio.sleep(1)
    cancelled.cancel()  # its turn has come, and it doesn't know yet
    await end(following)
    assert cancelled.cancelled()
    assert requests.sent == [("following", 1)]


async def test_a_background_request_cancelled_just_before_a_turn_came_free_disturbs_no_other() -> None:
    requests = Requests(8)
    async with requests.slots.slot():
        cancelled = requests.start("cancelled", background=True)
        following = [requests.start(f"following {number}", background=True) for number in range(2)]
        await asyncio.sleep(1)
        cancelled.cancel()  # it doesn't know yet when the turn comes free
    await end(*following)
    assert cancelled.cancelled()
    assert requests.sent == [("following 0", 1), ("following 1", 2)]
    async with requests.slots.slot():
        await end(requests.start("patient", background=True))
    assert requests.sent[-1] == ("patient", 3 + PATIENCE)


steps = st.tuples(
    st.booleans(), st.sampled_from([0.0, 0.1, 3.0, 20.0]), st.sampled_from([0.0, 0.1, 2.0]), st.booleans()
)


async def play(concurrency: int, script: list[tuple[bool, float, float, bool]]) -> None:
    requests = Requests(concurrency)
    tasks = []
    for number, (background, seconds, pause, given_up) in enumerate(script):
        tasks.append(requests.start(f"{'b' if background else 'o'}{number}", seconds, background=background))
        await asyncio.sleep(pause)
        assert len(requests.under_way) <= concurrency
        sent = [name for name in requests.under_way if name.startswith("b")]
        assert len(sent) <= max(1, concurrency // 8)
        if given_up:
            tasks[-1].cancel()
    await asyncio.wait(tasks, timeout=(len(script) + 1) * (20.0 + PATIENCE))
    assert all(task.done() for task in tasks), "no request waits for ever"


@given(st.sampled_from([1, 2, 16]), st.lists(steps, min_size=1, max_size=30))
def test_in_any_order_of_requests_none_is_forgotten(
    concurrency: int, script: list[tuple[bool, float, float, bool]]
) -> None:
    run(play(concurrency, script))
