"""A simulated Slurm and a poller of it, in virtual time."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sidecars.simulate import ModelCarrier, SlurmModel
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.poller import Poller

EPOCH = 1_800_000_000.5


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Scene:
    """A simulated Slurm, a poller of it, and what its subscriber received."""

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        self.model = SlurmModel(lambda: EPOCH + loop_time())
        for number in range(nodes):
            self.model.node_register(f"n{number}")
        self.carrier = ModelCarrier(self.model)
        self.poller = Poller(self.carrier, loop_time, rng=random.Random(1), **options)  # noqa: S311 - a test
        self.received: list[tuple[set[str], set[str]]] = []
        self.poller.subscribe(
            lambda changed, removed: self.received.append((set(changed), set(removed)))
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        """Polling from the start on; what was received of the first list is forgotten."""
        task = asyncio.create_task(self.poller.run())
        await until(lambda: self.poller.known)
        self.received.clear()
        self.model.calls.clear()
        yield self
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.poller.close()

    def lists(self) -> list[str | None]:
        """The update times asked for so far; None for a full list."""
        return [call.query.get("update_time") for call in self.model.requests("GET", "nodes/")]


async def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Let (virtual) time pass until the condition is true."""
    deadline = loop_time() + seconds
    while not condition():
        assert loop_time() < deadline, "the condition never became true"
        await asyncio.sleep(0.05)


async def failure(call: Awaitable[object]) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        await call
    return caught.value
