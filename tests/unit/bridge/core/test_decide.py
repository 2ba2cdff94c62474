"""Single decisions about pods and their placeholder jobs."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from sidecars.bridge.core import decide as decide_module
from sidecars.bridge.core import pods
from sidecars.bridge.core.decide import decide
from sidecars.bridge.core.devices import Claim, Device, Granted, Wish
from sidecars.bridge.core.feasible import Needs
from sidecars.bridge.core.manifests import Pod as KubePod
from sidecars.bridge.core.placeholder import together
from sidecars.bridge.core.records import (
    Action,
    Allow,
    Cancel,
    Deallocate,
    DeletePod,
    Disruption,
    Grant,
    GroupKey,
    Job,
    Kind,
    Label,
    Obstacle,
    Part,
    Phase,
    Pod,
    Release,
    Report,
    Requeue,
    Start,
    Submit,
    View,
    Why,
)
from sidecars.bridge.core.shape import Shape
from sidecars.bridge.core.starting import Starting
from sidecars.contract.bridge import Comment

SHAPE = Shape("ada", "p")
ONE = (Part(SHAPE, 1),)
KEY = GroupKey("team", "u")
POD = Pod("u", "team", "pod", KEY, gated=True, shape=SHAPE)
JOB = Job(7, Phase.SUBMITTED, "ada", Comment("team", "u", SHAPE.digest))
LABELLED = dataclasses.replace(POD, job=7)
RUNNING = dataclasses.replace(
    JOB, phase=Phase.RUNNING, slots=(("a", 1),), end_time=1000, confirmed=True
)
BOUND = dataclasses.replace(LABELLED, gated=False, node="a", bound=True)


def act(*pods: Pod, jobs: tuple[Job, ...] = (), **values: Any) -> tuple[Action, ...]:
    view = View(pods, {job.job_id: job for job in jobs}, True, {"team": "ada"}, {"a": "", "b": ""})
    return decide(dataclasses.replace(view, **values))


def group(size: int, **values: Any) -> tuple[Pod, ...]:
    key = GroupKey("team", "group/g")
    return tuple(
        dataclasses.replace(
            POD, uid=f"u{i}", name=f"p{i}", key=key, size=size, group="group g", **values
        )
        for i in range(size)
    )


GPUS = tuple(Device("d", "a", f"gpu-{index}") for index in range(2))
HAS_GPUS = dataclasses.replace(RUNNING, devices=(("a", "gpu:h100", GPUS),))
CLAIM = Claim("c", "p-gpu", (Wish("gpu", "gpu:h100", 1),))
GRANTED = (Granted("gpu", GPUS[0]),)


def claiming(**values: Any) -> Pod:
    return dataclasses.replace(LABELLED, claims=(dataclasses.replace(CLAIM, **values),))


def test_a_group_starts_with_the_lowest_of_its_priorities_or_with_none_if_a_pod_sets_none() -> None:
    job = dataclasses.replace(JOB, comment=Comment("team", "group/g", SHAPE.digest, 2))

    def starts(*priorities: int) -> int:
        pods = (
            dataclasses.replace(it, shape=dataclasses.replace(SHAPE, priority=priority))
            for it, priority in zip(group(2, job=7), priorities, strict=True)
        )
        [start] = act(*pods, jobs=(job,))
        assert isinstance(start, Start)
        return start.priority

    assert starts(700, 600) == 600
    assert starts(700, 0) == 0


def test_a_job_that_is_started_again_keeps_the_priority_of_its_pods() -> None:
    pod = dataclasses.replace(LABELLED, shape=dataclasses.replace(SHAPE, priority=700))
    [start, _] = act(pod, jobs=(STUCK,))
    assert start == Start(STUCK, 700)


def test_a_pod_is_released_when_its_claim_shows_the_device_of_its_job() -> None:
    pod, sent, shown = claiming(), claiming(granted=GRANTED), claiming(granted=GRANTED, shown=True)
    assert act(pod, jobs=(HAS_GPUS,)) == (Grant(pod, "a", CLAIM, GRANTED),)
    [action] = act(sent, jobs=(HAS_GPUS,), holders={GPUS[0]: {"c"}})
    assert isinstance(action, Grant)
    assert act(shown, jobs=(HAS_GPUS,), holders={GPUS[0]: {"c"}}) == (Release(shown, 7, "a", 1000),)


def test_a_pod_is_not_released_when_its_claim_shows_another_device() -> None:
    shown = claiming(granted=(Granted("gpu", Device("d", "a", "gpu-7")),), shown=True)
    assert act(shown, jobs=(HAS_GPUS,)) == (
        Deallocate(shown, shown.claims[0] if shown.claims else CLAIM),
    )
    lost = dataclasses.replace(LABELLED, claims=None, problem="no claim")
    [report] = act(lost, jobs=(HAS_GPUS,))
    assert isinstance(report, Report)
    assert "can't be read" in report.message


def test_no_device_is_given_on_a_node_with_a_pod_of_an_ended_job() -> None:
    other = dataclasses.replace(
        BOUND, uid="o", name="old", key=GroupKey("team", "o"), job=6, deleting=True
    )
    [report] = act(claiming(), other, jobs=(HAS_GPUS,))
    assert isinstance(report, Report)
    assert report.why is Why.NODE_NOT_FREE


def test_a_group_with_claims_starts_together_on_the_nodes_of_its_devices() -> None:
    key = GroupKey("team", "group/g")
    there = Device("d", "b", "gpu-9")
    job = dataclasses.replace(
        HAS_GPUS,
        comment=Comment("team", "group/g", SHAPE.digest, 2),
        slots=(("a", 1), ("b", 1)),
        devices=(("a", "gpu:h100", GPUS[:1]), ("b", "gpu:h100", (there,))),
    )
    has = dataclasses.replace(CLAIM, uid="c0", granted=(Granted("gpu", there),), shown=True)
    first, second = (
        dataclasses.replace(LABELLED, uid=f"u{i}", name=f"p{i}", key=key, size=2, claims=(claim,))
        for i, claim in enumerate((has, dataclasses.replace(CLAIM, uid="c1")))
    )
    [grant] = act(first, second, jobs=(job,), holders={there: {"c0"}})
    assert isinstance(grant, Grant)
    assert (grant.pod.name, grant.node) == ("p1", "a")


def test_each_step_of_the_protocol_follows_the_one_before() -> None:
    assert act(POD) == (Submit(KEY, ONE),)
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
    assert Submit(KEY, ONE) in act(POD, jobs=(dataclasses.replace(JOB, **change),))


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


def test_a_pod_is_not_released_to_cores_that_slurm_has_given_to_two_jobs() -> None:
    """Slurm gives the cores of a suspended job to others, and resumes it all the same."""
    resumed = Job(
        3, Phase.RUNNING, "ada", Comment("team", "o"), (("a", 1),), confirmed=True, cpus=(("a", 2),)
    )
    theirs = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True)
    job = dataclasses.replace(RUNNING, cpus=(("a", 1),))
    [action] = act(LABELLED, theirs, jobs=(job, resumed), cpus={"a": 2})
    assert isinstance(action, Report)
    words = (
        "jobs 3, 7 have more CPUs than it has, as after the resumption of a suspended job: "
        "cancel one of them"
    )
    assert action.message == f"Slurm job 7 has its nodes, but {words} on node a"
    cpus: tuple[dict[str, int], ...] = ({"a": 3}, {})
    for each in cpus:
        assert [type(it) for it in act(LABELLED, theirs, jobs=(job, resumed), cpus=each)] == [
            Release
        ]


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.STARTING])
def test_a_pod_is_not_released_beside_one_whose_job_has_lost_its_start(phase: Phase) -> None:
    """slurmctld that was killed may have saved less than it has answered."""
    theirs = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True)
    rolled_back = Job(3, phase, "ada", Comment("team", "o"), confirmed=True)
    actions = act(LABELLED, theirs, jobs=(RUNNING, rolled_back))
    [report] = [it for it in actions if isinstance(it, Report)]
    assert (
        report.message
        == "Slurm job 7 has its nodes, but pod team/old, whose job has no place there, is on node a"
    )
    assert [it for it in actions if isinstance(it, Release)] == []
    elsewhere = dataclasses.replace(rolled_back, phase=Phase.RUNNING, slots=(("b", 1),))
    assert not any(
        isinstance(it, Release) for it in act(LABELLED, theirs, jobs=(RUNNING, elsewhere))
    )


def test_a_pod_is_not_released_where_a_job_that_started_again_has_as_many_pods_as_places() -> None:
    key, comment = GroupKey("team", "group/o"), Comment("team", "group/o", pods=2)
    theirs = [
        Pod(f"o{i}", "team", f"old-{i}", key, job=3, node="a", bound=True, size=2) for i in range(2)
    ]
    moved = Job(3, Phase.RUNNING, "ada", comment, slots=(("a", 1), ("b", 1)), confirmed=True)
    actions = act(LABELLED, *theirs, jobs=(RUNNING, moved))
    assert [it.message for it in actions if isinstance(it, Report)] == [
        "Slurm job 7 has its nodes, but pod team/old-1, whose job has no place there, is on node a"
    ]
    assert [it for it in actions if isinstance(it, Release)] == []
    both = dataclasses.replace(moved, slots=(("a", 2),))
    assert [
        it.pod for it in act(LABELLED, *theirs, jobs=(RUNNING, both)) if isinstance(it, Release)
    ] == [LABELLED]


def test_a_pod_is_not_released_to_a_node_with_a_pod_of_a_suspended_job() -> None:
    """Slurm gives the cores of a suspended job to others, and its pods run on."""
    old = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True)
    suspended = Job(3, Phase.STOPPED, "ada", Comment("team", "o"), (("a", 1),))
    [action] = act(LABELLED, old, jobs=(RUNNING, suspended))
    assert isinstance(action, Report)
    assert (
        action.message
        == "Slurm job 7 has its nodes, but pod team/old of a suspended job is on node a"
    )


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


def test_a_pod_about_whose_job_slurmdbd_is_still_to_answer_shows_nothing_and_blocks_its_node() -> (
    None
):
    old = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True)
    [action] = act(LABELLED, old, jobs=(RUNNING,), unanswered=frozenset({3}))
    assert isinstance(action, Report)
    assert action.why is Why.NODE_NOT_FREE


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


def test_a_job_whose_pods_have_all_ended_is_cancelled_with_their_highest_exit_code() -> None:
    key = GroupKey("team", "group/g")
    job = dataclasses.replace(RUNNING, comment=Comment("team", "group/g", SHAPE.digest, 2))
    first, second = (
        dataclasses.replace(BOUND, uid=f"u{i}", name=f"p{i}", key=key, size=2, finished=True)
        for i in range(2)
    )
    for codes, want in (((0, 0), 0), ((3, 0), 3), ((0, None), None)):
        pods = (
            dataclasses.replace(first, exit_code=codes[0]),
            dataclasses.replace(second, exit_code=codes[1]),
        )
        note = None if want is None else dataclasses.replace(job.comment, exit_code=want)
        assert act(*pods, jobs=(job,)) == (Cancel(7, "none of its pods exists", note=note),)
    [alone] = act(dataclasses.replace(first, exit_code=0), jobs=(job,))
    assert alone == Cancel(7, "none of its pods exists")


def test_a_pod_of_another_namespace_with_the_id_from_a_lost_state_keeps_no_job() -> None:
    other = dataclasses.replace(
        BOUND, namespace="other", key=GroupKey("other", "v"), uid="v", node="c"
    )
    assert Cancel(7, "none of its pods exists") in act(other, jobs=(RUNNING,))
    assert not [it for it in act(other, BOUND, jobs=(RUNNING,)) if isinstance(it, Cancel)]


def test_a_pod_that_is_not_bound_in_time_costs_its_job_and_the_node_is_avoided() -> None:
    late = dataclasses.replace(
        BOUND, bound=False, unbound_seconds=15, unbound_reason="taint", owner="rs"
    )
    [action] = act(late, jobs=(RUNNING,))
    assert isinstance(action, Cancel)
    assert (action.avoid, action.unbound) == (("team/rs", "a"), late)
    assert "taint" in action.message
    fresh = dataclasses.replace(POD, owner="rs")
    assert act(fresh, avoided={"team/rs": ("a",)}) == (Submit(KEY, ONE, ("a",)),)


def test_a_pod_that_the_scheduler_has_not_tried_yet_keeps_its_job_for_minutes() -> None:
    """With thousands of pods released at once, the last one is tried after a minute."""
    late = dataclasses.replace(BOUND, bound=False, unbound_seconds=299)
    assert act(late, jobs=(RUNNING,)) == ()
    [action] = act(dataclasses.replace(late, unbound_seconds=300), jobs=(RUNNING,))
    assert isinstance(action, Cancel)


def test_a_scheduler_that_is_away_ends_no_job_for_an_hour() -> None:
    late = dataclasses.replace(BOUND, bound=False, unbound_seconds=3599, scheduler_away=True)
    assert act(late, jobs=(RUNNING,)) == ()
    [action] = act(dataclasses.replace(late, unbound_seconds=3600), jobs=(RUNNING,))
    assert isinstance(action, Cancel)
    assert "within 3600 s" in action.message
    # What it has tried, it has tried.
    [action] = act(dataclasses.replace(late, unbound_reason="taint"), jobs=(RUNNING,))
    assert isinstance(action, Cancel)


STARTING = dataclasses.replace(
    BOUND, starting=Starting("container c: ImagePullBackOff"), owner="rs"
)


def test_a_pod_that_the_kubelet_can_not_start_gives_its_resources_back_after_ten_minutes() -> None:
    fails = dataclasses.replace(STARTING, starting_seconds=599)
    assert act(fails, jobs=(RUNNING,)) == ()
    fails = dataclasses.replace(STARTING, starting_seconds=600)
    [action] = act(fails, jobs=(RUNNING,))
    assert isinstance(action, Cancel)
    assert (action.job, action.avoid, action.unstarted) == (7, ("team/rs", "a"), fails)
    assert action.note is not None
    assert action.note.given_up, "its owner hasn't ended it: the pod counts as disrupted"
    assert "within 600 s: container c: ImagePullBackOff" in action.message


def test_a_pod_about_which_the_kubelet_is_silent_has_an_hour_to_start() -> None:
    silent = dataclasses.replace(STARTING, starting=Starting(), starting_seconds=3599)
    assert act(silent, jobs=(RUNNING,)) == ()
    [action] = act(dataclasses.replace(silent, starting_seconds=3600), jobs=(RUNNING,))
    assert isinstance(action, Cancel)


def test_a_pod_that_can_not_start_costs_no_job_that_its_user_has_submitted() -> None:
    job = dataclasses.replace(RUNNING, comment=Comment("team", "u", by_user=True))
    fails = dataclasses.replace(STARTING, submit=False, starting_seconds=9999)
    assert act(fails, jobs=(job,)) == ()


@pytest.mark.parametrize("nodes", [{}, {"a": "node a is cordoned"}])
def test_a_pod_is_not_released_to_a_node_that_is_gone_or_takes_no_pods(
    nodes: dict[str, str],
) -> None:
    [action] = act(LABELLED, jobs=(RUNNING,), nodes=nodes)
    assert isinstance(action, Report)


CORDONED = {"a": "node a is cordoned", "b": ""}


def obstacles_of(*pods: Pod, jobs: tuple[Job, ...], **values: Any) -> dict[int, Obstacle]:
    view = View(pods, {job.job_id: job for job in jobs}, True, {"team": "ada"}, {"a": "", "b": ""})
    return dict(decide_module.decided(dataclasses.replace(view, **values)).obstacles)


def test_a_pod_that_kubernetes_refuses_to_release_is_tried_for_a_minute_and_then_queued_again() -> (
    None
):
    refused = {LABELLED.uid: "no"}
    [obstacle] = obstacles_of(LABELLED, jobs=(RUNNING,), refused=refused).values()
    assert obstacle == Obstacle("Kubernetes refuses to release a pod: no")
    before = {7: obstacle._replace(seconds=59)}
    assert [
        type(it) for it in act(LABELLED, jobs=(RUNNING,), refused=refused, obstacles=before)
    ] == [Release]
    late = {7: obstacle._replace(seconds=60)}
    [action] = act(LABELLED, jobs=(RUNNING,), refused=refused, obstacles=late)
    assert action == Requeue(LABELLED, 7, f"job 7 had its nodes for 60 s: {obstacle.message}")
    assert obstacles_of(LABELLED, jobs=(RUNNING,), refused={"another": "no"}) == {}
    # Neither does it take the id of the job off the pod.
    given_up = dataclasses.replace(RUNNING.comment, given_up=True)
    for stuck, more in (
        ({LABELLED.uid: 7}, (Cancel(7, action.message, note=given_up),)),
        ({LABELLED.uid: 6}, ()),
        ({"another": 7}, ()),
    ):
        found = act(LABELLED, jobs=(RUNNING,), refused=refused, obstacles=late, stuck=stuck)
        assert found == (action, *more)
    ended = dataclasses.replace(
        RUNNING, phase=Phase.ENDED, state="CANCELLED", slots=(), comment=given_up
    )
    [again] = act(LABELLED, jobs=(ended,))
    assert isinstance(again, Requeue)
    [gone] = act(LABELLED, jobs=(dataclasses.replace(ended, comment=RUNNING.comment),))
    assert isinstance(gone, DeletePod)


GIVEN_UP = dataclasses.replace(RUNNING.comment, given_up=True)


@pytest.mark.parametrize(
    ("state", "comment", "disruption"),
    [
        ("PREEMPTED", RUNNING.comment, Disruption.PREEMPTED),
        ("COMPLETING,PREEMPTED", RUNNING.comment, Disruption.PREEMPTED),
        ("NODE_FAIL", RUNNING.comment, Disruption.NODE_FAIL),
        ("BOOT_FAIL", RUNNING.comment, Disruption.NODE_FAIL),
        ("CANCELLED", GIVEN_UP, Disruption.GIVEN_UP),
        ("CANCELLED", RUNNING.comment, None),
        ("TIMEOUT", RUNNING.comment, None),
        ("COMPLETED", RUNNING.comment, None),
    ],
)
def test_the_end_of_a_pod_is_its_own_failure_only_if_its_owner_or_its_time_limit_caused_it(
    state: str, comment: Comment, disruption: Disruption | None
) -> None:
    ended = dataclasses.replace(RUNNING, phase=Phase.ENDED, state=state, comment=comment)
    [action] = act(BOUND, jobs=(ended,))
    assert action == DeletePod(BOUND, f"Slurm job 7 has ended ({state})", state, disruption)


def test_the_preemption_of_one_component_disrupts_the_pods_of_all() -> None:
    its = dataclasses.replace(RUNNING, phase=Phase.ENDED, state="CANCELLED")
    rest = dataclasses.replace(its, job_id=8, state="PREEMPTED", offset=1)
    [action] = act(BOUND, jobs=(dataclasses.replace(its, rest=(rest,)),))
    assert isinstance(action, DeletePod)
    assert action.disruption is Disruption.PREEMPTED


def test_a_pod_whose_guard_is_queued_again_is_disrupted() -> None:
    again = dataclasses.replace(RUNNING, phase=Phase.PENDING, state="PENDING", guard=True)
    [action] = act(BOUND, jobs=(again,))
    assert isinstance(action, DeletePod)
    assert action.disruption is Disruption.REQUEUED


def test_a_pod_that_waits_ends_with_its_cancelled_job_and_is_not_disrupted() -> None:
    ended = dataclasses.replace(RUNNING, phase=Phase.ENDED, state="CANCELLED")
    [action] = act(LABELLED, jobs=(ended,))
    assert action == DeletePod(LABELLED, "Slurm job 7 has ended (CANCELLED)", "CANCELLED")


def test_the_admin_comment_of_a_job_that_the_bridge_gives_up_shows_it_before_its_end() -> None:
    late = dataclasses.replace(BOUND, bound=False, unbound_seconds=15, unbound_reason="taint")
    [action] = act(late, jobs=(RUNNING,))
    assert isinstance(action, Cancel)
    assert action.note == GIVEN_UP


@pytest.mark.parametrize("nodes", [{}, CORDONED])
def test_a_pod_that_its_running_job_can_not_start_for_a_minute_is_queued_again_and_avoids_the_node(
    nodes: dict[str, str],
) -> None:
    [obstacle] = obstacles_of(LABELLED, jobs=(RUNNING,), nodes=nodes).values()
    assert obstacle.node == "a"
    before = {7: obstacle._replace(seconds=59)}
    assert [type(it) for it in act(LABELLED, jobs=(RUNNING,), nodes=nodes, obstacles=before)] == [
        Report
    ]
    [action] = act(
        LABELLED, jobs=(RUNNING,), nodes=nodes, obstacles={7: obstacle._replace(seconds=60)}
    )
    assert action == Requeue(LABELLED, 7, f"job 7 had its nodes for 60 s: {obstacle.message}", "a")
    without = act(dataclasses.replace(LABELLED, job=None), jobs=(RUNNING,), nodes=nodes)
    assert [type(it) for it in without] == [Report, Cancel]


def test_a_job_waits_for_a_pod_that_terminates_and_no_longer_when_its_grace_period_is_over() -> (
    None
):
    old = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True, deleting=True)
    ended = Job(3, Phase.ENDED, "ada", Comment("team", "o"))
    assert obstacles_of(LABELLED, old, jobs=(RUNNING, ended)) == {}
    late = dataclasses.replace(old, overdue=True)
    words = "pod team/old of an ended job is still on node a"
    assert obstacles_of(LABELLED, late, jobs=(RUNNING, ended)) == {7: Obstacle(words, "a")}


def test_a_job_does_not_wait_for_pods_without_a_known_end_or_devices_and_places_it_lacks() -> None:
    unknown = Pod("o", "team", "old", GroupKey("team", "o"), job=3, node="a", bound=True)
    assert obstacles_of(LABELLED, unknown, jobs=(RUNNING,))[7].node == "a"
    assert (
        obstacles_of(claiming(), jobs=(HAS_GPUS,), holders={it: {"other"} for it in GPUS})[7].node
        == "a"
    )
    assert obstacles_of(claiming(), jobs=(HAS_GPUS,))[7].message == "its devices are not allocated"
    assert obstacles_of(LABELLED, jobs=(dataclasses.replace(RUNNING, slots=()),))[7].node == ""
    assert obstacles_of(LABELLED, jobs=(RUNNING,)) == {}


def test_while_slurm_is_unknown_the_time_of_an_obstacle_goes_on() -> None:
    known = {7: Obstacle("node a is cordoned", "a", 30)}
    assert obstacles_of(LABELLED, jobs=(RUNNING,), known=False, obstacles=known) == known


def test_a_whole_group_is_queued_again_and_its_running_pods_lose_their_job_last() -> None:
    job = dataclasses.replace(
        RUNNING, comment=Comment("team", "group/g", pods=2), slots=(("a", 1), ("b", 1))
    )
    known = {7: Obstacle("node a is cordoned", "a", 60)}
    waits = group(2, job=7)
    assert {
        it.pod.name for it in act(*waits, jobs=(job,), obstacles=known) if isinstance(it, Requeue)
    } == {"p0", "p1"}
    runs = dataclasses.replace(waits[1], gated=False, bound=True, node="b")
    assert [type(it) for it in act(waits[0], runs, jobs=(job,), obstacles=known)] == [Requeue]
    again = dataclasses.replace(waits[0], job=None)
    assert [type(it) for it in act(again, runs, jobs=(job,), obstacles=known)] == [Cancel, Report]
    assert act(runs, jobs=(job,), obstacles=known) == ()


def test_a_group_on_whose_dead_node_a_pod_remains_gets_another_job_after_a_minute() -> None:
    """Its controller has created the pod again, and no kubelet reports the end of the first one."""
    dead, alive = (
        dataclasses.replace(it, job=7, gated=False, node=node, bound=True)
        for it, node in zip(group(2), "ab", strict=True)
    )
    dead = dataclasses.replace(dead, deleting=True, overdue=True)
    new = dataclasses.replace(
        alive, uid="u9", name="p9", gated=True, job=None, node="", bound=False
    )
    comment = Comment("team", "group/g", SHAPE.digest, 2)
    job = dataclasses.replace(RUNNING, comment=comment, slots=(("a", 1), ("b", 1)))
    [obstacle] = obstacles_of(dead, alive, new, jobs=(job,)).values()
    assert (obstacle.node, "p0 has not ended" in obstacle.message) == ("a", True)
    [report] = act(dead, alive, new, jobs=(job,), obstacles={7: obstacle._replace(seconds=59)})
    assert isinstance(report, Report)
    cancel, waits = act(dead, alive, new, jobs=(job,), obstacles={7: obstacle._replace(seconds=60)})
    assert isinstance(cancel, Cancel)
    assert cancel.note is not None
    assert isinstance(waits, Report)
    assert waits.pod == new


def test_a_group_one_of_whose_pods_ends_in_its_grace_period_keeps_its_job() -> None:
    ends, alive = (
        dataclasses.replace(it, job=7, gated=False, node=node, bound=True)
        for it, node in zip(group(2), "ab", strict=True)
    )
    new = dataclasses.replace(
        alive, uid="u9", name="p9", gated=True, job=None, node="", bound=False
    )
    comment = Comment("team", "group/g", SHAPE.digest, 2)
    job = dataclasses.replace(RUNNING, comment=comment, slots=(("a", 1), ("b", 1)))
    ends = dataclasses.replace(ends, deleting=True)
    assert obstacles_of(ends, alive, new, jobs=(job,)) == {}
    # Nobody waits for its place.
    assert obstacles_of(dataclasses.replace(ends, overdue=True), alive, jobs=(job,)) == {}


def test_pods_that_wait_beside_an_unbound_one_are_queued_again_before_their_job_ends() -> None:
    job = dataclasses.replace(
        RUNNING, comment=Comment("team", "group/g", pods=2), slots=(("a", 1), ("b", 1))
    )
    first, second = group(2, job=7)
    late = dataclasses.replace(
        first, gated=False, node="a", unbound_seconds=15, unbound_reason="taint"
    )
    assert [type(it) for it in act(late, second, jobs=(job,))] == [Requeue]
    assert [type(it) for it in act(late, dataclasses.replace(second, job=None), jobs=(job,))] == [
        Cancel,
        Report,
    ]


def test_the_job_of_a_user_that_can_not_start_its_pods_is_ended_by_its_user_alone() -> None:
    its = dataclasses.replace(RUNNING, comment=Comment("team", "u", by_user=True), confirmed=False)
    pod = dataclasses.replace(LABELLED, submit=False)
    known = {7: Obstacle("node a is cordoned", "a", 60)}
    assert {type(it) for it in act(pod, jobs=(its,), nodes=CORDONED, obstacles=known)} == {Report}


@pytest.mark.parametrize(
    "state", ["TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "COMPLETING,TIMEOUT"]
)
def test_a_pod_that_never_ran_is_queued_again_when_slurm_has_ended_its_job(state: str) -> None:
    ended = dataclasses.replace(RUNNING, phase=Phase.ENDED, state=state)
    [action] = act(LABELLED, jobs=(ended,))
    assert isinstance(action, Requeue)
    assert (action.job, action.node) == (7, "")
    assert [type(it) for it in act(BOUND, jobs=(ended,))] == [DeletePod]


@pytest.mark.parametrize(
    "state", ["CANCELLED", "COMPLETED", "FAILED", "DEADLINE", "REVOKED", "OUT_OF_MEMORY"]
)
def test_a_pod_that_never_ran_is_deleted_when_someone_has_ended_its_job(state: str) -> None:
    ended = dataclasses.replace(RUNNING, phase=Phase.ENDED, state=state)
    assert [type(it) for it in act(LABELLED, jobs=(ended,))] == [DeletePod]
    its = dataclasses.replace(ended, state="TIMEOUT", comment=Comment("team", "u", by_user=True))
    assert [type(it) for it in act(LABELLED, jobs=(its,))] == [DeletePod]


def test_a_pod_that_never_ran_is_queued_again_when_its_guard_was_and_one_that_runs_is_deleted() -> (
    None
):
    again = dataclasses.replace(
        RUNNING, guard=True, phase=Phase.PENDING, completing=True, state="PENDING"
    )
    assert [type(it) for it in act(LABELLED, jobs=(again,))] == [Requeue]
    assert [type(it) for it in act(BOUND, jobs=(again,))] == [DeletePod]


def test_a_group_waits_until_all_of_its_pods_exist() -> None:
    pods = group(3)
    assert [type(it) for it in act(*pods[:2])] == [Report, Report]
    assert [type(it) for it in act(*pods)] == [Submit]


def test_a_group_is_released_together_or_not_at_all() -> None:
    pods = group(3, job=7)
    job = dataclasses.replace(
        RUNNING, comment=Comment("team", "group/g", pods=3), slots=(("a", 2), ("b", 1))
    )
    assert [it.node for it in act(*pods, jobs=(job,)) if isinstance(it, Release)] == ["a", "a", "b"]
    actions = act(*pods, jobs=(job,), nodes={"a": "", "b": "node b is cordoned"})
    assert [type(it) for it in actions] == [Report] * 3


def test_a_release_that_is_not_seen_yet_keeps_its_place() -> None:
    first, second = group(2, job=7)
    job = dataclasses.replace(
        RUNNING, comment=Comment("team", "group/g", pods=2), slots=(("a", 1), ("b", 1))
    )
    sent = dataclasses.replace(second, node="a")
    assert [
        (it.pod, it.node) for it in act(first, sent, jobs=(job,)) if isinstance(it, Release)
    ] == [
        (sent, "a"),
        (first, "b"),
    ]


def test_a_job_starts_only_when_all_pods_of_the_group_have_its_label() -> None:
    pods, job = (
        group(2, job=7),
        dataclasses.replace(JOB, comment=Comment("team", "group/g", pods=2)),
    )
    half = (pods[0], dataclasses.replace(pods[1], job=None))
    assert [type(it) for it in act(*half, jobs=(job,))] == [Label]
    assert act(*pods, jobs=(job,)) == (Start(job),)


def test_a_replacement_takes_the_place_of_a_pod_only_when_that_one_is_gone() -> None:
    first, second = (
        dataclasses.replace(it, gated=False, node="a", bound=True) for it in group(2, job=7)
    )
    new = dataclasses.replace(group(2)[0], uid="n", name="n")
    job = dataclasses.replace(
        RUNNING, comment=Comment("team", "group/g", pods=2), slots=(("a", 2),)
    )
    leaving = dataclasses.replace(second, deleting=True)
    assert not any(isinstance(it, Label) for it in act(first, leaving, new, jobs=(job,)))
    assert act(first, new, jobs=(job,)) == (Label(new, 7),)


@pytest.mark.parametrize("phase", [Phase.SUBMITTED, Phase.RUNNING])
def test_a_pod_that_requests_something_else_gets_no_place_in_a_job_of_equal_pods(
    phase: Phase,
) -> None:
    first, second = group(2)
    job = dataclasses.replace(
        RUNNING, phase=phase, comment=Comment("team", "group/g", SHAPE.digest, 2)
    )
    larger = dataclasses.replace(second, shape=dataclasses.replace(SHAPE, cpus=64))
    actions = act(dataclasses.replace(first, job=7), larger, jobs=(job,))
    [message] = [it.message for it in actions if isinstance(it, Report) and it.pod is larger]
    assert message.startswith(
        "job 7 of this group has no place for what this pod requests: delete the other pods"
    )
    assert not any(isinstance(it, Label | Start) for it in actions)


def test_a_change_that_an_administrator_makes_to_a_whole_group_parts_no_pod_from_its_job() -> None:
    first, second = group(2, shape=dataclasses.replace(SHAPE, account="new"))
    job = dataclasses.replace(JOB, comment=Comment("team", "group/g", SHAPE.digest, 2))
    assert Label(second, 7) in act(dataclasses.replace(first, job=7), second, jobs=(job,))


def test_a_pod_with_another_job_than_the_others_of_its_group_is_notified() -> None:
    first, second = group(2)
    pods = dataclasses.replace(first, job=8), dataclasses.replace(second, job=7)
    kept = dataclasses.replace(JOB, comment=Comment("team", "group/g", SHAPE.digest, 2))
    runs = dataclasses.replace(RUNNING, job_id=8, comment=kept.comment, slots=(("a", 2),))
    for other, received in ((dataclasses.replace(kept, job_id=8), pods[0]), (runs, pods[1])):
        [message] = [
            it.message
            for it in act(*pods, jobs=(kept, other))
            if isinstance(it, Report) and it.pod is received
        ]
        assert message.endswith("delete this pod")
    assert Release(pods[0], 8, "a", 1000) in act(*pods, jobs=(kept, runs))


def test_a_refused_pod_gets_the_reason() -> None:
    bad = dataclasses.replace(POD, shape=None, problem="no tenant")
    assert act(bad) == (Report(bad, Why.REFUSED, "no tenant"),)
    assert act(dataclasses.replace(bad, reported=("Refused", "no tenant"))) == ()


def test_a_message_that_a_condition_can_only_have_shortened_is_not_reported_again() -> None:
    """Otherwise whoever writes long annotations would keep the bridge busy."""
    bad, other = group(2)
    bad = dataclasses.replace(bad, shape=None, problem="x" * 1024)
    reported = []
    for it in (it for it in act(bad, other) if isinstance(it, Report)):
        kube = msgspec.convert({"metadata": {"name": it.pod.name, "uid": it.pod.uid}}, KubePod)
        *_, written = pods.condition_patch(kube, it.why, it.message, 0)
        reported.append(
            dataclasses.replace(it.pod, reported=(it.why.value, written["value"]["message"]))
        )
    assert [len(it.reported[1]) for it in reported] == [1024, 1024]
    assert act(*reported) == ()


def test_a_pod_with_another_gate_waits() -> None:
    assert [type(it) for it in act(dataclasses.replace(POD, blocked=True))] == [Report]


def test_a_job_of_uid_0_that_the_bridge_has_submitted_is_cancelled_and_never_started() -> None:
    root = dataclasses.replace(JOB, user="root", root=True)
    words = "Slurm user ada has uid 0: an administrator maps this namespace to another user"
    cancel = Cancel(7, words, refused=KEY)
    assert act(POD, jobs=(root,), misnamed={KEY: (root, "ada")}) == (
        Report(POD, Why.REFUSED, words),
        cancel,
    )
    assert act(jobs=(root,), misnamed={KEY: (root, "ada")}) == (cancel,)
    assert act(jobs=(root,)) == ()


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (
            "Ada",
            (
                "user Ada for a job of user ada: an administrator maps namespace team to the user "
                "name that Slurm"
            ),
        ),
        (
            "",
            (
                "no user for a job of user ada: an administrator has slurmrestd find the user's "
                "name by the uid"
            ),
        ),
    ],
)
def test_a_job_of_the_bridge_that_slurm_shows_as_one_of_another_user_is_cancelled(
    shown: str, words: str
) -> None:
    job = dataclasses.replace(JOB, user=shown)
    report, cancel = act(POD, jobs=(job,), misnamed={KEY: (job, "ada")})
    assert isinstance(report, Report)
    assert report.why is Why.REFUSED
    assert words in report.message
    assert cancel == Cancel(7, report.message, refused=KEY)


def test_another_job_with_the_same_comment_is_not_cancelled_for_it() -> None:
    job, other = (
        dataclasses.replace(JOB, user="Ada"),
        dataclasses.replace(JOB, user="eve", job_id=8),
    )
    actions = act(POD, jobs=(job, other), misnamed={KEY: (job, "ada")})
    assert [it.job for it in actions if isinstance(it, Cancel)] == [7]


def test_of_many_different_sizes_a_message_names_two() -> None:
    """Each is a label of a pod, of which anyone may create thousands."""
    pods = [
        dataclasses.replace(POD, uid=f"u{size}", name=f"p{size}", size=size)
        for size in range(2, 1000)
    ]
    reports = act(*pods)
    assert {it.message for it in reports if isinstance(it, Report)} == {
        f"the pods of {POD.group} have different sizes of their group, such as 2 and 3"
    }
    assert len(reports) == len(pods)


def test_a_job_that_waits_may_have_all_nodes_but_those_that_its_pods_avoid_now() -> None:
    job = dataclasses.replace(RUNNING, phase=Phase.PENDING, slots=(), excluded=("a", "b"))
    pod = dataclasses.replace(LABELLED, owner="rs")
    assert [it for it in act(pod, jobs=(job,)) if isinstance(it, Allow)] == [Allow(job)]
    [some] = [
        it for it in act(pod, jobs=(job,), avoided={"team/rs": ("b",)}) if isinstance(it, Allow)
    ]
    assert some == Allow(job, ("b",))
    assert not any(
        isinstance(it, Allow) for it in act(pod, jobs=(job,), avoided={"team/rs": ("a", "b")})
    )
    running = dataclasses.replace(RUNNING, excluded=("b",))
    assert act(dataclasses.replace(pod, gated=False, bound=True, node="a"), jobs=(running,)) == ()


BIG = dataclasses.replace(SHAPE, cpus=4)
MIXED = (Part(SHAPE, 2), Part(BIG, 1))
FIRST, SECOND = 7, 8
"""The components of the small pods and of the big one."""


def unequal(**values: Any) -> tuple[Pod, Pod, Pod]:
    """Two small pods and a big one."""
    small, other, big = group(3, **values)
    return small, other, dataclasses.replace(big, shape=BIG)


def labelled(**values: Any) -> tuple[Pod, Pod, Pod]:
    small, other, big = unequal(**values)
    return tuple(
        dataclasses.replace(it, job=FIRST if it.shape == SHAPE else SECOND)
        for it in (small, other, big)
    )  # type: ignore[return-value]


def mixed(
    phase: Phase = Phase.SUBMITTED,
    second: Phase | None = None,
    slots: tuple[tuple[str, int], ...] = (),
) -> Job:
    """A heterogeneous job for them. `slots`: of the small pods; the big one is on b."""
    comment = Comment("team", "group/g", "", 3, tuple((it.shape.digest, it.pods) for it in MIXED))
    confirmed = phase is not Phase.SUBMITTED
    its = []
    for offset, state in enumerate((phase, phase if second is None else second)):
        where = slots if 7 + offset == FIRST else (("b", 1),) if slots else ()
        its.append(
            Job(
                7 + offset,
                state,
                "ada",
                comment,
                where,
                offset=offset,
                confirmed=confirmed,
                state=state.name,
            )
        )
    return together(its)


def test_unequal_pods_of_a_group_get_a_heterogeneous_job_with_a_component_for_equal_ones() -> None:
    assert act(*unequal()) == (Submit(GroupKey("team", "group/g"), MIXED),)
    labels = act(*unequal(), jobs=(mixed(),))
    assert [(it.pod.name, it.job) for it in labels if isinstance(it, Label)] == [
        *(("p0", FIRST), ("p1", FIRST), ("p2", SECOND))
    ]
    assert act(*labelled(), jobs=(mixed(),)) == (Start(mixed()),)


def test_pods_of_a_group_whose_others_get_their_label_need_no_condition() -> None:
    first, second, third = group(3)
    first = dataclasses.replace(first, job=7)
    job = dataclasses.replace(JOB, comment=Comment("team", "group/g", SHAPE.digest, 3))
    assert act(first, second, third, jobs=(job,)) == (Label(second, 7), Label(third, 7))
    incomplete = Report(first, Why.INCOMPLETE, "1 of 3 pods of group g exist")
    assert act(first, second, jobs=(job,)) == (Label(second, 7), incomplete)


def test_a_pod_of_a_group_shows_that_another_is_missing_while_the_one_that_ends_has_its_place() -> (
    None
):
    first, second = group(2, job=7)
    job = dataclasses.replace(JOB, comment=Comment("team", "group/g", SHAPE.digest, 2))
    incomplete = Report(first, Why.INCOMPLETE, "1 of 2 pods of group g exist")
    assert act(first, dataclasses.replace(second, deleting=True), jobs=(job,)) == (incomplete,)


def test_a_heterogeneous_job_of_other_requests_is_not_adopted() -> None:
    small = tuple(dataclasses.replace(it, shape=BIG) for it in unequal())
    actions = act(*small, jobs=(mixed(),))
    assert [type(it) for it in actions] == [Submit, Cancel]


def test_pods_are_released_only_when_every_component_runs() -> None:
    waits = mixed(Phase.RUNNING, Phase.STARTING, slots=(("a", 2),))
    assert {it.why for it in act(*labelled(), jobs=(waits,)) if isinstance(it, Report)} == {
        Why.WAITING
    }
    runs = mixed(Phase.RUNNING, slots=(("a", 2),))
    released = [
        (it.pod.name, it.node) for it in act(*labelled(), jobs=(runs,)) if isinstance(it, Release)
    ]
    assert sorted(released) == [("p0", "a"), ("p1", "a"), ("p2", "b")]


def test_a_pod_gets_no_place_of_another_component() -> None:
    runs = mixed(Phase.RUNNING, slots=(("a", 1), ("b", 1)))
    released = {
        it.pod.name: it.node for it in act(*labelled(), jobs=(runs,)) if isinstance(it, Release)
    }
    assert released == {"p0": "a", "p1": "b", "p2": "b"}
    fewer = mixed(Phase.RUNNING, slots=(("a", 1),))
    assert [it.pod.name for it in act(*labelled(), jobs=(fewer,)) if isinstance(it, Release)] == [
        "p0",
        "p2",
    ]


@pytest.mark.parametrize(
    ("first", "second"), [(Phase.ENDED, Phase.RUNNING), (Phase.RUNNING, Phase.ENDED)]
)
def test_pods_that_never_ran_are_queued_again_when_slurm_has_ended_one_component(
    first: Phase, second: Phase
) -> None:
    ended = mixed(first, second, slots=(("a", 2),))
    ended = dataclasses.replace(
        ended,
        state="TIMEOUT" if first is Phase.ENDED else "CANCELLED",
        rest=tuple(
            dataclasses.replace(it, state="CANCELLED" if first is Phase.ENDED else "TIMEOUT")
            for it in ended.rest
        ),
    )
    assert [it.job for it in act(*labelled(), jobs=(ended,)) if isinstance(it, Requeue)] == [
        FIRST,
        FIRST,
        SECOND,
    ]


@pytest.mark.parametrize(
    ("first", "second"), [(Phase.ENDED, Phase.RUNNING), (Phase.RUNNING, Phase.ENDED)]
)
def test_the_end_of_one_component_deletes_all_pods_and_cancels_the_others(
    first: Phase, second: Phase
) -> None:
    ended = mixed(first, second, slots=(("a", 2),))
    pods = [dataclasses.replace(it, gated=False, bound=True, node="a") for it in labelled()]
    actions = act(*pods, jobs=(ended,))
    assert [it.pod.name for it in actions if isinstance(it, DeletePod)] == ["p0", "p1", "p2"]
    assert [it.job for it in actions if isinstance(it, Cancel)] == [
        7 if second is Phase.ENDED else 8
    ]


def test_a_group_gets_no_other_job_while_a_component_of_its_earlier_one_has_not_ended() -> None:
    *reports, cancel = act(*unequal(), jobs=(mixed(Phase.RUNNING, Phase.ENDED, slots=(("a", 2),)),))
    assert {it.message for it in reports if isinstance(it, Report)} == {
        "job 7 of this group, an earlier one, has not ended yet"
    }
    assert isinstance(cancel, Cancel)
    old = dataclasses.replace(RUNNING, job_id=5, comment=Comment("team", "group/g", pods=3))
    assert [type(it) for it in act(*unequal(), jobs=(old,))] == [*[Report] * 3, Cancel]
    assert [type(it) for it in act(*labelled(), jobs=(old, mixed()))] == [*[Report] * 3, Cancel]
    forged = dataclasses.replace(mixed(Phase.RUNNING, Phase.ENDED), user="eve", confirmed=False)
    assert [type(it) for it in act(*unequal(), jobs=(forged,))] == [Submit]


def test_a_pod_of_a_component_that_has_not_ended_blocks_its_node_when_another_one_has() -> None:
    big = dataclasses.replace(labelled()[2], gated=False, bound=True, node="b", deleting=True)
    runs = dataclasses.replace(RUNNING, job_id=20, slots=(("b", 1),))
    waiting = dataclasses.replace(LABELLED, job=20)
    jobs = (mixed(Phase.ENDED, Phase.ENDED, slots=(("a", 2),)), runs)
    assert not any(isinstance(it, Release) for it in act(big, waiting, jobs=jobs))


def test_a_heterogeneous_job_with_an_unlisted_component_is_neither_started_nor_ended() -> None:
    first = dataclasses.replace(mixed(), rest=())
    alone = together([first])
    assert alone.phase is Phase.STARTING
    assert {type(it) for it in act(*labelled()[:2], jobs=(alone,))} <= {Report}


def test_a_heterogeneous_job_none_of_whose_pods_exists_is_cancelled_with_all_components() -> None:
    assert act(jobs=(mixed(Phase.PENDING),)) == (Cancel(7, "none of its pods exists", rest=(8,)),)
    assert not any(
        isinstance(it, Cancel) for it in act(labelled()[2], jobs=(mixed(Phase.PENDING),))
    )


def test_a_replacement_takes_the_place_of_a_pod_of_its_own_component() -> None:
    small, _, big = (
        dataclasses.replace(it, gated=False, node="a", bound=True) for it in labelled()
    )
    runs = mixed(Phase.RUNNING, slots=(("a", 2),))
    new = dataclasses.replace(unequal()[1], uid="n", name="n")
    assert act(small, big, new, jobs=(runs,)) == (Label(new, FIRST),)
    other = dataclasses.replace(new, shape=BIG)
    assert [type(it) for it in act(small, big, other, jobs=(runs,))] == [Report]


def test_a_component_that_no_node_fits_shows_slurms_reason_and_is_started_again() -> None:
    job = mixed()
    stuck = dataclasses.replace(
        job.rest[0], phase=Phase.PENDING, confirmed=True, reason="PartitionConfig"
    )
    start, *reports = act(*labelled(), jobs=(together([dataclasses.replace(job, rest=()), stuck]),))
    assert isinstance(start, Start)
    [message] = {it.message for it in reports if isinstance(it, Report)}
    assert message.startswith(
        "Slurm job 8 waits: PartitionConfig. The partition's configuration excludes the job"
    )


def test_no_pod_is_released_by_a_job_whose_comment_its_user_can_change() -> None:
    """Its user has let it start, and could hide its end from the bridge."""
    job = dataclasses.replace(RUNNING, confirmed=False)
    assert act(LABELLED, jobs=(job,)) == (Start(job),)


def test_a_waiting_pod_shows_slurms_reason() -> None:
    pending = dataclasses.replace(JOB, phase=Phase.PENDING, reason="OfALaterSlurm")
    message = "Slurm job 7 waits: OfALaterSlurm"
    assert act(LABELLED, jobs=(pending,)) == (Report(LABELLED, Why.WAITING, message),)


STUCK = dataclasses.replace(JOB, phase=Phase.PENDING, confirmed=True, reason="BadConstraints")


def test_a_job_that_slurm_blocks_because_no_node_fits_is_started_again_after_a_pause() -> None:
    start, report = act(LABELLED, jobs=(STUCK,))
    assert start == Start(STUCK)
    assert isinstance(report, Report)
    assert report.message.startswith("Slurm job 7 waits: BadConstraints. ")
    assert act(LABELLED, jobs=(STUCK,), paused=frozenset({7})) == (report,)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("JobHeldAdmin", "An administrator has set the job's priority to 0"),
        ("JobHeldUser", "The job was submitted or set to wait for its release"),
    ],
)
def test_a_job_that_is_blocked_by_hand_stays_blocked_and_its_pods_report_it(
    reason: str, words: str
) -> None:
    [report] = act(LABELLED, jobs=(dataclasses.replace(STUCK, reason=reason),))
    assert isinstance(report, Report)
    assert report.message.startswith(f"Slurm job 7 waits: {reason}. {words}")


def test_a_job_of_a_user_is_started_again_by_its_user_alone() -> None:
    its = dataclasses.replace(STUCK, comment=Comment("team", "u", by_user=True), confirmed=False)
    assert [type(it) for it in act(dataclasses.replace(LABELLED, submit=False), jobs=(its,))] == [
        Report
    ]


def test_a_heterogeneous_job_is_started_again_when_no_node_fits_one_of_its_components() -> None:
    first, *rest = mixed(Phase.PENDING).components
    stuck = dataclasses.replace(rest[0], reason="BadConstraints", confirmed=True)
    whole = together(
        [dataclasses.replace(first, rest=(), confirmed=True, reason="Resources"), stuck]
    )
    start, *reports = act(*labelled(), jobs=(whole,))
    assert start == Start(whole)
    assert all(isinstance(it, Report) and "BadConstraints" in it.message for it in reports)


def test_a_group_with_too_many_kinds_of_pods_is_refused() -> None:
    size = decide_module.MOST_PARTS + 1
    pods = [
        dataclasses.replace(it, shape=dataclasses.replace(SHAPE, cpus=i + 1))
        for i, it in enumerate(group(size))
    ]
    actions = act(*pods)
    assert {it.why for it in actions if isinstance(it, Report)} == {Why.REFUSED}
    assert len(actions) == size


def test_unequal_pods_wait_while_slurm_has_fewer_nodes_than_components() -> None:
    actions = act(*unequal(), places=1)
    assert {it.why for it in actions if isinstance(it, Report)} == {Why.REFUSED}
    assert len(actions) == 3
    assert [type(it) for it in act(*unequal(), places=2)] == [Submit]
    assert [type(it) for it in act(POD, places=0)] == [Submit]


def test_a_group_waits_for_its_size_and_reports_why_it_is_not_known() -> None:
    pods = tuple(dataclasses.replace(it, size=0) for it in group(2))
    assert act(*pods) == ()
    received = tuple(dataclasses.replace(it, unsized="JobSet js doesn't exist") for it in pods)
    assert {(it.why, it.message) for it in act(*received) if isinstance(it, Report)} == {
        (Why.INCOMPLETE, "JobSet js doesn't exist")
    }


def test_pods_that_disagree_about_the_size_of_their_group_are_refused() -> None:
    first, second = group(2)
    actions = act(first, second, dataclasses.replace(second, uid="x", name="x", size=3))
    assert {(it.why, it.message) for it in actions if isinstance(it, Report)} == {
        (Why.REFUSED, "the pods of group g have different sizes of their group, such as 2 and 3")
    }
    assert len(actions) == 3


def test_a_pod_beyond_the_size_of_its_group_is_notified_and_the_others_get_their_job() -> None:
    pods = (*group(2), dataclasses.replace(group(2)[0], uid="x", name="x"))
    report, submit = act(*pods)
    assert isinstance(report, Report)
    assert report.message == "group g has more pods than its size, which is 2"
    assert isinstance(submit, Submit)
    assert submit.parts == (Part(SHAPE, 2),)


def test_pods_of_a_part_of_an_object_are_known_by_their_job_when_the_object_is_gone() -> None:
    job = dataclasses.replace(RUNNING, comment=Comment("team", "jobset/s/workers"))
    pod = dataclasses.replace(BOUND, key=GroupKey("team", "jobset/s"), size=0)
    assert act(pod, jobs=(job,)) == ()
    [deleted] = act(pod, jobs=(dataclasses.replace(job, phase=Phase.ENDED),))
    assert isinstance(deleted, DeletePod)
    unknown, cancelled = act(
        dataclasses.replace(pod, key=GroupKey("team", "jobset/sx")), jobs=(job,)
    )
    assert isinstance(unknown, Report)
    assert isinstance(cancelled, Cancel)


def test_each_part_of_an_object_keeps_its_own_job_while_the_object_is_not_read() -> None:
    """After a restart, pods that have their jobs have one key until then."""
    key = GroupKey("team", "jobset/s")
    driver, worker = (
        dataclasses.replace(it, key=key, size=0)
        for it in (BOUND, dataclasses.replace(LABELLED, job=8))
    )
    drives = dataclasses.replace(RUNNING, comment=Comment("team", "jobset/s/driver"))
    works = dataclasses.replace(
        RUNNING, job_id=8, comment=Comment("team", "jobset/s/workers"), slots=(("b", 1),)
    )
    assert act(driver, worker, jobs=(drives, works)) == (Release(worker, 8, "b", 1000),)
    kept = dataclasses.replace(works, phase=Phase.SUBMITTED, slots=(), confirmed=False)
    assert act(driver, worker, jobs=(drives, kept)) == (Start(kept),)


def test_a_pod_gets_no_place_in_the_job_of_another_part_of_its_object() -> None:
    key = GroupKey("team", "jobset/s")
    driver, worker = (dataclasses.replace(it, key=key, size=0) for it in (BOUND, POD))
    drives = dataclasses.replace(
        RUNNING, comment=Comment("team", "jobset/s/driver", SHAPE.digest, 2)
    )
    assert act(driver, worker, jobs=(drives,)) == ()


class Counted(tuple[Pod, ...]):
    """Counts how often all pods are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Pod]:
        Counted.looks += 1
        return super().__iter__()


