"""Which jobs are cancelled because none of their pods exists. `test_decide` has the jobs of pods
that are known.
"""

import dataclasses

import pytest

from sidecars.bridge.core import orphans
from sidecars.bridge.core.records import Cancel, GroupKey, Job, Phase, Pod, View
from sidecars.bridge.core.shape import Shape
from sidecars.contract.bridge import Comment

SHAPE = Shape("ada", "p")
SET = GroupKey("team", "jobset/j")
POD = Pod("u", "team", "pod", SET, gated=True, size=0, shape=SHAPE)
BLOCKED = Job(7, Phase.SUBMITTED, "ada", Comment("team", SET.group, SHAPE.digest))
PART = dataclasses.replace(BLOCKED, comment=Comment("team", "jobset/j/workers", SHAPE.digest))
NOTHING = Cancel(7, "none of its pods exists")


def cancelled(pod: Pod, job: Job, *, kinds: bool = True) -> tuple[Cancel, ...]:
    view = View((pod,), {job.job_id: job}, True, {"team": "ada"}, {"a": ""})
    return tuple(
        orphans.cancelled(view if kinds else dataclasses.replace(view, kinds=None), frozenset())
    )


@pytest.mark.parametrize("job", [BLOCKED, PART])
def test_a_held_job_stays_until_it_is_known_what_its_pods_wait_for(job: Job) -> None:
    """A bridge that starts has not read the objects with the sizes of groups, nor Slurm's nodes."""
    assert cancelled(POD, job) == ()
    assert cancelled(dataclasses.replace(POD, size=1), job, kinds=False) == ()
    for known in ({"size": 1}, {"problem": "has no size"}, {"deleting": True}, {"job": 8}):
        assert cancelled(dataclasses.replace(POD, **known), job) == (NOTHING,)


def test_a_held_job_stays_while_its_pods_can_not_be_changed() -> None:
    pod, users = dataclasses.replace(POD, size=1), {"team": "ada"}
    for unwritable, want in (
        ({"team": ""}, ()),
        ({"team": "no right"}, ()),
        ({"other": ""}, (NOTHING,)),
        ({}, (NOTHING,)),
    ):
        view = View((pod,), {7: BLOCKED}, known=True, users=users, unwritable=unwritable)
        assert tuple(orphans.cancelled(view, frozenset())) == want


def test_a_held_job_of_a_pod_alone_stays_until_the_object_that_the_pod_names_is_read() -> None:
    """A PodGroup or a Workload without a gang has no group for its pods: each has a job by its
    uid.
    """
    alone = dataclasses.replace(BLOCKED, comment=Comment("team", POD.uid, SHAPE.digest))
    assert cancelled(POD, alone) == ()
    assert cancelled(dataclasses.replace(POD, size=1), alone) == (NOTHING,)
    assert cancelled(dataclasses.replace(POD, uid="v"), alone) == (NOTHING,)


def test_pods_of_other_groups_keep_no_held_job() -> None:
    for group in ("jobset/i", "jobset/j/workers/x", "jobset", "obset/j"):
        pod = dataclasses.replace(POD, key=GroupKey("team", group))
        assert cancelled(pod, PART) == ((NOTHING,) if group != "jobset" else ())
    assert cancelled(
        dataclasses.replace(POD, namespace="b", key=GroupKey("b", SET.group)), BLOCKED
    ) == (NOTHING,)


def test_a_job_stays_while_a_pod_may_have_got_its_label_that_does_not_show_it_yet() -> None:
    """The cache may show first that the job's other pods are gone."""
    running = dataclasses.replace(BLOCKED, phase=Phase.RUNNING, confirmed=True)
    pod = dataclasses.replace(POD, size=1)
    for seen, labelling, want in (
        (pod, {pod.uid: 7}, ()),
        (pod, {pod.uid: 8}, (NOTHING,)),
        (pod, {"other": 7}, (NOTHING,)),
        (dataclasses.replace(pod, finished=True), {pod.uid: 7}, (NOTHING,)),
    ):
        view = View((seen,), {7: running}, known=True, users={"team": "ada"}, labelling=labelling)
        assert tuple(orphans.cancelled(view, frozenset())) == want
