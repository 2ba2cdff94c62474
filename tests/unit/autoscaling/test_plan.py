"""The replicas: how far, how fast and in which direction a NodeSet changes."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sidecars.autoscaling.plan import Autoscaling, Jobs, bounds
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Behavior,
    Nodes,
    Past,
    ScaledNodeSet,
    Settings,
    Window,
)
from tests.unit.autoscaling.builders import (
    NOW,
    busy,
    job,
    node,
    nodeset,
    plan,
    replicas,
    unusable,
    why,
)


def test_nodes_that_are_idle_for_long_enough_are_removed() -> None:
    nodes = [
        node("cpu-0", idle_since=NOW - 301),
        node("cpu-1", idle_since=NOW - 299),
        busy("cpu-2"),
    ]
    found = plan([nodeset(replicas=3)], nodes=nodes).wanted["cpu"]
    assert (found.replicas, found.reason, found.removable) == (2, "Idle", ("cpu-0",))


def test_the_minimum_is_kept_and_reached() -> None:
    assert replicas(plan([nodeset(min=1, replicas=2)], nodes=[node("cpu-0"), node("cpu-1")])) == {
        "cpu": 1
    }
    assert replicas(plan([nodeset(min=3, replicas=1)], nodes=[busy("cpu-0")])) == {"cpu": 3}


def test_a_busy_node_is_never_removed_even_beyond_the_maximum() -> None:
    found = plan([nodeset(max=1, replicas=3)], nodes=[busy("cpu-0"), busy("cpu-1"), node("cpu-2")])
    assert found.wanted["cpu"].replicas == 2
    assert found.wanted["cpu"].removable == ("cpu-2",)


def test_an_idle_node_that_a_pending_job_would_use_is_not_removed() -> None:
    nodes = [node("cpu-0"), node("cpu-1")]
    found = plan([nodeset(replicas=2)], [job(tasks=8)], nodes).wanted["cpu"]
    assert (found.replicas, found.removable) == (1, ("cpu-1",))


def test_a_node_whose_state_is_in_question_is_not_removed() -> None:
    nodes = [node("cpu-0", idle_since=None), node("cpu-1", idle_since=None, usable=False)]
    assert replicas(plan([nodeset(replicas=2)], nodes=nodes)) == {"cpu": 2}


def test_a_pod_that_has_not_registered_yet_is_not_removed() -> None:
    assert replicas(plan([nodeset(replicas=2)], nodes=[])) == {"cpu": 2}


def test_nothing_is_removed_soon_after_an_addition() -> None:
    sets, nodes = [nodeset(replicas=2)], [node("cpu-0"), node("cpu-1")]
    found = plan(sets, nodes=nodes, memory={"cpu": Past(raised_at=NOW - 299)}).wanted["cpu"]
    assert (found.replicas, found.reason, found.removable) == (2, "CoolingDown", ())
    assert replicas(plan(sets, nodes=nodes, memory={"cpu": Past(raised_at=NOW - 300)})) == {
        "cpu": 0
    }


def test_steps_up_are_bounded_in_size_and_time() -> None:
    sets = [nodeset(behavior=Behavior(max_step_up=2))]
    jobs = [job(i, tasks=8) for i in range(1, 6)]
    first = plan(sets, jobs)
    assert replicas(first) == {"cpu": 2}
    assert first.wanted["cpu"].reason == "Step"
    assert sum(promise.count for promise in first.promises) == 2
    again = [nodeset(replicas=2, behavior=Behavior(max_step_up=2))]
    assert replicas(plan(again, jobs, memory=dict(first.memory), now=NOW + 1)) == {"cpu": 2}
    assert replicas(plan(again, jobs, memory=dict(first.memory), now=NOW + 15)) == {"cpu": 4}


def test_steps_down_are_bounded_in_size_and_time() -> None:
    sets = [nodeset(replicas=5, behavior=Behavior(max_step_down=2))]
    nodes = [node(f"cpu-{i}") for i in range(5)]
    first = plan(sets, nodes=nodes)
    assert replicas(first) == {"cpu": 3}
    again = [nodeset(replicas=3, behavior=Behavior(max_step_down=2))]
    assert replicas(plan(again, nodes=nodes[:3], memory=dict(first.memory), now=NOW + 1)) == {
        "cpu": 3
    }
    assert replicas(plan(again, nodes=nodes[:3], memory=dict(first.memory), now=NOW + 15)) == {
        "cpu": 1
    }


def test_a_clock_that_is_set_back_prolongs_no_wait() -> None:
    memory = {"cpu": Past(raised_at=NOW + 10_000)}
    first = plan([nodeset(replicas=1)], nodes=[node("cpu-0")], memory=memory)
    assert replicas(first) == {"cpu": 1}
    later = plan(
        [nodeset(replicas=1)], nodes=[node("cpu-0")], memory=dict(first.memory), now=NOW + 300
    )
    assert replicas(later) == {"cpu": 0}


@pytest.mark.parametrize("missing", ["jobs", "nodes", "old jobs", "old nodes"])
def test_missing_or_old_data_changes_no_size(missing: str) -> None:
    def decide(
        nodesets: list[ScaledNodeSet], memory: dict[str, Past]
    ) -> tuple[dict[str, int], str]:
        old = NOW - 61
        jobs = None if missing == "jobs" else Jobs(Queue(), old if missing == "old jobs" else NOW)
        nodes = (
            None
            if missing == "nodes"
            else Nodes([node("cpu-0")], old if missing == "old nodes" else NOW)
        )
        found = Autoscaling(Settings()).plan(nodesets, jobs, nodes, memory, NOW)
        assert dict(found.memory) == memory
        return replicas(found), found.wanted["cpu"].reason

    memory = {"cpu": Past(lowered_at=NOW - 1000)}
    assert decide([nodeset(replicas=4)], memory) == ({"cpu": 4}, "NoData")
    assert decide([nodeset(replicas=40)], memory) == ({"cpu": 40}, "NoData")
    assert decide([nodeset(replicas=1, min=3)], memory) == ({"cpu": 3}, "NoData")


def test_a_decision_that_is_applied_is_not_repeated() -> None:
    jobs = [job(i, tasks=3) for i in range(1, 8)]
    first = plan(jobs=jobs)
    applied = [nodeset(replicas=first.wanted["cpu"].replicas)]
    second = plan(applied, jobs, memory=dict(first.memory), now=NOW + 60)
    assert replicas(second) == replicas(first)
    nodes = [node(f"cpu-{i}", idle_since=NOW) for i in range(applied[0].replicas)]
    assert replicas(
        plan(applied, jobs, nodes, memory=dict(second.memory), now=NOW + 9000)
    ) == replicas(first)


OFFICE = Window(frozenset(range(5)), 8 * 60, 18 * 60, min=2)
NIGHT = Window(frozenset({4}), 22 * 60, 6 * 60, max=50)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (datetime(2026, 11, 23, 7, 59, tzinfo=UTC), (0, 10)),
        (datetime(2026, 11, 23, 8, 0, tzinfo=UTC), (2, 10)),
        (datetime(2026, 11, 23, 17, 59, tzinfo=UTC), (2, 10)),
        (datetime(2026, 11, 23, 18, 0, tzinfo=UTC), (0, 10)),
        (datetime(2026, 11, 28, 12, 0, tzinfo=UTC), (0, 10)),
        (datetime(2026, 11, 27, 21, 59, tzinfo=UTC), (0, 10)),
        (datetime(2026, 11, 27, 22, 0, tzinfo=UTC), (0, 50)),
        (datetime(2026, 11, 27, 23, 0, tzinfo=UTC), (0, 50)),
        (datetime(2026, 11, 28, 5, 59, tzinfo=UTC), (0, 50)),
        (datetime(2026, 11, 28, 6, 0, tzinfo=UTC), (0, 10)),
        (datetime(2026, 11, 28, 23, 0, tzinfo=UTC), (0, 10)),
    ],
    ids=str,
)
def test_a_window_changes_the_bounds_at_its_times(
    time: datetime, expected: tuple[int, int]
) -> None:
    assert bounds(nodeset(windows=(OFFICE, NIGHT)), time.timestamp()) == expected


def test_a_minimum_above_the_maximum_counts_as_the_maximum() -> None:
    assert bounds(replace(nodeset(), min=20), NOW) == (10, 10)


def test_a_nodeset_whose_workers_cannot_run_jobs_stops_growing_after_four_and_reports_it() -> None:
    size = 0
    for _ in range(50):
        found = plan(
            [nodeset(replicas=size, max=50)], [job()], [unusable(f"cpu-{i}") for i in range(size)]
        )
        size = found.wanted["cpu"].replicas
    assert size == 4
    assert why(found) == {"WorkersUnusable": 1}
    wanted = found.wanted["cpu"]
    assert wanted.reason == "WorkersUnusable"
    assert wanted.message == (
        "4 of 4 workers can't run jobs, so no more are added. See `scontrol show node cpu-0`: "
        "IDLE+DRAIN+INVALID_REG: gres/gpu count reported lower than configured (0 < 4)"
    )


def test_growth_goes_on_when_the_workers_are_mended() -> None:
    nodes = [*(unusable(f"cpu-{i}") for i in range(4)), *(busy(f"cpu-{i}") for i in range(4, 9))]
    sets = [nodeset(replicas=9, max=50)]
    assert replicas(plan(sets, [job()], nodes)) == {"cpu": 10}
    assert replicas(
        plan(sets, [job()], [*nodes[:5], *map(unusable, ("cpu-5", "cpu-6", "cpu-7", "cpu-8"))])
    ) == {"cpu": 9}


def test_workers_that_are_all_unusable_from_some_time_on_stop_the_growth_of_a_large_nodeset() -> (
    None
):
    old = [busy(f"cpu-{i}") for i in range(40)]
    sets = [nodeset(replicas=44, max=50)]
    new = [unusable(f"cpu-{i}", started_at=NOW) for i in range(40, 44)]
    assert replicas(plan(sets, [job()], [*old, *new])) == {"cpu": 44}
    spread = [unusable(f"cpu-{i}", started_at=-1.0) for i in range(40, 44)]
    assert replicas(plan(sets, [job()], [*old, *spread])) == {"cpu": 45}


def test_jobs_are_planned_on_the_next_nodeset_when_the_workers_of_the_first_are_unusable() -> None:
    sets = [nodeset(replicas=4), nodeset("other", price=9.0)]
    assert replicas(plan(sets, [job()], [unusable(f"cpu-{i}") for i in range(4)])) == {
        "cpu": 4,
        "other": 1,
    }


@pytest.mark.parametrize("fields", [{"max": 2}, {"shape": None}], ids=str)
def test_few_workers_of_which_none_can_run_jobs_are_reported_where_no_more_may_be_added(
    fields: dict[str, Any],
) -> None:
    found = plan(
        [nodeset(replicas=2, **fields)], [job()], [unusable("cpu-0"), unusable("cpu-1")]
    ).wanted["cpu"]
    assert (found.replicas, found.reason) == (2, "WorkersUnusable")


def test_a_nodeset_that_the_budget_limits_does_not_count_as_satisfied() -> None:
    found = plan([nodeset(replicas=1)], [job()], [busy("cpu-0")], settings=Settings(budget=1.0))
    assert (found.wanted["cpu"].replicas, found.wanted["cpu"].reason) == (1, "Budget")
    assert found.excluded[0].detail == "NodeSet cpu"


def test_a_worker_that_somebody_keeps_from_jobs_does_not_stop_the_growth() -> None:
    drained = [node(f"cpu-{i}", usable=False, idle_since=None) for i in range(8)]
    assert replicas(plan([nodeset(replicas=8)], [job()], drained)) == {"cpu": 9}


@pytest.mark.parametrize(("nodes", "step", "seen"), [(3, 2, [2, 3]), (150, 100, [100, 150])])
def test_a_job_larger_than_a_step_gets_its_nodes_step_by_step(
    nodes: int, step: int, seen: list[int]
) -> None:
    behavior = Behavior(max_step_up=step)
    wide = [job(tasks=nodes, min_nodes=nodes, max_nodes=nodes)]
    found, size, now = plan([nodeset(max=200, behavior=behavior)], wide), 0, NOW
    assert (found.wanted["cpu"].reason, found.promises) == ("Step", ())
    assert why(found) == {"NextStep": 1}
    sizes = []
    for _ in range(3):
        sizes.append(found.wanted["cpu"].replicas)
        # The nodes of the first step register while the others are missing, and stay.
        here = [node(f"cpu-{number}") for number in range(size)]
        size, now = sizes[-1], now + 16
        one = nodeset(max=200, replicas=size, behavior=behavior)
        found = plan([one], wide, here, memory=dict(found.memory), now=now)
    assert sizes == [*seen, seen[-1]]
    assert (found.wanted["cpu"].replicas, why(found)) == (nodes, {})
    assert [it.jobs for it in found.promises] == [(1,)]


def test_between_two_steps_the_nodes_of_the_first_one_stay() -> None:
    wide = [job(tasks=3, min_nodes=3, max_nodes=3)]
    one = nodeset(replicas=2, behavior=Behavior(max_step_up=2, cool_down=0.0))
    here = [node("cpu-0", idle_since=NOW - 999)]
    found = plan([one], wide, here, memory={"cpu": Past(NOW - 1, None)})
    assert (found.wanted["cpu"].replicas, why(found)) == (2, {"NextStep": 1})
    assert found.needed == {"cpu": 2}


def test_a_nodeset_that_can_never_run_a_job_has_not_what_pending_jobs_need() -> None:
    found = plan([nodeset(max=4)], [job(tasks=8, min_nodes=8, max_nodes=8)]).wanted["cpu"]
    assert (found.replicas, found.reason) == (0, "Maximum")
    assert found.message == "jobs need more than 4 nodes"


def test_a_nodeset_whose_nodes_have_not_registered_makes_room_for_the_next_one() -> None:
    bad = nodeset("bad", price=1.0, closed_until=NOW + 1)
    good = nodeset("good", price=9.0)
    assert replicas(plan([bad, good], [job()])) == {"bad": 0, "good": 1}
    assert replicas(plan([replace(bad, closed_until=NOW), good], [job()])) == {"bad": 1, "good": 0}


def test_nodes_that_slurm_powers_up_are_used_before_nodes_are_added() -> None:
    saving = [node(f"s-{number}", nodeset="", idle_since=None) for number in range(5)]
    jobs = [job(i, tasks=8) for i in range(1, 6)]
    assert replicas(plan(jobs=jobs, nodes=saving)) == {"cpu": 0}
    assert replicas(plan(jobs=[*jobs, job(6, tasks=8)], nodes=saving)) == {"cpu": 1}
