"""Pods whose job their user has submitted."""

import dataclasses
from typing import Any

import pytest

from sidecars.bridge.core.decide import decide
from sidecars.bridge.core.placeholder import comment_of, job_of
from sidecars.bridge.core.records import (
    Action,
    Cancel,
    DeletePod,
    GroupKey,
    Job,
    Label,
    Phase,
    Pod,
    Release,
    Report,
    Start,
    View,
    Why,
)
from sidecars.bridge.core.shape import Shape
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation, ExternalJob

SHAPE = Shape("ada", "p", cpus=2)
KEY = GroupKey("team", "group/g")
COMMENT = Comment("team", "group/g", by_user=True)
PENDING = Job(8, Phase.PENDING, "ada", COMMENT, reason="Resources", whole=7)
RUNNING = dataclasses.replace(
    PENDING, phase=Phase.RUNNING, slots=(("a", 1), ("b", 1)), end_time=1000
)


def group(size: int = 2, **values: Any) -> tuple[Pod, ...]:
    first = Pod(
        "u", "team", "p", KEY, gated=True, shape=SHAPE, size=size, group="group g", submit=False
    )
    return tuple(
        dataclasses.replace(first, uid=f"u{i}", name=f"p{i}", **values) for i in range(size)
    )


def act(*pods: Pod, jobs: tuple[Job, ...] = (), **values: Any) -> tuple[Action, ...]:
    view = View(pods, {job.job_id: job for job in jobs}, True, {"team": "ada"}, {"a": "", "b": ""})
    return decide(dataclasses.replace(view, **values))


def test_no_job_is_submitted_for_pods_that_wait_for_one_of_their_user() -> None:
    found = act(*group())
    assert {type(it) for it in found} == {Report}
    assert {it.why for it in found if isinstance(it, Report)} == {Why.NO_JOB}
    assert all(
        "comment slurm-bridge:team/g" in it.message for it in found if isinstance(it, Report)
    )


@pytest.mark.parametrize("job", [PENDING, RUNNING])
def test_the_pods_get_the_job_of_their_user_when_all_of_them_exist(job: Job) -> None:
    pods = group()
    assert act(*pods, jobs=(job,)) == tuple(Label(pod, 8) for pod in pods)
    [alone] = act(pods[0], jobs=(job,))
    assert isinstance(alone, Report)
    assert alone.why is Why.INCOMPLETE


@pytest.mark.parametrize("job", [PENDING, RUNNING])
def test_the_pods_get_the_first_of_several_jobs_of_their_user(job: Job) -> None:
    pods = group()
    second = dataclasses.replace(PENDING, job_id=10, whole=9)
    assert act(*pods, jobs=(second, job)) == tuple(Label(pod, 8) for pod in pods)
    ended = dataclasses.replace(job, phase=Phase.ENDED, state="COMPLETED")
    assert act(*pods, jobs=(second, ended)) == tuple(Label(pod, 10) for pod in pods)


def test_a_job_of_the_user_does_not_keep_one_of_the_bridge_from_its_start() -> None:
    pods = group(job=5, submit=True)
    kept = Job(5, Phase.SUBMITTED, "ada", Comment("team", "group/g", SHAPE.digest, 2))
    assert act(*pods, jobs=(kept, PENDING)) == (Start(kept),)


def test_a_job_that_runs_before_its_pods_exist_is_not_cancelled() -> None:
    assert act(jobs=(RUNNING,)) == ()


def test_a_job_of_another_user_brings_no_pods_along() -> None:
    other = dataclasses.replace(RUNNING, user="eve")
    assert {it.why for it in act(*group(), jobs=(other,)) if isinstance(it, Report)} == {Why.NO_JOB}
    root = dataclasses.replace(RUNNING, root=True)
    assert not [it for it in act(*group(), jobs=(root,)) if isinstance(it, Label | Cancel)]


