"""Leader election in virtual time: one leads, nobody writes after its deadline, and a dead leader
is replaced soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sidecars.kube import (
    CONFIG_MAPS,
    LEASES,
    Client,
    Election,
    LeadershipLost,
    Periods,
    Time,
    run_until_lost,
    status_of,
)

if TYPE_CHECKING:
    from tests.support.kube_double import KubeDouble

pytestmark = pytest.mark.looptime
DURATION = 15


def now() -> float:
    return asyncio.get_running_loop().time()


class Candidate:
    """An election whose clock continues while its process is frozen, and what it did."""

    def __init__(self, client: Client, identity: str) -> None:
        self.ahead = 0.0
        self.election = Election(
            client,
            "ns",
            "lock",
            identity,
            periods=Periods(lease_duration=DURATION),
            time=Time(clock=lambda: now() + self.ahead),
        )
        self.led: list[float] = []
        self.finish = asyncio.Event()
        self.task = asyncio.create_task(self.election.run(self.lead))

    async def lead(self) -> None:
        self.led.append(now())
        await self.finish.wait()


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def holder(server: KubeDouble) -> str:
    spec = server.objects(LEASES)["ns", "lock"]["spec"]
    return str(spec["holderIdentity"])


async def test_the_first_candidate_leads_and_renews(server: KubeDouble, client: Client) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(1)
    assert one.election.leading
    assert holder(server) == "one"
    for _ in range(100):
        await asyncio.sleep(1)
        assert 7 < one.election.left() <= 10
    await end(one.task)


@pytest.mark.parametrize("rest", [{}, {"spec": {}}])
async def test_a_lease_that_nobody_has_had_is_taken(
    server: KubeDouble, client: Client, rest: dict[str, dict[str, str]]
) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock", "namespace": "ns"},
    }
    await client.create(LEASES, lease | rest)
    one = Candidate(client, "one")
    await asyncio.sleep(1)
    assert one.election.leading
    assert holder(server) == "one"
    await end(one.task)


async def test_a_second_candidate_waits(server: KubeDouble, client: Client) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(1)
    two = Candidate(client, "two")
    await asyncio.sleep(300)
    assert one.election.leading
    assert not two.election.leading
    assert two.led == []
    assert two.election.deadline == float("-inf")
    await end(one.task)
    await end(two.task)


async def test_a_leader_that_stops_releases_and_another_takes_over_at_once(
    server: KubeDouble, client: Client
) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(1)
    two = Candidate(client, "two")
    await asyncio.sleep(5)
    await end(one.task)
    assert not one.election.leading
    assert holder(server) == ""
    stopped = now()
    await asyncio.sleep(3)
    assert two.election.leading
    assert two.led[0] - stopped < 2
    assert server.objects(LEASES)["ns", "lock"]["spec"]["leaseTransitions"] == 1
    await end(two.task)


async def test_work_that_ends_by_itself_ends_the_election(
    server: KubeDouble, client: Client
) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(1)
    one.finish.set()
    await asyncio.wait_for(one.task, 1)
    assert holder(server) == ""


async def test_work_that_fails_ends_the_election_with_its_error(
    server: KubeDouble, client: Client
) -> None:
    async def lead() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await Election(client, "ns", "lock", "one", time=Time(clock=now)).run(lead)
    assert holder(server) == ""


async def test_a_dead_leader_is_replaced_within_the_lease_duration_and_two_seconds(
    server: KubeDouble, client: Client
) -> None:
    server.put(
        LEASES,
        {
            "metadata": {"namespace": "ns", "name": "lock", "labels": {"kept": "yes"}},
            "spec": {
                "holderIdentity": "dead",
                "leaseDurationSeconds": DURATION,
                "leaseTransitions": 4,
            },
        },
    )
    start = now()
    two = Candidate(client, "two")
    await asyncio.sleep(DURATION + 5)
    assert DURATION <= two.led[0] - start <= DURATION + 2
    lease = server.objects(LEASES)["ns", "lock"]
    assert lease["spec"]["leaseTransitions"] == 5
    assert lease["metadata"]["labels"] == {"kept": "yes"}
    await end(two.task)


async def test_a_leader_that_cannot_renew_ends_before_another_may_lead(
    server: KubeDouble, client: Client
) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(5)
    server.write_faults.extend(["500"] * 100)
    with pytest.raises(LeadershipLost, match="no renewal of the lease within 10 s"):
        await asyncio.wait_for(one.task, 12)
    assert not one.election.leading
    assert holder(server) == "one"


async def test_a_server_that_hangs_does_not_keep_a_leader_beyond_its_deadline(
    server: KubeDouble, client: Client
) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(5)
    server.write_faults.extend(["hang"] * 100)
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(one.task, 12)


async def test_a_short_outage_costs_no_leadership(server: KubeDouble, client: Client) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(5)
    server.write_faults.extend(["500", "drop", "429"])
    await asyncio.sleep(60)
    assert one.election.leading
    assert len(one.led) == 1
    await end(one.task)


async def test_a_renewal_whose_answer_was_lost_is_recognised_as_ones_own(
    server: KubeDouble, client: Client
) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(5)
    lease = server.objects(LEASES)["ns", "lock"]
    server.put(LEASES, lease)  # another version, the same holder
    await asyncio.sleep(30)
    assert one.election.leading
    await end(one.task)


async def test_a_leader_whose_lease_was_taken_stops_at_once(
    server: KubeDouble, client: Client
) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(5)
    lease = server.objects(LEASES)["ns", "lock"]
    server.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
    with pytest.raises(LeadershipLost, match="the lease is held by two"):
        await asyncio.wait_for(one.task, 3)
    assert holder(server) == "two"


async def test_a_frozen_leader_writes_nothing_when_it_wakes(
    server: KubeDouble, client: Client
) -> None:
    one = Candidate(client, "one")
    await asyncio.sleep(5)
    guarded = client.guarded(one.election.left)
    manifest = {"metadata": {"namespace": "ns", "name": "cm"}}
    await guarded.create(CONFIG_MAPS, manifest)
    one.ahead = 60.0  # its process stood still for that long; no timer of its loop has fired yet
    with pytest.raises(LeadershipLost):
        await guarded.delete(CONFIG_MAPS, "ns", "cm")
    assert ("ns", "cm") in server.objects(CONFIG_MAPS)
    with pytest.raises(LeadershipLost):
        await one.task


async def test_work_that_does_not_end_is_left_behind_when_the_lease_is_lost(
    server: KubeDouble, client: Client
) -> None:
    release = asyncio.Event()

    async def lead() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    election = Election(client, "ns", "lock", "one", time=Time(clock=now))
    task = asyncio.create_task(election.run(lead))
    await asyncio.sleep(5)
    server.write_faults.extend(["500"] * 100)
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(task, 20)
    release.set()
    await asyncio.sleep(0)


STUCK = """
import asyncio, contextlib, threading
from sidecars.kube import LeadershipLost, run_until_lost

