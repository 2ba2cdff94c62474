"""Reads on demand through a poller, in virtual time against a simulated Slurm."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from sidecars.simulate import Fault
from sidecars.slurm import protocol
from sidecars.slurm.errors import NotFound, NotYet, Refused, SlurmError, Unreachable
from sidecars.slurm.on_demand import JOBS_WITHIN
from sidecars.slurm.pending import PATIENCE
from sidecars.slurm.protocol import Request
from tests.unit.slurm.scene import Scene, failure, loop_time, show_time, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.looptime


async def test_jobs_are_read_when_asked_for_and_shared_for_a_second() -> None:
    async with Scene().running() as scene:
        await asyncio.sleep(5)
        assert scene.model.requests("GET", "jobs/") == []
        job = scene.model.job_start("n0")
        both = await asyncio.gather(scene.poller.jobs(), scene.poller.jobs())
        assert [[found.job_id for found in listed.value.jobs] for listed in both] == [[job], [job]]
        assert len(scene.model.requests("GET", "jobs/")) == 1


async def test_jobs_that_did_not_change_are_not_read_again_and_those_that_did_are() -> None:
    scene = Scene()
    scene.model.job_start("n0")
    await asyncio.sleep(3)
    first = (await scene.poller.jobs()).value.jobs
    await asyncio.sleep(3)
    assert (await scene.poller.jobs()).value.jobs is first
    scene.model.job_end(first[0].job_id)
    await asyncio.sleep(1)
    assert (await scene.poller.jobs()).value.jobs[0].states == {"COMPLETED"}


async def test_the_queue_is_read_at_most_once_a_second_and_is_the_same_while_no_job_changes() -> (
    None
):
    scene = Scene()
    job = scene.model.job_submit(cpus=3)
    await asyncio.sleep(3)
    first, again = await asyncio.gather(scene.poller.queue(), scene.poller.queue())
    assert len(scene.model.requests("GET", "jobs/")) == 1
    assert first.value is again.value
    (found,) = first.value.jobs
    assert found.pending is not None
    assert (found.job_id, found.pending.request.cpus) == (job, 3)
    await asyncio.sleep(1)
    assert (await scene.poller.queue()).value is first.value
    assert len(scene.model.requests("GET", "jobs/")) == 2
    scene.model.job_submit()
    await asyncio.sleep(1)
    assert len((await scene.poller.queue()).value.jobs) == 2


@pytest.mark.parametrize("read", ["jobs", "queue"])
async def test_jobs_are_read_in_full_after_the_clock_of_slurmctld_was_set_back(read: str) -> None:
    """Slurm reports no change of them until the time of the former answer has come again."""
    async with Scene().running() as scene:
        read_jobs = getattr(scene.poller, read)
        scene.model.job_start("n0")
        assert len((await read_jobs()).value.jobs) == 1
        before = scene.model.clock
        scene.model.clock = lambda: before() - 3600
        scene.model.restart()
        await asyncio.sleep(40)
        job = scene.model.job_start("n1")
        await asyncio.sleep(2)
        assert job in [found.job_id for found in (await read_jobs()).value.jobs]
        scene.model.calls.clear()
        await asyncio.sleep(2)
        await read_jobs()
        assert "update_time" in scene.model.requests("GET", "jobs/")[0].query, "once is enough"


@pytest.mark.parametrize("read", ["jobs", "queue"])
async def test_jobs_are_read_in_full_when_slurm_can_not_read_the_time_that_it_has_sent(
    read: str,
) -> None:
    async with Scene().running() as scene:
        read_jobs = getattr(scene.poller, read)
        show_time(scene.model, -5)
        for number in range(1, 4):
            job = scene.model.job_start("n0")
            await asyncio.sleep(2)
            found = (await read_jobs()).value.jobs
            assert [it.job_id for it in found][-1] == job
            assert len(found) == number


async def test_tens_of_thousands_of_jobs_delay_nobody_and_wake_their_reader_when_read() -> None:
    scene = Scene()
    job = scene.model.job_start("n0")
    scene.model.fail(Fault.SLOW, 1, seconds=100)
    began = loop_time()
    assert isinstance(await failure(scene.poller.jobs()), NotYet)
    assert loop_time() == began + PATIENCE
    # Who comes later doesn't wait at all.
    assert isinstance(await failure(scene.poller.jobs()), NotYet)
    assert loop_time() == began + PATIENCE
    await until(lambda: scene.received == [(set(), set())], 100)
    assert loop_time() >= began + 100
    listed = await scene.poller.jobs()
    assert ([found.job_id for found in listed.value.jobs], listed.asked_at) == ([job], began)
    assert len(scene.model.requests("GET", "jobs/")) == 1


async def test_a_reading_of_jobs_without_end_is_ended_and_its_readers_are_notified() -> None:
    scene = Scene()
    scene.model.fail(Fault.HANG, 1)
    assert isinstance(await failure(scene.poller.jobs()), NotYet)
    began = loop_time()
    await until(lambda: scene.received == [(set(), set())], JOBS_WITHIN)
    assert loop_time() <= began + JOBS_WITHIN
    assert (await scene.poller.jobs()).value.jobs == ()


async def test_jobs_that_are_a_moment_old_count_only_until_a_node_changes() -> None:
    scene = Scene()
    await scene.poller.poll()
    before = await scene.poller.jobs()
    await asyncio.sleep(0.2)
    scene.model.job_start("n1")
    await scene.poller.poll()
    assert scene.poller.changed_after(before.asked_at, scene.poller.nodes) == {"n1"}
    after = await scene.poller.jobs()
    assert [found.nodes for found in after.value.jobs] == ["n1"]
    assert scene.poller.changed_after(after.asked_at, scene.poller.nodes) == set()


async def test_a_read_of_jobs_that_began_before_a_node_changed_is_followed_by_another() -> None:
    async with Scene(2).running() as scene:
        scene.model.fail(Fault.SLOW, 1, path="jobs/", seconds=1.5)
        early = asyncio.create_task(scene.poller.jobs())
        await asyncio.sleep(0.1)
        job = scene.model.job_start("n1")
        await until(lambda: scene.poller.nodes["n1"].alloc_cpus > 0, 1.4)
        changed_at = loop_time()
        late = await scene.poller.jobs()
        assert ([found.job_id for found in late.value.jobs], late.asked_at >= changed_at) == (
            [job],
            True,
        )
        assert (await early).asked_at < changed_at


async def test_who_waits_for_jobs_when_the_poller_ends_is_notified() -> None:
    scene = Scene()
    scene.model.fail(Fault.HANG, 1)
    asking = asyncio.create_task(failure(scene.poller.jobs()))
    await asyncio.sleep(1)
    await scene.poller.close()
    assert isinstance(await asking, Unreachable)


async def test_a_fault_while_reading_jobs_is_the_askers() -> None:
    scene = Scene()
    scene.model.fail(Fault.TRUNCATED, 1)
    with pytest.raises(SlurmError):
        await scene.poller.jobs()
    assert (await scene.poller.jobs()).value.jobs == ()


async def test_reservations_are_read_when_asked_for() -> None:
    scene = Scene()
    scene.model.reserve("maint", "n[0-1]", start=2_000_000_000, minutes=1)
    (reservation,) = await scene.poller.reservations()
    assert (reservation.node_list, reservation.end_time) == ("n[0-1]", 2_000_000_060)
    await scene.poller.reservations()
    assert len(scene.model.requests("GET", "reservations/")) == 1


async def test_nobody_waits_for_reservations_or_partitions_either() -> None:
    scene = Scene()
    scene.model.reserve("maint", "n[0-1]", start=2_000_000_000, minutes=1)
    scene.model.fail(Fault.SLOW, 2, path="reservations/", seconds=14)
    scene.model.fail(Fault.SLOW, 2, path="partitions/", seconds=14)
    reads: tuple[Callable[[], Awaitable[object]], ...] = (
        scene.poller.reservations,
        lambda: scene.poller.partitions(0.0),
    )
    for number, read in enumerate(reads, 1):
        began = loop_time()
        assert isinstance(await failure(read()), NotYet)
        assert loop_time() == began + PATIENCE
        await until(lambda number=number: len(scene.received) == number, 14)  # type: ignore[misc]  # bound now
        at = loop_time()
        await read()
        assert loop_time() == at
    assert scene.received == [(set(), set())] * 2


async def test_partitions_are_as_they_were_at_the_time_asked_for_or_later() -> None:
    scene = Scene()
    await scene.poller.partitions(loop_time())
    await asyncio.sleep(0.5)
    await scene.poller.partitions(0.0)
    assert len(scene.model.requests("GET", "partitions/")) == 1
    await scene.poller.partitions(loop_time())
    assert len(scene.model.requests("GET", "partitions/")) == 2
    # A reading that has begun before is not enough, nor is one that came late.
    await asyncio.sleep(2)
    scene.model.fail(Fault.SLOW, 1, path="partitions/", seconds=1)
    early = asyncio.create_task(scene.poller.partitions(0.0))
    await asyncio.sleep(0.5)
    await scene.poller.partitions(loop_time())
    await early
    assert len(scene.model.requests("GET", "partitions/")) == 4


async def test_reservations_show_our_own_changes() -> None:
    scene = Scene()
    assert await scene.poller.reservations() == ()
    await asyncio.sleep(0.01)
    await scene.poller.reserve("maint", maintenance("n0"))
    assert [it.name for it in await scene.poller.reservations()] == ["maint"]
    await asyncio.sleep(0.01)
    await scene.poller.reserve("maint", protocol.delete_reservation("maint"))
    assert await scene.poller.reservations() == ()


def maintenance(*nodes: str) -> Request[None]:
    return protocol.save_reservation(
        "maint", start_time=2_000_000_000, minutes=1, nodes=nodes, users=["slurm"]
    )


async def test_a_slow_change_of_a_reservation_delays_nobody_and_is_answered_when_asked() -> None:
    scene = Scene()
    scene.model.fail(Fault.SLOW, 1, method="POST", seconds=14)
    began = loop_time()
    assert isinstance(await failure(scene.poller.reserve("maint", maintenance("n0"))), NotYet)
    assert loop_time() == began + PATIENCE
    # Meanwhile neither the same is sent again nor another one.
    assert isinstance(await failure(scene.poller.reserve("maint", maintenance("n0"))), NotYet)
    assert isinstance(await failure(scene.poller.reserve("maint", maintenance("n1"))), NotYet)
    await until(lambda: bool(scene.received), 14)
    await scene.poller.reserve("maint", maintenance("n0"))
    assert len(scene.model.requests("POST")) == 1
    await scene.poller.reserve("maint", maintenance("n0"))
    assert len(scene.model.requests("POST")) == 2


async def test_a_refusal_that_comes_late_is_the_answer_to_the_next_request_alone() -> None:
    scene = Scene()
    for again in (maintenance("nosuch"), maintenance("n0")):
        scene.model.fail(Fault.SLOW, 1, method="POST", seconds=14)
        assert isinstance(
            await failure(scene.poller.reserve("maint", maintenance("nosuch"))), NotYet
        )
        await until(lambda: bool(scene.received), 14)
        scene.received.clear()
        if again == maintenance("nosuch"):
            assert isinstance(await failure(scene.poller.reserve("maint", again)), Refused)
        else:
            await scene.poller.reserve("maint", again)
    scene.model.fail(Fault.SLOW, 1, method="DELETE", seconds=14)
    delete = protocol.delete_reservation("maint")
    assert isinstance(await failure(scene.poller.reserve("maint", delete)), NotYet)
    await asyncio.sleep(60)
    # Too long ago to say anything of now.
    assert isinstance(await failure(scene.poller.reserve("maint", delete)), NotFound)


async def test_who_waits_for_a_reservation_when_the_poller_ends_is_notified() -> None:
    scene = Scene()
    scene.model.fail(Fault.HANG, 1)
    asking = asyncio.create_task(failure(scene.poller.reserve("maint", maintenance("n0"))))
    await asyncio.sleep(1)
    await scene.poller.close()
    assert isinstance(await asking, Unreachable)
