"""A held job with the comment of a group is adopted only if it requests what its pods need."""

import dataclasses
from typing import Any

import pytest

from sidecars.bridge.core.adoption import difference, parts_of
from sidecars.bridge.core.placeholder import together
from sidecars.bridge.core.records import (
    Action,
    Asked,
    Cancel,
    GroupKey,
    Job,
    Label,
    Part,
    Report,
    Submit,
    Why,
)
from sidecars.bridge.core.shape import Shape
from sidecars.contract.bridge import Comment
from tests.unit.bridge.core.test_decide import JOB, KEY, POD
from tests.unit.bridge.core.test_decide import act as act_

NEEDS = Shape("ada", "p", cpus=4, memory=1000, gres="gres/gpu:h100:2")
WAITS = dataclasses.replace(POD, shape=NEEDS)
PARTS = (Part(NEEDS, 1),)
RIGHT = Asked(("p",), 1, 4, 1000, "gres/gpu:h100:2")
BLOCKED = dataclasses.replace(
    JOB, comment=dataclasses.replace(JOB.comment, digest=NEEDS.digest), asked=RIGHT
)


def act(*jobs: Job) -> tuple[Action, ...]:
    return act_(WAITS, jobs=jobs)


def test_a_job_that_requests_what_its_pods_need_or_more_is_adopted() -> None:
    assert difference(BLOCKED, PARTS) == ""
    more = RIGHT._replace(
        tasks=2, cpus=8, memory=2000, gres="gres/gpu:h100:4,gres/nic:1", partitions=("q", "p")
    )
    assert difference(dataclasses.replace(BLOCKED, asked=more), PARTS) == ""
    assert act(BLOCKED) == (Label(WAITS, 7),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"partitions": ("other",)}, "job 7 is not in partition p"),
        ({"tasks": 0}, "job 7 requests 0 tasks, and its pods need 1"),
        ({"cpus": 3}, "job 7 requests 3 CPUs for each pod, and its pods need 4"),
        ({"memory": 10}, "job 7 requests 10 MiB for each pod, and its pods need 1000"),
        (
            {"gres": "gres/gpu:h100:1"},
            "job 7 requests 1 gpu:h100 for each pod, and its pods need 2",
        ),
        ({"gres": ""}, "job 7 requests 0 gpu:h100 for each pod, and its pods need 2"),
    ],
)
def test_a_job_that_requests_less_is_cancelled_with_the_reason_and_another_one_submitted_later(
    change: dict[str, Any], words: str
) -> None:
    forged = dataclasses.replace(BLOCKED, asked=RIGHT._replace(**change))
    assert act(forged) == (
        Cancel(7, words, refused=KEY),
        Report(WAITS, Why.REFUSED, f"{words}: it is cancelled, and another one is submitted"),
    )


def test_a_job_that_requests_enough_is_adopted_beside_a_forged_one_which_is_cancelled() -> None:
    forged = dataclasses.replace(BLOCKED, job_id=5, asked=RIGHT._replace(cpus=1))
    actions = act(forged, BLOCKED)
    assert [it for it in actions if isinstance(it, Label)] == [Label(WAITS, 7)]
    assert [it.job for it in actions if isinstance(it, Cancel)] == [5]
    assert not any(isinstance(it, Submit) for it in actions)


OTHER = Shape("ada", "p", cpus=2)


@pytest.mark.parametrize("rest", [None, ("other", 1), ("first", 1), ("second", 2)])
def test_a_job_of_which_a_component_is_for_other_pods_is_not_adopted(
    rest: tuple[str, int] | None,
) -> None:
    """Its user can copy a comment onto a job without the components, or write others on the
    components.
    """
    key = GroupKey("team", "group/g")
    waits = [
        dataclasses.replace(POD, uid=f"u{i}", name=f"p{i}", key=key, size=2, group="group g")
        for i in range(2)
    ]
    pods = [
        dataclasses.replace(pod, shape=shape)
        for pod, shape in zip(waits, (OTHER, NEEDS), strict=True)
    ]
    its = tuple((part.shape.digest, part.pods) for part in parts_of(pods))
    comment = Comment("team", "group/g", "", 2, its)
    right = dataclasses.replace(BLOCKED, comment=comment, asked=None)
    second = dataclasses.replace(right, job_id=8, offset=1)
    whole = together([right, second])
    assert [it.job for it in act_(*pods, jobs=(whole,)) if isinstance(it, Label)] == [7, 8]
    forged = right
    if rest is not None:
        digests = {"first": its[0][0], "second": its[1][0], "other": "0"}
        wrong = dataclasses.replace(comment, parts=(its[0], (digests[rest[0]], rest[1])))
        forged = together([right, dataclasses.replace(second, comment=wrong)])
    actions = act_(*pods, jobs=(forged,))
    assert [it.job for it in actions if isinstance(it, Cancel)] == [7]
    assert any(isinstance(it, Submit) for it in actions)
