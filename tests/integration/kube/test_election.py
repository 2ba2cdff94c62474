"""Two processes run for a lease on a real API server; the leader is killed, or frozen and woken."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from sidecars.kube import CONFIG_MAPS, Client, Reflector
from sidecars.kube.records import ConfigMap
from tests.integration.kube.candidate import LEASE_DURATION
from tests.integration.kube.test_client import config_map
from tests.integration.kube.test_reflector import following, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.timeout(90, func_only=True)


@contextlib.asynccontextmanager
async def candidate(
    control_plane: ControlPlane, namespace: str, identity: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    module = "tests.integration.kube.candidate"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, str(control_plane.kubeconfig), namespace, identity),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Log:
    """Who wrote, in the order in which the API server stored it."""

    def __init__(self, reflector: Reflector[ConfigMap]) -> None:
        self.writers: list[str] = []
        self.times: list[float] = []
        reflector.store.subscribe(lambda event: self.note(event.object))

    def note(self, item: ConfigMap) -> None:
        if "by" in item.data:
            self.writers.append(item.data["by"])
            self.times.append(asyncio.get_running_loop().time())

    def first(self, writer: str) -> float:
        return self.times[self.writers.index(writer)]


@pytest.mark.parametrize("fate", ["killed", "frozen"])
async def test_the_loser_never_writes_after_the_winner(
    control_plane: ControlPlane, client: Client, namespace: str, fate: str
) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "log"))
    reflector = Reflector(client, CONFIG_MAPS, namespaces=[namespace], type=ConfigMap)
    log = Log(reflector)
    async with following(reflector), candidate(control_plane, namespace, "one") as one:
        await until(lambda: "one" in log.writers, "the first to lead")
        async with candidate(control_plane, namespace, "two"):
            seconds = LEASE_DURATION  # long enough for the second to be waiting for the lease
            await asyncio.sleep(seconds)
            assert set(log.writers) == {"one"}
            stopped = asyncio.get_running_loop().time()
            os.kill(one.pid, signal.SIGKILL if fate == "killed" else signal.SIGSTOP)
            await until(lambda: "two" in log.writers, "the second to lead", LEASE_DURATION + 5)
            assert log.first("two") - stopped <= LEASE_DURATION + 2
            if fate == "frozen":
                os.kill(one.pid, signal.SIGCONT)
                assert await asyncio.wait_for(one.wait(), 20) != 0
            turn = log.writers.index("two")
            await until(lambda: len(log.writers) > turn + 100, "the second to write on")
            assert set(log.writers[turn:]) == {"two"}
