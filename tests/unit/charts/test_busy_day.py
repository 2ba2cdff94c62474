"""The simulated busy day behind the pictures of dashboards."""

from collections import Counter

import pytest

from tests.charts import answered, busy_day
from tests.charts.busy_day import BOOT, BROKEN, FIRST, GPUS, NODES, OUTAGE, SCALE_OUT, Day


@pytest.fixture(scope="module")
def uses() -> list[tuple[int, Counter[int], Counter[int]]]:
    """For each minute, the GPUs in use by node, as the day counts them and as its jobs have
    them.
    """
    found = []
    for day in busy_day.days():
        own: Counter[int] = Counter()
        for job in day.running:
            own.update(job.places)
        found.append((day.minute, +day.used, own))
    return found


def test_no_gpu_has_two_jobs_and_none_is_lost(
    uses: list[tuple[int, Counter[int], Counter[int]]],
) -> None:
    assert [minute for minute, counted, own in uses if counted != own] == []
    assert max(max(own.values()) for _, _, own in uses) == GPUS


def test_no_job_is_on_a_node_that_is_away_or_not_there_yet(
    uses: list[tuple[int, Counter[int], Counter[int]]],
) -> None:
    later = range(FIRST, NODES)
    for minute, _, own in uses:
        away = {
            *(BROKEN if minute in OUTAGE else ()),
            *(later if minute < SCALE_OUT + BOOT else ()),
        }
        assert own.keys().isdisjoint(away), minute
    assert any(own.keys() & set(later) for _, _, own in uses)


def test_the_text_has_each_series_once_at_the_moments_that_rates_need() -> None:
    points = [next(it for it in busy_day.POINTS if shows(it)) for shows in busy_day.EVENTS]
    text = busy_day.text(points)
    assert text.endswith("\n# EOF\n")
    lines = [line.rsplit(" ", 2) for line in text.splitlines()[:-1]]
    assert max(Counter((key, at) for key, _, at in lines).values()) == 1
    moments = {at - before for at in points for before in busy_day.BEFORE}
    assert {int(at) for _, _, at in lines} == moments


def test_a_recorded_series_has_a_value_for_each_point_and_none_where_prometheus_has_none() -> None:
    series = {
        "metric": {"__name__": "a", "node": "b"},
        "values": [[100, "1"], [120, "NaN"], [140, "0.12345"]],
    }
    assert answered.recorded([series], [100, 120, 140, 160]) == [
        {"labels": {"node": "b"}, "values": [1.0, None, 0.123, None]}
    ]


def test_a_job_starts_where_it_has_room_and_a_large_one_on_free_nodes_alone() -> None:
    day = Day()
    small, large = (
        busy_day.Job(it, "train", "ada", "vision", gpus, 0, 60, 0.5)
        for it, gpus in ((1, 4), (2, 16))
    )
    day.waiting += [small, large]
    busy_day._start(day)
    assert list(small.places.values()) == [4]
    assert list(large.places.values()) == [8, 8]
    assert large.places.keys().isdisjoint(small.places)
