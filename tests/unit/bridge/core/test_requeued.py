"""Which jobs are of no use to the pods that wait for them."""

import dataclasses

import pytest

from sidecars.bridge.core.records import GroupKey, Job, Obstacle, Phase, Pod, Requeue, View
from sidecars.bridge.core.requeued import RELEASE_SECONDS, ended_by_slurm, overdue, queued_again
from sidecars.contract.bridge import Comment

JOB = Job(7, Phase.ENDED, "ada", Comment("team", "u"))
POD = Pod("u", "team", "p", GroupKey("team", "u"), gated=True, job=7)


@pytest.mark.parametrize(
    ("state", "by_slurm"), [("COMPLETING,NODE_FAIL", True), ("CANCELLED", False), ("", False)]
)
def test_a_job_that_is_cancelled_was_not_ended_by_slurm(state: str, by_slurm: bool) -> None:
    assert ended_by_slurm(dataclasses.replace(JOB, state=state)) is by_slurm


def test_an_obstacle_counts_when_it_has_lasted_for_the_whole_time() -> None:
    known = Obstacle("node a is cordoned", "a", RELEASE_SECONDS)
    assert overdue(JOB, View((), {}, True, obstacles={7: known})) == known
    assert (
        overdue(JOB, View((), {}, True, obstacles={7: known._replace(seconds=RELEASE_SECONDS - 1)}))
        is None
    )
    assert overdue(JOB, View((), {}, True)) is None


def test_only_pods_that_wait_are_queued_again() -> None:
    runs = dataclasses.replace(POD, gated=False)
    assert list(queued_again(JOB, [POD, runs], "why", "a")) == [Requeue(POD, 7, "why", "a")]
