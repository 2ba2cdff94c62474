"""Single decisions about pods and their placeholder jobs."""

import dataclasses
from typing import Any

import pytest

from sidecars.contract.bridge import Comment
from sidecars.policy.bridge.decide import decide
from sidecars.policy.bridge.records import (
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
    Submit,
    View,
    Why,
)
from sidecars.policy.bridge.shape import Shape

SHAPE = Shape("ada", "p")
KEY = GroupKey("team", "u")
POD = Pod("u", "team", "pod", KEY, gated=True, shape=SHAPE)
JOB = Job(7, Phase.SUBMITTED, "ada", Comment("team", "u", SHAPE.digest))
LABELLED = dataclasses.replace(POD, job=7)
RUNNING = dataclasses.replace(JOB, phase=Phase.RUNNING, slots=(("a", 1),), end_time=1000, confirmed=True)
BOUND = dataclasses.replace(LABELLED, gated=False, node="a", bound=True)


def act(*pods: Pod, jobs: tuple[Job, ...] = (), **values: Any) -> tuple[Action, ...]:
    view = View(pods, {job.job_id: job for job in jobs}, True, {"team": "ada"}, {"a": "", "b": ""})
    return decide(dataclasses.replace(view, **values))


def group(size: int, **values: Any) -> tuple[Pod, ...]:
    key, shape = GroupKey("team", "group/g"), dataclasses.replace(SHAPE, pods=size)
    return tuple(
        dataclasses.replace(POD, uid=f"u{i}", name=f"p{i}", key=key, shape=shape, **values) for i in range(size)
    )


def test_each_step_of_the_protocol_follows_the_one_before() -> None:
    assert act(POD) == (Submit(KEY, SHAPE),)
    assert act(POD, jobs=(JOB,)) == (Label(POD, 7),)
    assert act(LABELLED, jobs=(JOB,)) == (Start(JOB),)
    assert act(LABELLED, jobs=(RUNNING,)) == (Release(LABELLED, 7, "a", 1000),)
    assert act(BOUND, jobs=(RUNNING,)) == ()


def test_nothing_is_submitted_while_an_earlier_submission_is_open() -> None:
    assert act(POD, submitting=frozenset({KEY})) == ()


def test_of_two_held_jobs_the_first_is_adopted_and_the_other_cancelled() -> None:
    other = dataclasses.replace(JOB, job_id=8)
    assert act(POD, jobs=(other, JOB)) == (Label(POD, 7), Cancel(8, "none of its pods exists"))


@pytest.mark.parametrize("change", [{"user": "eve"}, {"comment": Comment("team", "u", "other")}])
def test_a_job_of_another_user_or_of_other_requests_is_not_adopted(change: dict[str, Any]) -> None:
    assert Submit(KEY, SHAPE) in act(POD, jobs=(dataclasses.replace(JOB, **change),))


def test_a_forged_comment_does_not_get_a_foreign_job_cancelled() -> None:
    assert act(jobs=(dataclasses.replace(RUNNING, user="eve", confirmed=False),)) == ()


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.STARTING, Phase.STOPPED])
def test_a_pod_is_not_released_before_its_job_runs(phase: Phase) -> None:
    [action] = act(LABELLED, jobs=(dataclasses.replace(RUNNING, phase=phase),))
    assert isinstance(action, Report)
    assert action.why is Why.WAITING


def test_a_pod_is_not_released_to_a_node_with_a_pod_of_an_ended_job() -> None:
    old = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True, deleting=True)
    ended = Job(3, Phase.ENDED, "ada", Comment("team", "o"))
    [action] = act(LABELLED, old, jobs=(RUNNING, ended))
    assert isinstance(action, Report)
    assert action.why is Why.NODE_NOT_FREE
    assert "team/old" in action.message


def test_a_pod_whose_release_a_cache_may_not_show_yet_blocks_the_nodes_of_its_ended_job() -> None:
    old = Pod("o", "team", "old", GroupKey("team", "o"), gated=True, job=3, shape=SHAPE)
    ended = Job(3, Phase.ENDED, "ada", Comment("team", "o"), (("a", 1),))
    assert not any(isinstance(it, Release) for it in act(LABELLED, old, jobs=(RUNNING, ended)))


def test_a_pod_of_an_unknown_job_is_reported_and_blocks_its_node_and_is_not_deleted() -> None:
    old = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True)
    actions = act(LABELLED, old, jobs=(RUNNING,))
    assert {(type(it), it.why) for it in actions if isinstance(it, Report)} == {
        (Report, Why.NODE_NOT_FREE),
        (Report, Why.JOB_UNKNOWN),
    }
    assert len(actions) == 2


def test_a_job_id_that_another_group_has_got_deletes_nothing() -> None:
    """After slurmctld has lost its state, ids begin again."""
    other = Job(7, Phase.ENDED, "ada", Comment("team", "another"))
    assert [type(it) for it in act(BOUND, jobs=(other,))] == [Report]


def test_the_pods_of_an_ended_job_are_deleted_once() -> None:
    ended = dataclasses.replace(RUNNING, phase=Phase.ENDED)
    assert [type(it) for it in act(BOUND, jobs=(ended,))] == [DeletePod]
    assert act(dataclasses.replace(BOUND, deleting=True), jobs=(ended,)) == ()


