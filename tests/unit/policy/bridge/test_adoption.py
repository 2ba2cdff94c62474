"""A held job with the comment of a group is adopted only if it requests what its pods need."""

import dataclasses
from typing import Any

import pytest

from sidecars.policy.bridge.adoption import difference
from sidecars.policy.bridge.asked import Asked
from sidecars.policy.bridge.records import Action, Cancel, Job, Label, Part, Report, Submit, Why
from sidecars.policy.bridge.shape import Shape
from tests.unit.policy.bridge.test_decide import JOB, KEY, POD
from tests.unit.policy.bridge.test_decide import act as act_

NEEDS = Shape("ada", "p", cpus=4, memory=1000, gres="gres/gpu:h100:2")
WAITS = dataclasses.replace(POD, shape=NEEDS)
PARTS = (Part(NEEDS, 1),)
RIGHT = Asked(("p",), 1, 4, 1000, "gres/gpu:h100:2")
HELD = dataclasses.replace(JOB, comment=dataclasses.replace(JOB.comment, digest=NEEDS.digest), asked=RIGHT)


def act(*jobs: Job) -> tuple[Action, ...]:
    return act_(WAITS, jobs=jobs)


def test_a_job_that_requests_what_its_pods_need_or_more_is_adopted() -> None:
    assert difference(HELD, PARTS) == ""
    more = RIGHT._replace(tasks=2, cpus=8, memory=2000, gres="gres/gpu:h100:4,gres/nic:1", partitions=("q", "p"))
    assert difference(dataclasses.replace(HELD, asked=more), PARTS) == ""
    assert act(HELD) == (Label(WAITS, 7),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"partitions": ("other",)}, "job 7 is not in partition p"),
        ({"tasks": 0}, "job 7 requests 0 tasks, and its pods need 1"),
        ({"cpus": 3}, "job 7 requests 3 CPUs for each pod, and its pods need 4"),
        ({"memory": 10}, "job 7 requests 10 MiB for each pod, and its pods need 1000"),
        ({"gres": "gres/gpu:h100:1"}, "job 7 requests 1 gpu:h100 for each pod, and its pods need 2"),
        ({"gres": ""}, "job 7 requests 0 gpu:h100 for each pod, and its pods need 2"),
    ],
)
def test_a_job_that_requests_less_is_cancelled_with_the_reason_and_another_one_submitted_later(
    change: dict[str, Any], words: str
) -> None:
    forged = dataclasses.replace(HELD, asked=RIGHT._replace(**change))
    assert act(forged) == (
        Cancel(7, words, refused=KEY),
        Report(WAITS, Why.REFUSED, f"{words}: it is cancelled, and another one is submitted"),
    )


def test_a_job_that_requests_enough_is_adopted_beside_a_forged_one_which_is_cancelled() -> None:
    forged = dataclasses.replace(HELD, job_id=5, asked=RIGHT._replace(cpus=1))
    actions = act(forged, HELD)
    assert [it for it in actions if isinstance(it, Label)] == [Label(WAITS, 7)]
    assert [it.job for it in actions if isinstance(it, Cancel)] == [5]
    assert not any(isinstance(it, Submit) for it in actions)
