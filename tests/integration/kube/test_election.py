"""Two processes run for a lease on a real API server; the leader is killed, or stands still for a while and wakes."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from sidecars.kube import CONFIG_MAPS, Reflector
from sidecars.kube.records import ConfigMap
from tests.support.candidate import LEASE_DURATION, Log, running
from tests.support.config_maps import config_map, following, until

if TYPE_CHECKING:
    from sidecars.kube import Client
    from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.timeout(90, func_only=True)


FATES = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "its event loop blocked": signal.SIGUSR1}


@pytest.mark.parametrize("fate", FATES)
async def test_a_former_leader_never_writes_after_the_new_leader(
    control_plane: ControlPlane, client: Client, namespace: str, fate: str
) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "log"))
    reflector = Reflector(client, CONFIG_MAPS, namespaces=[namespace], type=ConfigMap)
    log = Log(reflector)
    async with following(reflector), running(control_plane.kubeconfig, namespace, "one") as one:
        await until(lambda: "one" in log.writers, "the first to lead")
        async with running(control_plane.kubeconfig, namespace, "two"):
            seconds = LEASE_DURATION  # long enough for the second to be waiting for the lease
            await asyncio.sleep(seconds)
            assert set(log.writers) == {"one"}
            stopped = asyncio.get_running_loop().time()
            os.kill(one.pid, FATES[fate])
            await until(lambda: "two" in log.writers, "the second to lead", LEASE_DURATION + 5)
            assert log.first("two") - stopped <= LEASE_DURATION + 2
            if fate != "killed":
                assert one.returncode is None
                os.kill(one.pid, signal.SIGCONT)
                assert await asyncio.wait_for(one.wait(), 20) == 1
            turn = log.writers.index("two")
            await until(lambda: len(log.writers) > turn + 100, "the second to write on")
            assert set(log.writers[turn:]) == {"two"}
