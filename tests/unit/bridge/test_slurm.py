"""Who sends which request to Slurm."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from sidecars.bridge.slurm import Slurm
from sidecars.simulate.carriers import ModelCarrier
from sidecars.slurm import protocol
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import Rejected, Unreachable
from sidecars.slurm.external import ExternalRequest
from sidecars.slurm.protocol import Request
from tests.support.bridge import slurm as simulated

T = TypeVar("T")

JOB = ExternalRequest("pod", "slurm-bridge", "comment")


class Sender:
    """A carrier that notes what it sends as this user."""

    def __init__(
        self, user: str, carrier: Carrier, sent: list[tuple[str, str]], answers: asyncio.Event
    ) -> None:
        self.user, self.carrier, self.sent, self.answers = user, carrier, sent, answers

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        self.sent.append((self.user, request.method))
        await self.answers.wait()
        return await self.carrier.call(request, timeout=timeout)


class Parts:
    def __init__(self) -> None:
        self.model = simulated()
        self.model.key = None
        self.sent: list[tuple[str, str]] = []
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.left = float("inf")
        self.answers = asyncio.Event()
        self.answers.set()
        carrier = ModelCarrier(self.model)

        @contextlib.asynccontextmanager
        async def connect(user: str) -> AsyncIterator[Carrier]:
            self.opened.append(user)
            await asyncio.sleep(0)
            yield Sender(user, carrier, self.sent, self.answers)
            self.closed.append(user)

        self.slurm = Slurm(
            Sender("slurm", carrier, self.sent, self.answers), connect, lambda: self.left
        )


async def test_only_a_submission_is_sent_as_the_tenants_user() -> None:
    parts = Parts()
    job_id = await parts.slurm.submit("ada", [JOB])
    await parts.slurm.start(job_id, "admin")
    await parts.slurm.cancel(job_id)
    await parts.slurm.call(protocol.get_job_states())
    assert parts.sent == [("ada", "POST"), ("slurm", "POST"), ("slurm", "DELETE"), ("slurm", "GET")]


async def test_a_job_starts_with_its_priority() -> None:
    parts = Parts()
    job_id = await parts.slurm.submit("ada", [JOB])
    await parts.slurm.start(job_id, "admin", 700)
    started = await parts.slurm.call(protocol.get_external_job(job_id))
    assert (started.blocked, started.priority, started.admin_comment) == (False, 700, "admin")


async def test_a_job_that_is_started_again_has_its_priority_again() -> None:
    parts = Parts()
    job_id = await parts.slurm.submit("ada", [JOB])
    await parts.slurm.start(job_id, "admin")
    await parts.slurm.start_again(job_id, "admin", 700)
    started = await parts.slurm.call(protocol.get_external_job(job_id))
    assert started.priority == 700


async def test_a_users_connection_is_kept_and_closed_at_the_end() -> None:
    parts = Parts()
    for _ in range(2):
        await parts.slurm.submit("ada", [JOB])
    assert parts.opened == ["ada"]
    await parts.slurm.close()
    assert parts.closed == ["ada"]


async def test_of_many_users_the_connections_that_were_used_last_are_kept() -> None:
    parts = Parts()
    for index in range(64):
        await parts.slurm.submit(f"u{index}", [JOB])
    await parts.slurm.submit("u0", [JOB])
    assert parts.closed == []
    await parts.slurm.submit("u64", [JOB])
    assert parts.closed == ["u1"]
    await parts.slurm.close()
    assert len(parts.closed) == 65


async def test_no_connection_is_closed_while_a_submission_waits_for_its_answer() -> None:
    parts = Parts()
    parts.answers.clear()
    waiting = [asyncio.create_task(parts.slurm.submit(f"u{index}", [JOB])) for index in range(70)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(parts.sent), parts.closed) == (70, [])
    parts.answers.set()
    assert len(set(await asyncio.gather(*waiting))) == 70
    assert len(parts.closed) == 6


async def test_submissions_of_one_user_at_the_same_time_have_one_connection() -> None:
    parts = Parts()
    await asyncio.gather(*(parts.slurm.submit("ada", [JOB]) for _ in range(3)))
    assert parts.opened == ["ada"]


async def test_what_has_ended_or_is_unknown_can_be_cancelled_and_started() -> None:
    parts = Parts()
    job_id = await parts.slurm.submit("ada", [JOB])
    for _ in range(2):
        await parts.slurm.cancel(job_id)
    await parts.slurm.cancel(99)
    await parts.slurm.start(99, "admin")


async def test_a_bridge_that_does_not_lead_writes_nothing_and_may_read() -> None:
    parts = Parts()
    parts.left = 0.0
    with pytest.raises(Unreachable, match="does not lead"):
        await parts.slurm.submit("ada", [JOB])
    with pytest.raises(Unreachable, match="does not lead"):
        await parts.slurm.cancel(1)
    assert await parts.slurm.call(protocol.get_job_states()) == {}
    assert parts.sent == [("slurm", "GET")]


async def test_a_refusal_differs_from_a_lost_answer() -> None:
    parts = Parts()
    with pytest.raises(Rejected, match="Invalid partition name"):
        await parts.slurm.submit("ada", [ExternalRequest("pod", "nowhere", "")])
