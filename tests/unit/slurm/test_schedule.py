"""When to poll, as a pure schedule; with a poller it is tested in test_poller.py."""

import random

import pytest

from sidecars.slurm.schedule import (
    BREAKER_FAULTS,
    CALM_FACTOR,
    HURRY_FOR,
    MAX_PAUSE,
    STALE_AFTER,
    PollSchedule,
)


def schedule(interval: float = 1.0) -> PollSchedule:
    return PollSchedule(interval, random.Random(1))  # noqa: S311 - a test


def test_the_pause_is_the_interval_and_a_multiple_of_it_for_an_idle_cluster() -> None:
    assert schedule().pause(100.5, calm=False) == 1
    assert schedule().pause(7 * 10, calm=True) == CALM_FACTOR


def test_idle_clusters_are_polled_at_the_same_moments() -> None:
    moments = {now + schedule().pause(now, calm=True) for now in (70.0, 71.5, 76.0)}
    assert moments == {77.0}


def test_each_fault_doubles_the_pause_up_to_the_longest() -> None:
    it = schedule()
    pauses = []
    for _ in range(6):
        it.failed("no answer")
        pauses.append(it.pause(0, calm=False))
    wanted = [1, 2, 4, 8, MAX_PAUSE, MAX_PAUSE]
    assert all(
        0.8 * want <= pause <= 1.2 * want for want, pause in zip(wanted, pauses, strict=True)
    )


def test_the_circuit_breaker_opens_after_faults_in_a_row_and_a_good_answer_closes_it() -> None:
    it = schedule()
    for count in range(1, BREAKER_FAULTS + 1):
        it.failed("no answer")
        assert it.breaker_open == (count == BREAKER_FAULTS)
    it.succeeded(5, 5)
    assert not it.breaker_open
    assert (it.fault, it.good_at, it.first_good_at) == ("", 5, 5)
    it.succeeded(6, 6)
    assert (it.good_at, it.first_good_at) == (6, 5)


def test_a_fault_that_stops_polling_opens_the_circuit_breaker_at_once() -> None:
    it = schedule()
    it.open_breaker("the poller ended")
    assert it.breaker_open
    assert it.fault == "the poller ended"


def test_an_answer_is_stale_after_ten_seconds_and_later_where_polls_are_rarer() -> None:
    it = schedule()
    assert not it.fresh(0, calm=False)
    it.succeeded(100, 100)
    assert it.fresh(100 + STALE_AFTER, calm=False)
    assert not it.fresh(100 + STALE_AFTER + 0.1, calm=False)
    assert it.fresh(100 + STALE_AFTER + CALM_FACTOR - 1, calm=True)
    it = schedule(interval=5)
    it.succeeded(100, 100)
    assert it.fresh(150, calm=False)


def test_the_pause_is_four_times_as_long_as_the_quickest_of_the_last_answers() -> None:
    it = schedule()
    it.took(3, news=True)
    assert it.least_pause() == pytest.approx(MAX_PAUSE / 2)
    it.took(0.5, news=True)
    assert it.pause(0, calm=False) == pytest.approx(2)
    it.took(0.01, news=False)
    assert it.least_pause() == pytest.approx(0.2)


def test_while_a_pod_waits_for_news_the_pause_is_half_as_long_even_of_an_idle_cluster() -> None:
    it = schedule()
    it.hurry(100)
    assert it.pause(100, calm=False) == it.pause(100, calm=True) == 0.5
    assert it.pause(100 + HURRY_FOR, calm=False) == 1


def test_expensive_answers_are_not_asked_for_more_often_because_a_pod_waits_for_them() -> None:
    it = schedule()
    it.took(1, news=True)
    it.hurry(100)
    assert it.least_pause() == it.pause(100, calm=False) == 4
