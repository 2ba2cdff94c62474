"""The work queues of the operator: `sidecars.operator.runtime.queues`."""

import random

import pytest

from sidecars.operator.main import kinds
from sidecars.operator.runtime.queues import Queues
from tests.support.operator_parts import Parts

pytestmark = pytest.mark.looptime


async def test_each_kind_has_a_queue_of_its_own() -> None:
    parts = Parts()
    queues = [kind.queue for kind in kinds(parts.operator)]
    assert len({id(queue) for queue in queues}) == len(queues) == len(Queues.__dataclass_fields__)


async def test_retries_are_spread_by_the_given_randomness() -> None:
    key = ("slurm", "slurm")

    def delays(seed: int) -> list[float]:
        queue = Queues.of(random.Random(seed)).nodesets  # noqa: S311 - spreads retries
        return [queue.retry(key) for _ in range(5)]

    assert delays(1) == delays(1)
    assert delays(1) != delays(2)
