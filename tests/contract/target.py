"""What a scenario may use of the Slurm that it runs against, simulated or real."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.client import Client
from sidecars.slurm.errors import Refused
from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Node
from sidecars.slurm.states import is_busy
from sidecars.slurm.tokens import TokenSource
from tests.contract import requests

T = TypeVar("T")

WITHIN = 300.0
"""Seconds for what will come, however busy the host is."""


class Jobs(Protocol):
    """How jobs come and go, which slurmrestd isn't asked for here."""

    async def start(self, node: str) -> int:
        """Submit a job of one CPU with a limit of 5 minutes for that node; its id."""

    async def submit_pending(
        self, *, exclusive: bool = False, named: str = "", excluded: str = ""
    ) -> int:
        """Submit a job that stays pending, and names one node, or excludes one; its id."""

    async def suspend(self, job_id: int) -> None:
        """Suspend a running job."""


@dataclass(frozen=True)
class Target:
    """A Slurm cluster with two idle nodes that no one else uses meanwhile. `cluster`: its name in
    slurmdbd, if any.
    """

    url: str
    key: bytes
    nodes: tuple[str, str]
    jobs: Jobs
    version: str = protocol.VERSIONS[0]
    cluster: str | None = None

    async def call(
        self,
        request: Request[T],
        *,
        key: bytes | None = None,
        user: str = "slurm",
        named: str | None = None,
    ) -> T:
        """Carry a request, in this API version, with a token of the user. `named`: the one as whom
        it is sent.
        """
        tokens = TokenSource(
            lambda: self.key if key is None else key, clock=time.time, username=user
        )
        async with Client(self.url, tokens, versions=[self.version], user=named) as client:
            return await client.call(request)

    async def refused(
        self, kind: type[Refused], request: Request[Any], **who: Any
    ) -> frozenset[int]:
        """The numbers of the errors with which the request fails; it must fail as `kind`."""
        with pytest.raises(kind) as caught:
            await self.call(request, **who)
        return caught.value.numbers

    async def node(self, name: str) -> Node:
        """That node now."""
        await self.call(protocol.count_allocations())
        return await self.call(protocol.get_node(name))

    async def write(self, names: Sequence[str], *states: str, reason: str | None = None) -> None:
        """Set states."""
        await self.call(protocol.update_nodes(names, state=states, reason=reason))

    async def until(self, what: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """The first true answer of `look`."""
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"waited {WITHIN:g} s for {what}")

    async def until_node(
        self, name: str, what: str, good: Callable[[frozenset[str]], bool]
    ) -> Node:
        """The node as soon as its states are `good`."""

        async def look() -> Node | None:
            node = await self.node(name)
            return node if good(node.states) else None

        return await self.until(f"{name} to be {what}", look)

    async def running(self, node: str) -> int:
        """A job that runs on that node."""
        number = await self.jobs.start(node)

        async def look() -> bool:
            return "RUNNING" in (await self.call(requests.get_job(number))).states

        await self.until(f"job {number} to run", look)
        return number

    async def settle(self) -> None:
        """No job, no reservation of ours, both nodes idle, responding, registered: before and after
        each scenario.
        """
        jobs = await self.call(protocol.get_jobs())
        assert jobs is not None
        for job in jobs.jobs:
            if job.states & {"PENDING", "RUNNING", "SUSPENDED"}:
                await self.call(requests.cancel_job(job.job_id))
        for reservation in await self.call(protocol.get_reservations()):
            if reservation.name.startswith("contract"):
                await self.call(protocol.delete_reservation(reservation.name))
        for name in self.nodes:
            await self.until_node(name, "without work", lambda states: not is_busy(states))
            node = await self.node(name)
            if "DOWN" in node.states:
                await self.write([name], "IDLE")
            elif "FAIL" in node.states:
                await self.write([name], "RESUME")
            elif "DRAIN" in node.states:
                await self.write([name], "UNDRAIN")
            await self.until_node(
                name,
                "idle",
                lambda states: not states & {"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"},
            )

            async def registered(name: str = name) -> bool:
                return (await self.node(name)).slurmd_start_time > 0

            # slurmctld forgets it when it reads its configuration again.
            await self.until(f"slurmd of {name} to have registered", registered)
