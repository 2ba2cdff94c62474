"""Following the primary among several slurmctld."""

import asyncio
from collections.abc import Sequence

import pytest

from sidecars.operator.controller.failover import LOOK_SECONDS, Pods, Primaries
from sidecars.operator.runtime.queues import Key
from sidecars.slurm.records import Ping

pytestmark = pytest.mark.looptime
KEY = ("slurm", "slurm")
PODS = Pods({"c-0": "10.0.0.1", "c-1": "10.0.0.2", "c-2": ""}, "c-0")


class Scene:
    """slurmctld pods that answer what the test sets, and the changes that were reported."""

    def __init__(self) -> None:
        self.leading = "10.0.0.1"
        self.asked: list[str] = []
        self.changed: list[Key] = []
        self.primaries = Primaries(self.changed.append, self.ping, self.ready)

    async def ready(self, address: str) -> bool | None:
        self.asked.append(address)
        return address == self.leading

    async def ping(self, _: Key) -> Sequence[Ping]:
        return ()


async def test_the_primary_is_found_and_followed_and_each_change_is_reported_once() -> None:
    scene = Scene()
    scene.primaries.want(KEY, PODS)
    await asyncio.sleep(LOOK_SECONDS / 2)
    assert (scene.primaries.get(KEY), scene.changed) == ("c-0", [KEY])
    await asyncio.sleep(5 * LOOK_SECONDS)
    assert scene.changed == [KEY]
    scene.leading = "10.0.0.2"
    await asyncio.sleep(LOOK_SECONDS)
    assert (scene.primaries.get(KEY), scene.changed) == ("c-1", [KEY, KEY])
    await scene.primaries.aclose()


async def test_a_pod_without_an_address_is_not_asked() -> None:
    scene = Scene()
    scene.primaries.want(KEY, PODS)
    await asyncio.sleep(LOOK_SECONDS / 2)
    assert set(scene.asked) == {"10.0.0.1", "10.0.0.2"}
    await scene.primaries.aclose()


async def test_nobody_is_asked_once_it_has_ended() -> None:
    scene = Scene()
    scene.primaries.want(KEY, PODS)
    await asyncio.sleep(LOOK_SECONDS / 2)
    scene.primaries.want(KEY, None)
    await asyncio.sleep(LOOK_SECONDS)
    asked = len(scene.asked)
    await asyncio.sleep(5 * LOOK_SECONDS)
    assert (scene.primaries.get(KEY), len(scene.asked)) == (None, asked)
    await scene.primaries.aclose()