def test_nothing_is_deleted_while_slurm_is_unknown() -> None:
    assert act(BOUND, jobs=(dataclasses.replace(RUNNING, phase=Phase.ENDED),), known=False) == ()


def test_a_job_is_cancelled_when_its_last_pod_is_gone_and_not_while_it_terminates() -> None:
    assert act(dataclasses.replace(BOUND, deleting=True), jobs=(RUNNING,)) == ()
    for gone in (dataclasses.replace(BOUND, finished=True), dataclasses.replace(BOUND, lost=True)):
        assert [type(it) for it in act(gone, jobs=(RUNNING,))] == [Cancel]
    assert [type(it) for it in act(jobs=(RUNNING,))] == [Cancel]


def test_a_pod_that_is_not_bound_in_time_costs_its_job_and_the_node_is_avoided() -> None:
    late = dataclasses.replace(BOUND, bound=False, unbound_seconds=15, unbound_reason="taint", owner="rs")
    [action] = act(late, jobs=(RUNNING,))
    assert isinstance(action, Cancel)
    assert action.avoid == ("rs", "a")
    assert "taint" in action.message
    fresh = dataclasses.replace(POD, owner="rs")
    assert act(fresh, avoided={"rs": ("a",)}) == (Submit(KEY, SHAPE, ("a",)),)


@pytest.mark.parametrize("nodes", [{}, {"a": "node a is cordoned"}])
def test_a_pod_is_not_released_to_a_node_that_is_gone_or_takes_no_pods(nodes: dict[str, str]) -> None:
    [action] = act(LABELLED, jobs=(RUNNING,), nodes=nodes)
    assert isinstance(action, Report)


def test_a_group_waits_until_all_of_its_pods_exist() -> None:
    pods = group(3)
    assert [type(it) for it in act(*pods[:2])] == [Report, Report]
    assert [type(it) for it in act(*pods)] == [Submit]


def test_a_group_is_released_together_or_not_at_all() -> None:
    pods = group(3, job=7)
    job = dataclasses.replace(RUNNING, comment=Comment("team", "group/g"), slots=(("a", 2), ("b", 1)))
    assert [it.node for it in act(*pods, jobs=(job,)) if isinstance(it, Release)] == ["a", "a", "b"]
    actions = act(*pods, jobs=(job,), nodes={"a": "", "b": "node b is cordoned"})
    assert [type(it) for it in actions] == [Report] * 3


def test_a_release_that_is_not_seen_yet_keeps_its_place() -> None:
    first, second = group(2, job=7)
    job = dataclasses.replace(RUNNING, comment=Comment("team", "group/g"), slots=(("a", 1), ("b", 1)))
    sent = dataclasses.replace(second, node="a")
    assert [(it.pod, it.node) for it in act(first, sent, jobs=(job,)) if isinstance(it, Release)] == [
        (sent, "a"),
        (first, "b"),
    ]


def test_a_job_starts_only_when_all_pods_of_the_group_have_its_label() -> None:
    pods, job = group(2, job=7), dataclasses.replace(JOB, comment=Comment("team", "group/g"))
    half = (pods[0], dataclasses.replace(pods[1], job=None))
    assert [type(it) for it in act(*half, jobs=(job,))] == [Label, Report]
    assert act(*pods, jobs=(job,)) == (Start(job),)


def test_unequal_pods_of_one_group_are_refused() -> None:
    first, second = group(2)
    other = dataclasses.replace(second, shape=dataclasses.replace(SHAPE, pods=2, cpus=9))
    assert {it.why for it in act(first, other) if isinstance(it, Report)} == {Why.REFUSED}


def test_a_replacement_takes_the_place_of_a_pod_only_when_that_one_is_gone() -> None:
    first, second = (dataclasses.replace(it, gated=False, node="a", bound=True) for it in group(2, job=7))
    new = dataclasses.replace(group(2)[0], uid="n", name="n")
    job = dataclasses.replace(RUNNING, comment=Comment("team", "group/g"), slots=(("a", 2),))
    leaving = dataclasses.replace(second, deleting=True)
    assert not any(isinstance(it, Label) for it in act(first, leaving, new, jobs=(job,)))
    assert act(first, new, jobs=(job,)) == (Label(new, 7),)


def test_a_refused_pod_is_told_why() -> None:
    bad = dataclasses.replace(POD, shape=None, problem="no tenant")
    assert act(bad) == (Report(bad, Why.REFUSED, "no tenant"),)
    assert act(dataclasses.replace(bad, reported=("Refused", "no tenant"))) == ()


def test_a_pod_with_another_gate_waits() -> None:
    assert [type(it) for it in act(dataclasses.replace(POD, blocked=True))] == [Report]


def test_a_job_of_uid_0_is_cancelled_and_never_started() -> None:
    root = dataclasses.replace(JOB, root=True)
    assert act(POD, jobs=(root,), submitting=frozenset({KEY})) == (Cancel(7, "its user ada has uid 0"),)
    assert act(jobs=(dataclasses.replace(root, user="eve"),)) == ()