@pytest.mark.parametrize("phase", [Phase.SUBMITTED, Phase.PENDING, Phase.RUNNING, Phase.ENDED])
def test_all_pods_are_looked_at_equally_often_however_many_groups_exist(phase: Phase) -> None:
    looks = []
    for count in (1, 50):
        keys = [GroupKey("team", f"u{number}") for number in range(count)]
        pods = Counted(
            dataclasses.replace(BOUND, uid=it.group, key=it, job=n) for n, it in enumerate(keys, 1)
        )
        jobs = {
            n: dataclasses.replace(
                RUNNING, job_id=n, phase=phase, comment=Comment("team", it.group, SHAPE.digest)
            )
            for n, it in enumerate(keys, 1)
        }
        Counted.looks = 0
        decide(View(pods, jobs, True, {"team": "ada"}, {"a": ""}))
        looks.append(Counted.looks)
    assert looks[0] == looks[1] > 0


def test_a_pod_of_another_group_with_the_id_from_a_lost_state_keeps_no_job_either() -> None:
    other = dataclasses.replace(BOUND, key=GroupKey("team", "v"), uid="v", name="old", node="b")
    assert Cancel(7, "none of its pods exists") in act(other, jobs=(RUNNING,))


NEEDY = dataclasses.replace(SHAPE, needs=Needs(resources=(("ephemeral-storage", "1"),)))
NODES = {True: frozenset[str](), False: frozenset({"a", "b"})}
LACKS = {NEEDY.needs: {"a": "it has the taint t:NoSchedule, which the pod doesn't tolerate"}}