def test_the_pods_are_released_when_all_of_them_have_the_job_and_it_has_places_for_all() -> None:
    first, second = group(job=8)
    assert act(first, second, jobs=(RUNNING,)) == (
        Release(first, 8, "a", 1000),
        Release(second, 8, "b", 1000),
    )
    unlabelled = dataclasses.replace(second, job=None)
    incomplete = Report(
        first, Why.INCOMPLETE, "1 of 2 pods of group g have Slurm job 8, which runs"
    )
    assert act(first, unlabelled, jobs=(RUNNING,)) == (Label(unlabelled, 8), incomplete)
    assert act(first, jobs=(RUNNING,)) == (incomplete,), (
        "the other one was deleted while the job waited"
    )
    small = dataclasses.replace(RUNNING, slots=(("a", 1),))
    found = act(first, second, jobs=(small,))
    assert [it.message for it in found if isinstance(it, Report)] == [
        "Slurm job 8 has places for 1 of 2 pods: request more tasks in it"
    ] * len(found)


def test_unequal_pods_are_refused() -> None:
    first, second = group()
    other = dataclasses.replace(second, shape=dataclasses.replace(SHAPE, cpus=4))
    assert {it.why for it in act(first, other, jobs=(RUNNING,)) if isinstance(it, Report)} == {
        Why.REFUSED
    }


def test_a_pod_that_replaces_another_one_gets_its_place() -> None:
    first, second = group(job=8)
    runs = dataclasses.replace(first, gated=False, node="a", bound=True)
    again = dataclasses.replace(second, job=None)
    assert act(runs, again, jobs=(RUNNING,)) == (Label(again, 8),)
    assert act(runs, second, jobs=(RUNNING,)) == (Release(second, 8, "b", 1000),)


def test_the_pods_are_deleted_when_the_job_ends_and_wait_for_the_next_one() -> None:
    pods = group(job=8, gated=False, node="a", bound=True)
    ended = dataclasses.replace(RUNNING, phase=Phase.ENDED, state="COMPLETED")
    assert [type(it) for it in act(*pods, jobs=(ended,))] == [DeletePod, DeletePod]
    assert {it.why for it in act(*group(), jobs=(ended,)) if isinstance(it, Report)} == {Why.NO_JOB}


def test_a_pod_that_is_not_bound_costs_the_whole_heterogeneous_job() -> None:
    released, _ = group(job=8, gated=False, node="a", unbound_seconds=60, unbound_reason="no room")
    [found] = [it for it in act(released, jobs=(RUNNING,)) if isinstance(it, Cancel)]
    assert (found.job, found.rest) == (7, (8,))


@pytest.mark.parametrize(
    "text", ["slurm-bridge:team/g", "slurm-bridge:team", "slurm-bridge:/g", "team/g", ""]
)
def test_only_a_comment_that_names_namespace_and_group_brings_pods_along(text: str) -> None:
    record = ExternalJob(8, external=True, comment=text)
    assert comment_of(record) == (COMMENT if text == "slurm-bridge:team/g" else None)
    assert comment_of(dataclasses.replace(record, external=False)) is None


def test_a_comment_of_the_bridge_goes_before_that_of_a_user() -> None:
    theirs = Comment("team", "u", "d")
    record = ExternalJob(
        8, external=True, comment="slurm-bridge:team/g", admin_comment=bridge.encode(theirs)
    )
    assert comment_of(record) == theirs


def test_a_job_that_its_user_blocks_waits_and_is_not_started() -> None:
    record = ExternalJob(
        8,
        external=True,
        user_name="ada",
        blocked=True,
        het_id=7,
        het_offset=1,
        reason="JobHeldUser",
    )
    job = job_of(record, COMMENT, frozenset({"PENDING"}), current=True, shapes={}, kube_nodes={})
    assert (job.phase, job.whole) == (Phase.PENDING, 7)
    runs = dataclasses.replace(record, allocations=(Allocation("n", 4),), cpus_per_task=2)
    job = job_of(
        runs,
        COMMENT,
        frozenset({"RUNNING"}),
        current=True,
        shapes={8: {(KEY, SHAPE)}},
        kube_nodes={"n": "k"},
    )
    assert (job.phase, job.slots) == (Phase.RUNNING, (("k", 2),))
