"""Which jobs are cancelled because none of their pods exists. `test_decide` has the jobs of pods that are known."""

import dataclasses

import pytest

from sidecars.contract.bridge import Comment
from sidecars.policy.bridge import orphans
from sidecars.policy.bridge.records import Cancel, GroupKey, Job, Phase, Pod, View
from sidecars.policy.bridge.shape import Shape

SHAPE = Shape("ada", "p")
SET = GroupKey("team", "jobset/j")
POD = Pod("u", "team", "pod", SET, gated=True, size=0, shape=SHAPE)
HELD = Job(7, Phase.SUBMITTED, "ada", Comment("team", SET.group, SHAPE.digest))
PART = dataclasses.replace(HELD, comment=Comment("team", "jobset/j/workers", SHAPE.digest))
NOTHING = Cancel(7, "none of its pods exists")


def cancelled(pod: Pod, job: Job, *, kinds: bool = True) -> tuple[Cancel, ...]:
    view = View((pod,), {job.job_id: job}, True, {"team": "ada"}, {"a": ""})
    return tuple(orphans.cancelled(view if kinds else dataclasses.replace(view, kinds=None), frozenset()))


@pytest.mark.parametrize("job", [HELD, PART])
def test_a_held_job_stays_until_it_is_known_what_its_pods_wait_for(job: Job) -> None:
    """A bridge that starts has not read the objects with the sizes of groups, nor Slurm's nodes."""
    assert cancelled(POD, job) == ()
    assert cancelled(dataclasses.replace(POD, size=1), job, kinds=False) == ()
    for known in ({"size": 1}, {"problem": "has no size"}, {"deleting": True}, {"job": 8}):
        assert cancelled(dataclasses.replace(POD, **known), job) == (NOTHING,)


def test_a_held_job_of_a_pod_alone_stays_until_the_object_that_the_pod_names_is_read() -> None:
    """A PodGroup or a Workload without a gang has no group for its pods: each has a job by its uid."""
    alone = dataclasses.replace(HELD, comment=Comment("team", POD.uid, SHAPE.digest))
    assert cancelled(POD, alone) == ()
    assert cancelled(dataclasses.replace(POD, size=1), alone) == (NOTHING,)
    assert cancelled(dataclasses.replace(POD, uid="v"), alone) == (NOTHING,)


def test_pods_of_other_groups_keep_no_held_job() -> None:
    for group in ("jobset/i", "jobset/j/workers/x", "jobset", "obset/j"):
        pod = dataclasses.replace(POD, key=GroupKey("team", group))
        assert cancelled(pod, PART) == ((NOTHING,) if group != "jobset" else ())
    assert cancelled(dataclasses.replace(POD, namespace="b", key=GroupKey("b", SET.group)), HELD) == (NOTHING,)