def test_a_job_excludes_the_nodes_that_can_not_run_its_pods() -> None:
    needy = dataclasses.replace(POD, shape=NEEDY)
    [action] = act(needy, unfit=LACKS, places_of=NODES)
    assert action == Submit(KEY, (Part(NEEDY, 1),), unfit=(("a",),))
    assert act(POD, unfit=LACKS, places_of=NODES) == (Submit(KEY, ONE),)


def test_a_pod_that_no_node_can_run_gets_no_job_and_shows_why() -> None:
    needy = dataclasses.replace(POD, shape=NEEDY)
    everywhere = {NEEDY.needs: dict.fromkeys("ab", "it has the taint t:NoSchedule")}
    [report] = act(needy, unfit=everywhere, places_of=NODES)
    assert isinstance(report, Report)
    assert report.why is Why.REFUSED
    assert report.message == (
        "no Kubernetes node of Slurm can run the pod: a and 1 others: it has the taint t:NoSchedule"
    )
    # Guards have other nodes, of which none is known.
    kinds = {"p": Kind(guard=True)}
    [submit] = act(needy, unfit=everywhere, places_of=NODES, kinds=kinds)
    assert isinstance(submit, Submit)


def test_each_component_excludes_nodes_of_its_own() -> None:
    first, second = group(2)
    first = dataclasses.replace(first, shape=dataclasses.replace(NEEDY, cpus=2))
    [action] = act(first, second, unfit=LACKS, places_of=NODES)
    assert isinstance(action, Submit)
    assert {it.shape.cpus: its for it, its in zip(action.parts, action.unfit, strict=True)} == {
        1: (),
        2: ("a",),
    }


