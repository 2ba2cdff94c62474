"""Requests with impatient callers, in virtual time."""

import asyncio

import pytest

from sidecars.slurm.errors import NotYet, SlurmError, Unreachable
from sidecars.slurm.pending import CACHE_FOR, LATE_FOR, PATIENCE, CachedRead, PendingRequest

pytestmark = pytest.mark.looptime


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Source:
    """Something to read that takes `seconds`; it counts the reads, and the late notifications."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.reads = 0
        self.late = 0
        self.fault: SlurmError | None = None

    async def read(self, former: int | None) -> int:
        await asyncio.sleep(self.seconds)
        self.reads += 1
        if self.fault is not None:
            raise self.fault
        return self.reads

    def notify(self) -> None:
        self.late += 1

    def cached(self) -> CachedRead[int]:
        return CachedRead("GET it/", self.read, loop_time, self.notify)


async def test_a_quick_answer_is_returned_and_nobody_is_notified() -> None:
    source = Source(PATIENCE - 0.1)
    request = PendingRequest("GET it/", source.read(None), loop_time, source.notify)
    assert await request.outcome() == 1
    assert request.ended
    assert source.late == 0


async def test_a_caller_leaves_after_a_while_and_is_notified_at_the_end() -> None:
    source = Source(10)
    request = PendingRequest("GET it/", source.read(None), loop_time, source.notify)
    with pytest.raises(NotYet):
        await request.outcome()
    assert loop_time() == pytest.approx(PATIENCE)
    await asyncio.sleep(10)
    assert source.late == 1
    assert await request.outcome() == 1


async def test_a_fault_is_the_outcome() -> None:
    source = Source(1)
    source.fault = Unreachable("GET it/", "no answer")
    with pytest.raises(Unreachable, match="no answer"):
        await PendingRequest("GET it/", source.read(None), loop_time, source.notify).outcome()


async def test_closing_a_request_fails_it_for_its_callers_without_a_notification() -> None:
    source = Source(1)
    request = PendingRequest("GET it/", source.read(None), loop_time, source.notify)
    waiting = asyncio.create_task(request.outcome())
    await asyncio.sleep(0.5)
    await request.close()
    with pytest.raises(Unreachable, match="shutting down"):
        await waiting
    assert source.late == 0


async def test_callers_share_one_read_and_its_answer_is_recent_for_a_second() -> None:
    source = Source(0.1)
    cached = source.cached()
    first, second = await asyncio.gather(cached.get(), cached.get())
    assert first is second
    assert cached.recent(changed_at=0) is first
    assert cached.recent(changed_at=0.05) is None, "something has changed since"
    assert cached.recent(0, since=0.05) is None, "it was asked for too early"
    await asyncio.sleep(CACHE_FOR)
    assert cached.recent(changed_at=0) is None


async def test_a_late_answer_stays_recent_for_longer_although_something_has_changed() -> None:
    cached = Source(5).cached()
    with pytest.raises(NotYet):
        await cached.get()
    await asyncio.sleep(5)
    late = cached.recent(changed_at=4)
    assert late is not None
    assert (late.value, late.asked_at) == (1, 0)
    await asyncio.sleep(LATE_FOR)
    assert cached.recent(changed_at=4) is None
