"""A simulated Slurm and a poller of it, in virtual time."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from sidecars.simulate import ModelCarrier, SlurmModel
from sidecars.simulate.records import Reply
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


def show_time(model: SlurmModel, shown: int) -> None:
    """Have each of its lists show this time as the server's."""
    answer = model.handle

    def handle(method: str, target: str, *arguments: Any, **named: Any) -> Reply:
        reply = answer(method, target, *arguments, **named)
        content = json.loads(reply.body) if reply.status == 200 else {}
        if not content.get("last_update", {}).get("number"):
            return reply
        return replace(reply, body=json.dumps({**content, "last_update": shown}).encode())

    model.handle = handle  # type: ignore[method-assign]


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