@pytest.mark.parametrize(
    ("excluded", "avoided", "unfit", "allowed"),
    [
        ((), (), ("a",), ("a",)),
        (("a",), (), ("a",), None),
        (("a",), (), (), ()),
        (("b",), ("b",), (), None),
        (("b",), ("b",), ("a",), None),
        ((), (), ("a", "b"), None),
    ],
)
def test_the_nodes_that_a_waiting_job_excludes_follow_the_nodes(
    excluded: tuple[str, ...],
    avoided: tuple[str, ...],
    unfit: tuple[str, ...],
    allowed: tuple[str, ...] | None,
) -> None:
    """But Slurm has at least one node left for it."""
    needy = dataclasses.replace(LABELLED, shape=NEEDY, owner="rs")
    job = dataclasses.replace(RUNNING, phase=Phase.PENDING, slots=(), excluded=excluded)
    actions = act(
        needy,
        jobs=(job,),
        unfit={NEEDY.needs: dict.fromkeys(unfit, "no")},
        avoided={"team/rs": avoided},
        places_of=NODES,
    )
    found = [it.excluded for it in actions if isinstance(it, Allow)]
    assert found == ([] if allowed is None else [allowed])


def test_pods_of_several_jobs_with_one_name_of_their_group_are_no_mixed_gang() -> None:
    """As from one template with the label of the group."""
    pods = [
        dataclasses.replace(it, uid=f"{it.uid}-{owner}", name=f"{it.name}-{owner}", owner=owner)
        for owner in ("a", "b")
        for it in group(2)
    ]
    reports = act(*pods)
    text = (
        "4 pods of 2 controllers have the label of group g, whose size is 2: use a name for each, "
        "or the label scheduler.slinky.slurm.net/group-size alone"
    )
    assert {it.message for it in reports if isinstance(it, Report)} == {text}
    assert {type(it) for it in reports} == {Report}
    # A launcher and its workers are a group.
    [action] = act(pods[0], pods[3])
    assert isinstance(action, Submit)