async def forever():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

async def work():
    asyncio.create_task(forever())
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    await asyncio.sleep(0)
    raise LeadershipLost("one: no renewal of the lease within 10 s")

run_until_lost(work())
"""


def test_neither_a_task_nor_a_thread_that_does_not_end_keeps_a_process_that_no_longer_leads() -> (
    None
):
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", STUCK], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "one: no renewal of the lease within 10 s\n")


def test_other_ends_of_the_work_are_those_of_asyncio_run() -> None:
    async def fails() -> None:
        raise ValueError("it")

    async def ends() -> None:
        await asyncio.sleep(0)

    with pytest.raises(ValueError, match="it"):
        run_until_lost(fails())
    run_until_lost(ends())


async def test_of_many_candidates_one_leads_at_any_time(server: KubeDouble, client: Client) -> None:
    candidates = [Candidate(client, f"c{number}") for number in range(5)]
    for round_ in range(5):
        await asyncio.sleep(20)
        leaders = [one for one in candidates if one.election.leading]
        assert len(leaders) == 1
        await end(leaders[0].task)
        candidates.remove(leaders[0])
        assert len(candidates) == 4 - round_


@pytest.mark.parametrize(("retry", "renew", "duration"), [(2, 10, 10), (10, 2, 15), (0, 10, 15)])
async def test_times_that_cannot_work_are_refused(
    retry: float, renew: float, duration: int
) -> None:
    with pytest.raises(ValueError, match="0 < retry_period < renew_deadline < lease_duration"):
        Periods(retry_period=retry, renew_deadline=renew, lease_duration=duration)


def test_a_fault_that_is_expected_is_logged_and_makes_the_exit_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(fault: Exception) -> None:
        raise fault

    async def ends() -> None:
        pass

    for fault in (OSError("no port"), ExceptionGroup("", [KeyError("no key")])):
        assert status_of(fails(fault), KeyError) == 1
    assert [it.message for it in caplog.records] == ["no port", "'no key'"]
    assert status_of(ends()) == 0


@pytest.mark.parametrize(
    "fault", [KeyError("x"), ExceptionGroup("", [OSError("no port"), KeyError("x")])]
)
def test_a_fault_that_is_not_expected_is_raised(fault: Exception) -> None:
    async def fails() -> None:
        raise fault

    with pytest.raises(type(fault)):
        status_of(fails())
