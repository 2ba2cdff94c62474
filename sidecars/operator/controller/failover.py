"""Finds the primary among several slurmctld, every two seconds: Slurm sends no notice when it
moves.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.real_world import AskReady
from sidecars.policy import failover
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.records import Ping

LOOK_SECONDS = 2.0
ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Pods:
    """The slurmctld pods of a Controller: their addresses (empty: none yet), and which carries the
    label.
    """

    addresses: Mapping[str, str]
    labelled: str | None


class Primaries:
    """`changed(key)` is called when the primary is another; `ping` asks slurmrestd, and may raise
    SlurmError.
    """

    def __init__(
        self,
        changed: Callable[[Key], None],
        ping: Callable[[Key], Awaitable[Sequence[Ping]]],
        ready: AskReady,
    ) -> None:
        self._changed, self._ping, self._ready = changed, ping, ready
        self._pods: dict[Key, Pods] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._found: dict[Key, str | None] = {}

    def get(self, key: Key) -> str | None:
        """Return the primary's pod, or None while it isn't known."""
        return self._found.get(key)

    def want(self, key: Key, pods: Pods | None) -> None:
        """Follow the primary among these pods; None ends it."""
        if pods is None:
            self._pods.pop(key, None)
            self._found.pop(key, None)
            return
        self._pods[key] = pods
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(
                self._follow(key), name=f"primary of {key[0]}/{key[1]}"
            )

    async def aclose(self) -> None:
        """End it for all."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, key: Key) -> None:
        try:
            while (pods := self._pods.get(key)) is not None:
                primary = await self._look(key, pods)
                if key in self._pods and primary != self._found.get(key):
                    self._found[key] = primary
                    self._changed(key)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            del self._tasks[key]

    async def _look(self, key: Key, pods: Pods) -> str | None:
        names = sorted(pods.addresses)
        asked = [
            self._ready(pods.addresses[name]) if pods.addresses[name] else _nobody()
            for name in names
        ]
        answers = dict(zip(names, await asyncio.gather(*asked), strict=True))
        pings: list[tuple[str, bool]] | None = None
        if sum(map(bool, answers.values())) != 1:
            with contextlib.suppress(SlurmError, TimeoutError):
                async with asyncio.timeout(3 * ASK_SECONDS):
                    pings = [(ping.hostname, ping.responding) for ping in await self._ping(key)]
        return failover.primary(answers, pings, pods.labelled)


async def _nobody() -> bool | None:
    return None