@pytest.mark.parametrize(
    ("shape", "unfit", "words"),
    [
        ({}, {}, ""),
        ({}, {"a": "it has the taint t"}, "Slurm has 1 that can run them"),
        ({"max_nodes": 2}, {}, ""),
        ({"max_nodes": 1}, {}, "annotation max-nodes is 1"),
    ],
)
def test_pods_with_one_port_of_the_node_need_a_node_each(
    shape: dict[str, int], unfit: dict[str, str], words: str
) -> None:
    ported = dataclasses.replace(SHAPE, needs=Needs(ports=("8080/TCP",)), **shape)  # type: ignore[arg-type]
    pods = group(2, shape=ported)
    actions = act(*pods, unfit={ported.needs: unfit} if unfit else {}, places_of=NODES)
    if words:
        text = f"2 pods take port 8080/TCP of their node, and need a node each: {words}"
        assert {it.message for it in actions if isinstance(it, Report)} == {text}
    assert [isinstance(it, Submit) for it in actions] == ([False, False] if words else [True])


def test_pods_that_exclude_each_other_need_a_node_each() -> None:
    apart = dataclasses.replace(SHAPE, apart=True)
    assert [type(it) for it in act(*group(2, shape=apart), places_of=NODES)] == [Submit]
    actions = act(*group(9, shape=apart), places_of=NODES)
    text = "9 pods exclude each other from a node by their anti-affinity, and need a node each"
    assert {it.message for it in actions if isinstance(it, Report)} == {
        f"{text}: Slurm has 2 that can run them"
    }
