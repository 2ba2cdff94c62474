"""The model of job traces, and the cluster in virtual time that follows one."""

from itertools import pairwise
from statistics import fmean, median

import pytest

from tests.bench import following
from tests.bench.following import Followed, clairvoyant, followed
from tests.bench.workload import Work, below, trace, work


def test_a_seed_always_draws_the_same_jobs_and_another_one_others() -> None:
    assert trace(7, 50, 256) == trace(7, 50, 256)
    assert trace(7, 50, 256) != trace(8, 50, 256)


def test_drawn_jobs_have_the_shares_and_the_daily_cycle_of_the_model() -> None:
    jobs = trace(1, 20_000, 256)
    sizes = [it.processors for it in jobs]
    assert min(sizes) >= 1
    assert max(sizes) <= 256
    serial = sizes.count(1) / len(jobs)
    # The parallel ones that round to one processor are serial as well.
    assert 0.24 < serial < 0.35
    powers = sum(it & (it - 1) == 0 for it in sizes) / len(jobs)
    assert powers > 0.244 + 0.576
    assert all(0 < it.seconds <= 2.72**12.01 for it in jobs)
    assert median(it.seconds for it in jobs) < fmean(it.seconds for it in jobs)
    assert all(before.at < after.at for before, after in pairwise(jobs))
    hours = [int(it.at // 3600) % 24 for it in jobs]
    night, day = (sum(it in range(*span) for it in hours) for span in ((1, 6), (11, 16)))
    assert day > 3 * night


@pytest.mark.parametrize(("value", "share"), [(0.0, 0.0), (1.0, 0.2642411), (100.0, 1.0)])
def test_the_share_of_a_gamma_distribution_below_a_value_is_known(
    value: float, share: float
) -> None:
    # With the shape 2 and the scale 1 it is 1 - (1 + x) / e**x.
    assert below(value, 2.0, 1.0) == pytest.approx(share)


def test_one_job_costs_its_time_one_boot_and_the_time_until_its_node_is_removed() -> None:
    jobs = [Work(0.0, 16, 3600.0)]
    assert work(jobs) == 16 * 3600
    best = clairvoyant(jobs, 4)
    assert best.node_seconds == following.BOOT + 3600
    assert best.waits == [0.0]
    found = followed(jobs, 4)
    assert found.waits == [following.BOOT]
    assert 0 <= found.node_seconds - following.BOOT - 3600 <= following.LOOK
    assert found.sizes == [1]


def test_a_plan_that_knows_all_jobs_boots_a_node_again_only_where_waiting_is_dearer() -> None:
    near = [Work(0.0, 16, 100.0), Work(160.0, 16, 100.0)]
    assert clairvoyant(near, 1).node_seconds == following.BOOT + 260
    far = [Work(0.0, 16, 100.0), Work(1000.0, 16, 100.0)]
    assert clairvoyant(far, 1).node_seconds == 2 * (following.BOOT + 100)


def test_a_node_without_jobs_is_removed_before_the_next_job_comes() -> None:
    found = followed([Work(0.0, 16, 600.0), Work(7200.0, 16, 600.0)], 4)
    assert found.sizes == [1, 0, 1]
    assert found.turns == 1
    assert found.node_seconds < 2 * (following.BOOT + 600) + 400


def test_a_small_job_is_backfilled_only_where_it_delays_none_before_it() -> None:
    jobs = [
        Work(0.0, 16, 1000.0),
        Work(10.0, 32, 100.0),
        Work(20.0, 8, 5000.0),
        Work(30.0, 16, 500.0),
    ]
    found = clairvoyant(jobs, 2)
    # The second one waits for both nodes, the last one ends before, the third one doesn't.
    assert sorted(found.waits) == [0.0, 0.0, 990.0, 1080.0]


def test_turns_are_counted_where_growing_and_shrinking_follow_each_other() -> None:
    assert Followed(sizes=[1, 3, 5, 4, 2, 6]).turns == 2
    assert Followed(sizes=[1]).turns == 0
