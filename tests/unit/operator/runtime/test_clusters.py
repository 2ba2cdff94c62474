"""Connections to Slurm for one who must lead to write."""

import asyncio
from typing import TypeVar

import pytest

from sidecars.operator.runtime.clusters import LONGEST_PAUSE, WRITE_SECONDS, Clusters, Guarded
from sidecars.operator.runtime.queues import Key
from sidecars.simulate import Fault, ModelCarrier, SlurmModel
from sidecars.slurm import protocol
from sidecars.slurm.errors import Unreachable
from sidecars.slurm.protocol import Request
from tests.support.virtual_time import run

T = TypeVar("T")
EPOCH = 1_800_000_000.0


class Connection:
    """Notes what it is asked to carry, and within how many seconds."""

    def __init__(self) -> None:
        self.carried: list[tuple[str, float | None]] = []
        self.closed = False

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        self.carried.append((str(request), timeout))
        raise Unreachable(str(request), "nobody there")

    async def close(self) -> None:
        self.closed = True


WRITES = [protocol.update_nodes(["n1"], state=["DRAIN"], reason="x"), protocol.delete_node("n1")]


async def tried(guarded: Guarded, request: Request[T]) -> str:
    with pytest.raises(Unreachable) as caught:
        await guarded.call(request)
    return str(caught.value)


@pytest.mark.parametrize("write", WRITES, ids=str)
async def test_one_who_no_longer_leads_reads_from_slurm_but_does_not_write(
    write: Request[None],
) -> None:
    connection = Connection()
    guarded = Guarded(connection, lambda: 0.0)
    assert await tried(guarded, write) == f"{write}: not sent, the lease is not held"
    assert connection.carried == []
    assert "nobody there" in await tried(guarded, protocol.get_nodes())
    assert connection.carried == [("GET nodes/", None)]


@pytest.mark.parametrize("write", WRITES, ids=str)
async def test_a_write_to_slurm_is_given_no_longer_than_the_lead_lasts(
    write: Request[None],
) -> None:
    connection, left = Connection(), 3.0
    guarded = Guarded(connection, lambda: left)
    await tried(guarded, write)
    left = 1000.0
    await tried(guarded, write)
    with pytest.raises(Unreachable):
        await guarded.call(write, timeout=2.0)
    assert [seconds for _, seconds in connection.carried] == [3.0, WRITE_SECONDS, 2.0]


async def test_closing_ends_the_connection() -> None:
    connection = Connection()
    await Guarded(connection, lambda: 0.0).close()
    assert connection.closed


class Faulty(ModelCarrier):
    """A Slurm whose next answers bring out a fault of the poller's own."""

    def __init__(self) -> None:
        super().__init__(SlurmModel(lambda: EPOCH + asyncio.get_running_loop().time()))
        self.faults = 0

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        if self.faults:
            self.faults -= 1
            raise KeyError("an answer that nobody foresaw")
        return await super().call(request, timeout=timeout)

    async def close(self) -> None:
        """Nothing to close."""


def test_a_poller_that_ends_with_an_error_is_reported_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = ("slurm", "slurm")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        carrier, received = Faulty(), 0

        def changed(_: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
            nonlocal received
            received += not (changed or removed)

        carrier.model.node_register("n1")
        async with Clusters(
            lambda _: b"k" * 32, loop.time, loop.time, lambda *_: carrier
        ) as clusters:
            clusters.subscribe(changed)
            await clusters.want(key, "http://slurm-restapi")
            await asyncio.sleep(5)
            cluster = clusters.get(key)
            assert cluster is not None
            assert (cluster.view().problem, set(cluster.view().nodes)) == (None, {"n1"})
            before, carrier.faults = received, 2
            await asyncio.sleep(1.5)
            assert "an answer that nobody foresaw" in (cluster.view().problem or "")
            assert received == before + 1
            assert "an answer that nobody foresaw" in caplog.text
            carrier.model.node_register("n2")
            await asyncio.sleep(LONGEST_PAUSE)
            assert (cluster.view().problem, set(cluster.view().nodes)) == (None, {"n1", "n2"})
            assert received == before + 2

    run(scenario())


def test_the_age_of_a_poll_grows_while_slurm_does_not_answer() -> None:
    key = ("slurm", "slurm")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        carrier = Faulty()
        carrier.model.fail(Fault.NO_SLURMCTLD, times=None)
        async with Clusters(
            lambda _: b"k" * 32, loop.time, loop.time, lambda *_: carrier
        ) as clusters:
            await clusters.want(key, "http://slurm-restapi")
            await asyncio.sleep(5)
            assert clusters.poll_ages() == {}
            carrier.model.heal()
            await asyncio.sleep(LONGEST_PAUSE)
            assert clusters.poll_ages()[key] < 10
            carrier.model.fail(Fault.NO_SLURMCTLD, times=None)
            await asyncio.sleep(100)
            assert 90 <= clusters.poll_ages()[key] <= 110

    run(scenario())
