"""Asking the `reconfigure` sidecars of slurmctld pods."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from sidecars.contract import status
from sidecars.contract.signature import Verifier
from sidecars.contract.status import Status
from sidecars.operator.controller.statuses import Statuses
from sidecars.policy.gate import Pod, Published

if TYPE_CHECKING:
    from sidecars.operator.runtime.queues import Key

pytestmark = pytest.mark.looptime
KEY = ("slurm", "slurm")
NEW = "a" * 64
POD = Pod(name="c-0", life="1", address="10.0.0.1", askable=True, nudge="")


class Scene:
    """One pod whose answer the test sets."""

    def __init__(self, key: bytes | None = b"k" * 32) -> None:
        self.answer: Status | None = None
        self.pod = Verifier("c-0")
        self.asked = 0
        self.changed: list[Key] = []
        clock = asyncio.get_running_loop().time
        self.statuses = Statuses(lambda _: key, self.changed.append, clock, clock, self.fetch)

    async def fetch(self, address: str, signed: str) -> Mapping[str, Any]:
        now = asyncio.get_running_loop().time()
        assert address == "10.0.0.1"
        assert self.pod.accepts("GET", "/status", signed, b"k" * 32, now)
        self.asked += 1
        if self.answer is None:
            raise OSError("refused")
        return status.encode(self.answer)


async def test_a_pod_is_asked_until_it_runs_what_is_published_and_then_no_more() -> None:
    scene = Scene()
    scene.statuses.want(KEY, Published(NEW, "mark"), [POD])
    await asyncio.sleep(5)
    assert scene.statuses.known(KEY)["c-0"].trouble == "refused"
    asked = scene.asked
    assert asked > 1
    scene.answer = Status(candidate=NEW, accepted=NEW, running=NEW)
    await asyncio.sleep(60)
    assert scene.statuses.known(KEY)["c-0"].report == scene.answer
    assert scene.changed[-1] == KEY
    asked = scene.asked
    await asyncio.sleep(120)
    assert scene.asked == asked
    await scene.statuses.aclose()


async def test_without_a_jwt_key_nothing_is_sent_and_the_reason_is_known() -> None:
    scene = Scene(key=None)
    scene.statuses.want(KEY, Published(NEW, "mark"), [POD])
    await asyncio.sleep(1)
    assert (scene.asked, scene.statuses.known(KEY)["c-0"].trouble) == (0, "its JWT key is missing")
    await scene.statuses.aclose()


async def test_what_is_known_of_a_pod_is_dropped_with_it() -> None:
    scene = Scene()
    scene.statuses.want(KEY, Published(NEW, "mark"), [POD])
    await asyncio.sleep(1)
    assert set(scene.statuses.known(KEY)) == {"c-0"}
    scene.statuses.want(KEY, Published(NEW, "mark"), [])
    assert scene.statuses.known(KEY) == {}
    scene.statuses.want(KEY, None, ())
    await scene.statuses.aclose()
