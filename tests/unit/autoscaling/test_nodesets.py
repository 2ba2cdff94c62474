"""A NodeSet with its pods as the planner takes it: `sidecars.autoscaling.nodesets`."""

from typing import Any

from sidecars.autoscaling.nodesets import Worker, pods, scaled
from sidecars.autoscaling.offers import Offer
from sidecars.autoscaling.plan import bounds
from sidecars.contract.autoscaling import Applied
from tests.support.builders import nodeset
from tests.unit.autoscaling.builders import SHAPE

MONDAY_NOON = 4 * 86_400 + 12 * 3600
"""1970-01-05 was a Monday."""


def worker(name: str, **more: Any) -> Worker:
    return Worker(name, **{"started": True, "created": 0.0} | more)


def test_the_named_surplus_pods_leave_and_the_others_stay() -> None:
    found = pods([worker("a"), worker("b"), worker("c")], Applied(1, ("c", "b", "x")), 1)
    assert found.leaving == ("c", "b")
    assert list(found.staying) == ["a"]
    assert found.kept == 0


def test_a_named_pod_that_has_got_a_job_stays_unless_it_is_drained_already() -> None:
    everyone = [worker("a"), worker("b", busy=True), worker("c", busy=True, cordoned=True)]
    found = pods(everyone, Applied(1, ("b", "c")), 1)
    assert found.leaving == ("c",)
    assert found.kept == 1


def test_pods_that_nobody_named_stay_although_there_are_too_many() -> None:
    found = pods([worker("a"), worker("b")], None, 1)
    assert (found.leaving, found.kept) == ((), 0)


def test_pods_that_another_client_has_removed_leave_with_the_next_decision_too() -> None:
    found = pods(
        [worker("a"), worker("b", busy=True, cordoned=True), worker("c", cordoned=True)], None, 1
    )
    assert (found.leaving, list(found.staying), found.kept) == (("b", "c"), ["a"], 0)
    assert pods([worker("a"), worker("b", cordoned=True)], None, 2).leaving == ()


def test_a_name_of_a_former_decision_removes_no_pod_that_is_wanted() -> None:
    assert pods([worker("a"), worker("b")], Applied(2, ("b",)), 2).leaving == ()


def test_pods_that_cannot_start_are_counted_from_the_first_of_them() -> None:
    some = [worker("a", stuck_since=5.0), worker("b", stuck_since=3.0), worker("c")]
    found = scaled(
        nodeset(replicas=3, autoscaling={"max": 5}), None, frozenset(), pods(some, None, 3)
    )
    assert (found.unschedulable, found.unschedulable_since, found.shape) == (2, 3.0, None)


def test_settings_reach_the_planner() -> None:
    spec = {
        "min": 1,
        "max": 5,
        "price": 3,
        "idleSeconds": 7,
        "coolDownSeconds": 8,
        "stepSeconds": 9,
        "maxStepUp": 10,
    }
    more = {"maxStepDown": 11, "capacityWaitSeconds": 12}
    found = scaled(
        nodeset(replicas=2, autoscaling=spec | more),
        Offer(SHAPE, 6),
        frozenset({"p"}),
        pods([], None, 2),
    )
    behavior = found.behavior
    assert (found.min, found.max, found.price, found.weight, found.replicas) == (1, 5, 3.0, 6, 2)
    assert (behavior.idle_seconds, behavior.cool_down, behavior.step_seconds) == (7.0, 8.0, 9.0)
    assert (behavior.max_step_up, behavior.max_step_down, behavior.capacity_wait) == (10, 11, 12.0)


def test_windows_are_those_of_the_days_that_they_name() -> None:
    def limits(**window: Any) -> tuple[int, int]:
        spec = {
            "max": 5,
            "windows": [{"start": "08:00", "end": "18:00", "min": 2, "max": 9} | window],
        }
        return bounds(
            scaled(nodeset(autoscaling=spec), None, frozenset(), pods([], None, 0)), MONDAY_NOON
        )

    assert limits() == (2, 9)
    assert limits(days=["Mon"]) == (2, 9)
    assert limits(days=["Tue", "Sun"]) == (0, 5)
    assert limits(start="12:01") == (0, 5)
