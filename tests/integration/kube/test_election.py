"""Two processes run for a lease on a real API server; the leader is killed, or stands still for a
while and wakes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sidecars.kube import CONFIG_MAPS, Reflector
from sidecars.objects import ConfigMap
from tests.support.candidate import LEASE_DURATION, Log, running
from tests.support.config_maps import config_map, following, until

if TYPE_CHECKING:
    from sidecars.kube import Client
    from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.timeout(300, func_only=True)


FATES = {
    "killed": signal.SIGKILL,
    "frozen": signal.SIGSTOP,
    "its event loop blocked": signal.SIGUSR1,
}


ATTEMPTS = 5


@pytest.mark.parametrize("fate", FATES)
async def test_a_former_leader_never_writes_after_the_new_leader(
    control_plane: ControlPlane, client: Client, namespace: str, fate: str
) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "log"))
    reflector = Reflector(client, CONFIG_MAPS, namespaces=[namespace], type=ConfigMap)
    log = Log(reflector)
    async with following(reflector):
        for number in range(ATTEMPTS):
            first, second = f"one-{number}", f"two-{number}"
            async with running(control_plane.kubeconfig, namespace, first) as leader:
                await until(partial(log.writers.__contains__, first), "the first to lead")
                async with running(control_plane.kubeconfig, namespace, second) as follower:
                    if await _meets(leader, follower, fate, log, first, second):
                        return
    raise AssertionError(
        f"{ATTEMPTS} times a candidate lost its lease although nothing had happened to it"
    )


async def _meets(
    leader: asyncio.subprocess.Process,
    follower: asyncio.subprocess.Process,
    fate: str,
    log: Log,
    first: str,
    second: str,
) -> bool:
    """Whether the leader led until its fate, and the second one for a while after it. On a busy
    host, each may lose the lease before, and end.
    """
    seconds = LEASE_DURATION  # long enough for the second to be waiting for the lease
    await asyncio.sleep(seconds)
    if leader.returncode is not None or second in log.writers:
        return False
    os.kill(leader.pid, FATES[fate])
    await until(
        lambda: second in log.writers or follower.returncode is not None, "the second to lead"
    )
    if second not in log.writers:
        return False
    if fate != "killed":
        assert leader.returncode is None
        os.kill(leader.pid, signal.SIGCONT)
        assert await leader.wait() == 1
    turn = log.writers.index(second)
    await until(
        lambda: len(log.writers) > turn + 100 or follower.returncode is not None,
        "the second to write on",
    )
    assert first not in log.writers[turn:]
    return len(log.writers) > turn + 100
