"""Pods that are ready first show their state when the others are:
`sidecars.operator.nodeset.deferral`.
"""

import pytest

from sidecars.operator.nodeset.deferral import DEFER_SECONDS, Deferral, wake_if_due
from sidecars.policy.nodeset.records import DesiredPods
from tests.support.operator_parts import NAMESPACE, Parts
from tests.unit.policy.nodeset.builders import worker

pytestmark = pytest.mark.looptime
NOW = 1000.0
FIRST, SECOND = (NAMESPACE, "slinky-0"), (NAMESPACE, "slinky-1")


def created() -> Deferral:
    """A NodeSet whose pods have all been created at NOW; the first one is ready and waits."""
    deferral = Deferral(creating=True)
    assert deferral.defer(FIRST)
    deferral.created(NOW)
    return deferral


def test_nothing_is_deferred_unless_pods_are_created() -> None:
    assert not Deferral().defer(FIRST)


def test_pods_that_are_ready_early_are_deferred_until_the_others_had_their_time() -> None:
    deferral = created()
    assert deferral.defer(SECOND)
    assert deferral.goes_on(NOW)
    assert deferral.seconds_left(NOW) == DEFER_SECONDS
    assert deferral.goes_on(NOW + DEFER_SECONDS - 0.1)
    assert not deferral.goes_on(NOW + DEFER_SECONDS)
    assert deferral.end() == {FIRST, SECOND}
    assert not deferral.defer(FIRST)


def test_a_clock_that_was_set_back_ends_the_deferral() -> None:
    assert not created().goes_on(NOW - 1.0)


@pytest.mark.parametrize(
    ("ready", "failure", "woken"),
    [(1, None, False), (2, None, True), (1, RuntimeError("refused"), True)],
    ids=["one is missing", "all are ready", "creation has failed"],
)
async def test_deferred_pods_are_woken_when_all_are_ready_or_creation_has_failed(
    ready: int, failure: Exception | None, *, woken: bool
) -> None:
    parts = Parts()
    deferral = Deferral(creating=True)
    deferral.defer(FIRST)
    deferral.created(parts.now)
    pods = [worker(number, ready=number < ready) for number in range(2)]
    left = wake_if_due(parts.runtime, deferral, pods, DesiredPods("slurm", 2, ""), failure)
    assert (left is None) is woken
    assert (len(parts.runtime.queues.pods) == 1) is woken
