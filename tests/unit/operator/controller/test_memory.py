"""What is remembered of the Controllers: `sidecars.operator.controller.memory`."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import pytest

from sidecars.operator.controller.failover import LOOK_SECONDS, Pods, Primaries
from sidecars.operator.controller.memory import Memory
from sidecars.operator.controller.statuses import Statuses
from sidecars.operator.core.keys import Walk
from sidecars.operator.keys.distribution import Distribution
from sidecars.policy.gate import Pod, Published
from sidecars.slurm.pending import PendingRequest
from sidecars.slurm.records import Ping
from tests.support.operator_parts import CONTROLLER, EPOCH

pytestmark = pytest.mark.looptime
ADDRESS = "10.0.0.1"


class Scene:
    """A slurmctld pod that is asked for its status and for whether it is the primary; the questions
    are counted.
    """

    def __init__(self) -> None:
        self.asked = 0
        statuses = Statuses(
            lambda _: b"k" * 32, lambda _: None, self.clock, lambda: EPOCH, self.status
        )
        self.memory = Memory(statuses, Primaries(lambda _: None, self.ping, self.ready))
        pods = [Pod(name="c-0", life="1", address=ADDRESS, askable=True, nudge="")]
        self.memory.statuses.want(CONTROLLER, Published("0" * 64, "mark", True), pods)
        self.memory.primaries.want(CONTROLLER, Pods({"c-0": ADDRESS}, None))

    def clock(self) -> float:
        return asyncio.get_running_loop().time()

    async def status(self, *_: str) -> Mapping[str, Any]:
        self.asked += 1
        raise TimeoutError

    async def ready(self, _: str) -> bool | None:
        self.asked += 1
        return True

    async def ping(self, _: object) -> Sequence[Ping]:
        return ()


async def test_a_controller_that_is_forgotten_is_asked_no_more() -> None:
    scene = Scene()
    await asyncio.sleep(3 * LOOK_SECONDS)
    assert scene.asked > 2
    scene.memory.forget(CONTROLLER)
    await asyncio.sleep(3 * LOOK_SECONDS)
    before = scene.asked
    await asyncio.sleep(10 * LOOK_SECONDS)
    assert scene.asked == before
    assert scene.memory.primaries.get(CONTROLLER) is None
    await scene.memory.aclose()


async def test_closing_ends_all_questions_and_the_requests_to_read_keys() -> None:
    scene = Scene()
    await asyncio.sleep(1.0)

    async def hangs() -> None:
        await asyncio.sleep(1000)

    request: Coroutine[Any, Any, None] = hangs()
    pending = PendingRequest("GET reconfigure/", request, scene.clock, lambda: None)
    scene.memory.distributions[CONTROLLER] = Distribution(Walk("ring"), pending)
    await scene.memory.aclose()
    assert pending.ended
    before = scene.asked
    await asyncio.sleep(10 * LOOK_SECONDS)
    assert scene.asked == before
