"""The whole decision about a NodeSet: `sidecars.policy.nodeset.decide`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.contract.extra import PodFacts, encode
from sidecars.policy.nodeset import actions, needs
from sidecars.policy.nodeset.decide import Decision, decide
from sidecars.policy.nodeset.desired import desired_pods
from sidecars.policy.nodeset.maintenance import FINALIZER
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.needs import Answer, Need
from sidecars.policy.nodeset.node_records import KEPT_SECONDS, ORPHANED_SECONDS
from sidecars.policy.nodeset.partitions import FINISHED_FOR
from sidecars.policy.nodeset.parts import RECORDS_SECONDS
from sidecars.policy.nodeset.pods import SHARED_REASON_PODS
from sidecars.policy.nodeset.records import Desired, Observed, SlurmView, WorkerPod
from sidecars.policy.nodeset.revisions import Stored
from sidecars.policy.nodeset.worker_pods import LIVE_SECONDS
from sidecars.policy.placement import Rules
from sidecars.slurm.records import Job, Node, Partition, Reservation
from sidecars.workloads.nodeset import Revision
from tests.support import builders
from tests.unit.policy.nodeset.builders import (
    NODE_WORDS,
    NOW,
    SCALE_IN,
    may_have_a_job,
    node,
    slurm,
    worker,
)

A = TypeVar("A")
CLOCK = 1_000.0
LONG_AGO = needs.Known(NOW - 1e6)
DELETED = {"deletionTimestamp": "1970-01-12T13:46:00Z"}
"""Forty seconds before NOW."""
NOT_FOUND_AFTER = 8
"""More steps than any decision may need."""


def asked(replicas: int, meta: dict[str, Any] | None = None, **spec: Any) -> Desired:
    """What a NodeSet `slinky` of so many replicas asks for."""
    nodeset = builders.nodeset("slinky", meta, replicas=replicas, **spec)
    rules = Rules.of({})
    pods = desired_pods(nodeset, "new", rules, {}, (), NOW)
    return Desired(nodeset, pods)


def seen(pods: Iterable[WorkerPod], view: SlurmView, **more: Any) -> Observed:
    return Observed(tuple(pods), view, **{"clock": CLOCK, **more})


def jobs(*items: Job, asked_at: float = CLOCK) -> needs.Known:
    return needs.Known(needs.JobList(items, asked_at), asked_at)


def of(kind: type[A], decision: Decision) -> list[A]:
    return [action for action in decision.actions if isinstance(action, kind)]


def deleted(decision: Decision) -> list[str]:
    return [action.deletion.pod.name for action in of(actions.DeletePod, decision)]


def answered(
    desired: Desired,
    observed: Observed,
    answer: Answer,
    memory: Memory | None = None,
    start: Answer = LONG_AGO,
    listed: Answer | None = None,
) -> Decision:
    """The decision when each need gets the same answer, but `start` the one when slurmctld started.

    `listed`: the jobs in the answer; None for no job.
    """
    for _ in range(NOT_FOUND_AFTER):
        decision = decide(desired, observed, memory or Memory(), NOW)
        if not decision.needs:
            return decision
        given: dict[Need, Answer] = {
            **dict.fromkeys(decision.needs, answer),
            needs.SlurmctldStart(): start,
        }
        given |= {needs.Jobs(): jobs() if listed is None else listed} | UNRESERVED
        observed = replace(observed, answers={**observed.answers, **given})
    raise AssertionError(f"it still needs {decision.needs}")


UNRESERVED: dict[Need, Answer] = {needs.Reservations(): needs.Known(())}
DRAINED = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)))
TWO = (worker(0), worker(1, cordon="operator"))


def test_a_missing_pod_is_created_and_the_condition_reports_how_many_are_ready() -> None:
    decision = decide(asked(2), seen([worker(0)], slurm(node(0, "IDLE"))), Memory(), NOW)
    assert decision.actions == (actions.CreatePods(ordinals=(1,)),)
    assert [(it.type, it.status, it.reason) for it in decision.conditions] == [
        ("Ready", "False", "PodsNotReady"),
        ("SlurmReachable", "True", "Polled"),
    ]
    assert (decision.status["replicas"], decision.status["slurmIdle"]) == (1, 1)


def test_drains_come_before_deletions_and_annotations_last() -> None:
    pods = [worker(0, deletion_cost=9), worker(1), worker(2, cordon="operator")]
    view = slurm(
        node(0, "IDLE"), node(1, "MIXED"), node(2, "IDLE", "DRAIN", reason=SCALE_IN.format(2))
    )
    observed = seen(
        pods,
        view,
        answers={**UNRESERVED, needs.Jobs(): jobs(), needs.Deadlines(): needs.Known(True)},
    )
    kinds = [type(action) for action in decide(asked(1), observed, Memory(), NOW).actions]
    assert kinds == [actions.Drain, actions.DeletePod, actions.Cordon]


def test_of_many_condemned_pods_those_whose_idle_nodes_are_being_drained_get_no_annotation() -> (
    None
):
    def annotated(*words: str, count: int = 20, **view: Any) -> bool:
        reason = SCALE_IN.format(0) if "DRAIN" in words else ""
        idle = replace(
            slurm(*(node(number, *words, reason=reason) for number in range(count))), **view
        )
        pods = [worker(number) for number in range(count)]
        observed = seen(
            pods,
            idle,
            answers={**UNRESERVED, needs.Jobs(): jobs(), needs.Deadlines(): needs.Known(True)},
        )
        return bool(of(actions.Cordon, decide(asked(0), observed, Memory(), NOW)))

    assert annotated("IDLE", count=1)

    assert not annotated("IDLE")
    assert not annotated(
        "IDLE", "DRAIN", unsettled=frozenset(f"slinky-{number}" for number in range(20))
    )
    assert annotated("MIXED")
    assert annotated("MIXED", "DRAIN")
    assert annotated("IDLE", problem="slurmrestd does not answer")


def test_a_drained_pod_needs_the_jobs_read_first_and_nothing_is_decided_before() -> None:
    decision = decide(asked(1), seen(TWO, DRAINED), Memory(), NOW)
    assert decision.needs == needs.NAMES
    assert decision.actions == ()
    assert deleted(
        decide(
            asked(1),
            seen(TWO, DRAINED, answers={**UNRESERVED, needs.Jobs(): jobs()}),
            Memory(),
            NOW,
        )
    ) == ["slinky-1"]


def test_a_pod_whose_node_a_pending_job_names_is_deleted_once_the_nodes_reason_reports_it() -> None:
    names = Job(17, states=frozenset({"PENDING"}), required_nodes="slinky-[1-3]")
    answers = {**UNRESERVED, needs.Jobs(): jobs(names)}
    first = decide(asked(1), seen(TWO, DRAINED, answers=answers), Memory(), NOW)
    marked = SCALE_IN.format(1) + "; kept for job 17"
    assert (deleted(first), of(actions.Drain, first)) == (
        [],
        [actions.Drain(marked, ("slinky-1",))],
    )
    view = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=marked))
    assert deleted(decide(asked(1), seen(TWO, view, answers=answers), Memory(), NOW)) == [
        "slinky-1"
    ]
    # When the job has ended meanwhile, the record need not stay.
    nobody = {**UNRESERVED, needs.Jobs(): jobs(replace(names, states=frozenset({"CANCELLED"})))}
    ended = decide(asked(1), seen(TWO, view, answers=nobody), Memory(), NOW)
    assert (deleted(ended), of(actions.Drain, ended)) == (
        [],
        [actions.Drain(SCALE_IN.format(1), ("slinky-1",))],
    )


def test_a_pod_waits_while_it_is_unknown_which_reservations_name_its_node() -> None:
    for answer, word in (
        (needs.Pending(), "being read"),
        (needs.Failed("HTTP 500"), "can't be read: HTTP 500"),
    ):
        answers = {needs.Jobs(): jobs(), needs.Reservations(): answer}
        decision = decide(asked(1), seen(TWO, DRAINED, answers=answers), Memory(), NOW)
        assert deleted(decision) == []
        assert word in decision.conditions[0].message
        assert decision.look_again is not None


def test_a_future_reservation_that_names_a_node_keeps_its_record_like_a_job() -> None:
    course = Reservation("course", "slinky-1", start_time=int(NOW) + 86_400)
    answers = {needs.Jobs(): jobs(), needs.Reservations(): needs.Known((course,))}
    [drain] = of(
        actions.Drain, decide(asked(1), seen(TWO, DRAINED, answers=answers), Memory(), NOW)
    )
    assert drain.reason == SCALE_IN.format(1) + "; kept for reservation course"


def test_a_suspended_job_keeps_its_pod() -> None:
    suspended = Job(1, states=frozenset({"SUSPENDED"}), nodes="slinky-1")
    decision = decide(
        asked(1),
        seen(TWO, DRAINED, answers={**UNRESERVED, needs.Jobs(): jobs(suspended)}),
        Memory(),
        NOW,
    )
    assert deleted(decision) == []
    assert "suspended" in decision.conditions[0].message


def test_jobs_that_can_not_be_read_keep_the_pod_and_the_cause_is_reported() -> None:
    for answer, word in (
        (needs.Pending(), "being read"),
        (needs.Failed("HTTP 500"), "can't be read: HTTP 500"),
    ):
        decision = decide(
            asked(1),
            seen(TWO, DRAINED, answers={**UNRESERVED, needs.Jobs(): answer}),
            Memory(),
            NOW,
        )
        assert deleted(decision) == []
        assert word in decision.conditions[0].message
        assert decision.look_again is not None


def test_whose_jobs_end_first_is_read_before_a_busy_pod_is_condemned() -> None:
    observed = seen([worker(0), worker(1)], slurm(node(0, "MIXED"), node(1, "MIXED")))
    assert decide(asked(1), observed, Memory(), NOW).needs == (needs.Deadlines(),)
    pending = replace(observed, answers={needs.Deadlines(): needs.Pending()})
    assert not decide(asked(1), pending, Memory(), NOW).actions
    view = replace(observed.slurm, deadlines={"slinky-0": NOW + 5, "slinky-1": NOW + 500})
    known = replace(observed, slurm=view, answers={needs.Deadlines(): needs.Known(True)})
    [drain] = of(actions.Drain, decide(asked(1), known, Memory(), NOW))
    assert drain.slurm_nodes == ("slinky-0",)


def test_old_node_records_are_read_again_before_a_pod_is_deleted_because_of_them() -> None:
    old = replace(DRAINED, age=LIVE_SECONDS + 1)
    observed = seen(TWO, old, answers={**UNRESERVED, needs.Jobs(): jobs()})
    decision = decide(asked(1), observed, Memory(), NOW)
    assert decision.needs == (needs.NodeRecords(CLOCK),)
    slow = replace(
        observed, answers={**observed.answers, needs.NodeRecords(CLOCK): needs.Pending()}
    )
    waiting = decide(asked(1), slow, Memory(), NOW)
    assert deleted(waiting) == []
    # A slurmrestd that needs longer than that for each answer is believed as well, if it was asked
    # since.
    later = replace(observed, clock=CLOCK + 6, slurm=replace(old, age=5.0))
    assert deleted(decide(asked(1), later, waiting.memory, NOW)) == ["slinky-1"]


def test_old_node_records_are_read_again_before_a_drain_is_lifted() -> None:
    old = replace(DRAINED, age=LIVE_SECONDS + 1)
    decision = decide(asked(2), seen(TWO, old), Memory(), NOW)
    assert decision.needs == (needs.NodeRecords(CLOCK),)
    assert not of(actions.Undrain, answered(asked(2), seen(TWO, old), needs.Failed("HTTP 500")))
    assert of(actions.Undrain, decide(asked(2), seen(TWO, DRAINED), Memory(), NOW))


def test_a_drain_is_lifted_only_on_records_that_were_read_since_the_pass_began() -> None:
    recent = replace(DRAINED, age=LIVE_SECONDS / 10)
    decision = decide(asked(2), seen(TWO, recent), Memory(), NOW)
    assert decision.needs == (needs.NodeRecords(CLOCK),)
    assert of(
        actions.Undrain, decide(asked(2), seen(TWO, replace(DRAINED, age=-0.1)), Memory(), NOW)
    )


def test_a_node_is_drained_only_on_records_that_show_what_an_administrator_has_just_set() -> None:
    idle = replace(slurm(node(0, "IDLE"), node(1, "IDLE")), age=LIVE_SECONDS / 10)
    decision = decide(asked(1), seen([worker(0), worker(1)], idle), Memory(), NOW)
    assert decision.needs == (needs.NodeRecords(CLOCK),)
    slow = answered(asked(1), seen([worker(0), worker(1)], idle), needs.Pending())
    assert not of(actions.Drain, slow)
    assert slow.look_again == 1.0
    many = [worker(number) for number in range(SHARED_REASON_PODS + 1)]
    nodes = slurm(*(node(number, "IDLE") for number in range(SHARED_REASON_PODS + 1)))
    assert of(
        actions.Drain, decide(asked(1), seen(many, replace(nodes, age=LIVE_SECONDS)), Memory(), NOW)
    )
    old = seen(many, replace(nodes, age=LIVE_SECONDS + 1))
    assert decide(asked(1), old, Memory(), NOW).needs == (needs.NodeRecords(CLOCK),)


def test_a_node_is_resumed_only_on_records_that_were_read_since_the_pass_began() -> None:
    down = slurm(node(0, "DOWN", reason="slurm-node: slurmd has stopped"))
    decision = decide(
        asked(1), seen([worker(0)], replace(down, age=LIVE_SECONDS / 10)), Memory(), NOW
    )
    assert decision.needs == (needs.NodeRecords(CLOCK),)
    live = decide(asked(1), seen([worker(0)], down), Memory(), NOW)
    assert of(actions.Resume, live) == [actions.Resume(("slinky-0",))]


def test_old_node_records_are_read_again_before_one_without_a_pod_is_deleted() -> None:
    left = Memory(orphaned_since={"slinky-5": NOW - ORPHANED_SECONDS})
    old = seen(
        [worker(0)],
        replace(slurm(node(0, "IDLE"), orphan(5)), age=LIVE_SECONDS + 1),
        orphans=(orphan(5),),
    )
    known = replace(old, answers={**UNRESERVED, needs.Jobs(): jobs()})
    assert decide(asked(1), known, left, NOW).needs == (needs.NodeRecords(CLOCK),)
    assert not of(actions.DeleteRecords, answered(asked(1), old, needs.Failed("HTTP 500"), left))
    live = replace(old, slurm=replace(old.slurm, age=0.0))
    assert of(actions.DeleteRecords, answered(asked(1), live, needs.Known(False), left))


def test_a_pod_that_slurm_does_not_list_is_deleted_only_if_it_is_absent_at_this_moment() -> None:
    observed = seen([worker(0), worker(1)], slurm(node(0, "IDLE")))
    wanted = (needs.SlurmctldStart(), needs.Jobs(), needs.IsAbsent("slinky-1"))
    assert decide(asked(1), observed, Memory(), NOW).needs == wanted
    for answer, want in (
        (needs.Known(True), ["slinky-1"]),
        (needs.Known(False), []),
        (needs.Pending(), []),
        (needs.Failed("HTTP 500"), []),
    ):
        assert deleted(answered(asked(1), observed, answer)) == want


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (
            jobs(Job(7, states=frozenset({"SUSPENDED"}), nodes="slinky-[1,3]")),
            "a job that has not ended",
        ),
        (needs.Failed("HTTP 500"), "the jobs can't be read: HTTP 500"),
        (needs.Pending(), "is being read"),
    ],
)
@pytest.mark.parametrize("wanted", [1, 2])
def test_a_pod_whose_record_was_deleted_under_a_suspended_job_is_not_deleted(
    listed: Answer, why: str, wanted: int
) -> None:
    observed = seen([worker(0), worker(1, slurmd_since=NOW - 600)], slurm(node(0, "IDLE")))
    memory = Memory(absent_since={"uid-1": NOW - 100})
    decision = answered(asked(wanted), observed, needs.Known(True), memory, listed=listed)
    assert deleted(decision) == []
    assert decision.look_again is not None
    if wanted == 1:
        assert why in decision.conditions[0].message
    ended = jobs(Job(7, states=frozenset({"COMPLETED"}), nodes="slinky-[1,3]"))
    assert deleted(answered(asked(wanted), observed, needs.Known(True), memory, listed=ended)) == [
        "slinky-1"
    ]


def test_pods_that_slurm_does_not_know_are_replaced_a_few_in_a_minute() -> None:
    pods = [worker(number, slurmd_since=NOW - 600) for number in range(40)]
    view = slurm(*(node(number, "IDLE") for number in range(10, 40)))
    memory = Memory(absent_since={f"uid-{number}": NOW - 100 for number in range(10)})
    first = answered(asked(40), seen(pods, view), needs.Known(True), memory)
    assert deleted(first) == ["slinky-0", "slinky-1", "slinky-2", "slinky-3"]
    second = answered(asked(40), seen(pods[4:], view), needs.Known(True), first.memory)
    assert deleted(second) == []


@pytest.mark.parametrize("wanted", ["scale-in", "update", "NodeSet deleted"])
@pytest.mark.parametrize("absent_for", [0.0, 5.0, 60.0])
def test_no_condemned_pod_is_deleted_because_slurm_has_lost_most_nodes(
    wanted: str, absent_for: float
) -> None:
    pods = [worker(number, slurmd_since=NOW - 600, revision="old") for number in range(4)]
    spec = {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
    }
    desired = asked(
        0 if wanted == "scale-in" else 4, DELETED if wanted == "NodeSet deleted" else None, **spec
    )
    memory = Memory(absent_since={it.uid: NOW - absent_for for it in pods} if absent_for else {})
    for view in (slurm(), slurm(node(9, "IDLE"))):
        decision = answered(desired, seen(pods, view), needs.Known(True), memory)
        assert deleted(decision) == []
        assert decision.look_again is not None
        assert any("may have lost its state" in it.message for it in decision.conditions)


def test_a_condemned_pod_whose_record_was_deleted_by_hand_is_deleted() -> None:
    pods = [worker(number, slurmd_since=NOW - 600) for number in range(4)]
    view = slurm(*(node(number, "IDLE") for number in range(1, 4)))
    desired = asked(0)
    assert deleted(answered(desired, seen(pods, view), needs.Known(True))) == ["slinky-0"]
    assert deleted(answered(desired, seen(pods[:1], slurm()), needs.Known(True))) == ["slinky-0"]


@pytest.mark.parametrize("desired", [asked(0), asked(1), asked(1, DELETED)])
@pytest.mark.parametrize(
    "start", [needs.Known(NOW - 300), needs.Pending(), needs.Failed("HTTP 500")]
)
def test_the_only_worker_of_a_slurm_that_may_have_lost_its_state_is_neither_replaced_nor_deleted(
    desired: Desired, start: Answer
) -> None:
    observed = seen([worker(0, slurmd_since=NOW - 600)], slurm(node(9, "IDLE")))
    memory = Memory(absent_since={"uid-0": NOW - 100})
    decision = answered(desired, observed, needs.Known(True), memory, start)
    assert deleted(decision) == []
    assert "slurmctld may have lost its state" in decision.conditions[0].message
    # A slurmctld that has run since then would not have deleted the record of a node with a job.
    assert deleted(answered(desired, observed, needs.Known(True), memory)) == ["slinky-0"]


def test_pods_of_a_slurm_without_its_state_are_spared_after_others_were_replaced_by_hand() -> None:
    pods = [worker(number, slurmd_since=NOW - 600) for number in range(4)]
    memory = Memory(absent_since={it.uid: NOW - 100 for it in pods})
    first = answered(asked(4), seen(pods, slurm()), needs.Known(True), memory, needs.Known(None))
    assert deleted(first) == []
    then = [*pods[:1], *(replace(pod, uid=f"new-{pod.uid}") for pod in pods[1:])]
    view = slurm(*(node(number, "IDLE") for number in range(1, 4)))
    second = answered(
        asked(4), seen(then, view), needs.Known(True), first.memory, needs.Known(None)
    )
    assert deleted(second) == []
    assert second.conditions[0].reason == "StateLost"
    known = answered(
        asked(4),
        seen(then, slurm(node(0, "IDLE"), *view.nodes.values())),
        needs.Pending(),
        second.memory,
    )
    assert (known.memory.spared, known.conditions[0].reason) == (frozenset(), "Ready")


@pytest.mark.parametrize("failed", [needs.Pending(), needs.Failed("HTTP 500")])
def test_while_the_start_of_slurmctld_can_not_be_read_a_pod_is_spared_and_no_longer(
    failed: Answer,
) -> None:
    pods = [worker(number, slurmd_since=NOW - 600) for number in range(2)]
    observed = seen(pods, slurm(node(1, "IDLE")))
    memory = Memory(absent_since={"uid-0": NOW - 100})
    first = answered(asked(2), observed, needs.Known(True), memory, failed)
    assert deleted(first) == []
    assert first.conditions[0].reason == "StateLost"
    # Slurm 25.11 doesn't report it, and too few workers are missing.
    assert deleted(
        answered(asked(2), observed, needs.Known(True), first.memory, needs.Known(None))
    ) == ["slinky-0"]


def test_a_pod_of_a_slurm_that_has_lost_its_state_is_spared_while_it_terminates_too() -> None:
    pods = [worker(number, slurmd_since=NOW - 600) for number in range(4)]
    memory = Memory(absent_since={it.uid: NOW - 100 for it in pods})
    first = answered(asked(4), seen(pods, slurm()), needs.Known(True), memory, needs.Known(None))
    terminating = replace(
        pods[0], terminating=True, terminating_until=NOW + 5000, kube_node_gone=True
    )
    then = [terminating, *(replace(pod, uid=f"new-{pod.uid}") for pod in pods[1:])]
    view = slurm(*(node(number, "IDLE") for number in range(1, 4)))
    second = answered(
        asked(4), seen(then, view), needs.Known(True), first.memory, needs.Known(None)
    )
    assert deleted(second) == []


def test_what_was_read_for_one_pod_is_valid_for_a_moment_only() -> None:
    observed = seen([worker(0), worker(1)], slurm(node(0, "IDLE")))
    [action] = of(actions.DeletePod, answered(asked(1), observed, needs.Known(True)))
    assert action.deletion.valid_until is not None
    assert NOW < action.deletion.valid_until <= NOW + 5


def test_a_pod_is_deleted_by_force_only_if_its_kubernetes_node_is_lost_at_this_moment() -> None:
    stuck = worker(0, terminating=True, terminating_until=NOW - 1, kube_node_gone=True)
    observed = seen([stuck], slurm(node(0, "IDLE")))
    assert decide(asked(0), observed, Memory(), NOW).needs == (needs.IsLost("kube-0"),)
    assert deleted(answered(asked(0), observed, needs.Known(True))) == ["slinky-0"]
    assert deleted(answered(asked(0), observed, needs.Known(False))) == []
    for answer in (needs.Failed("HTTP 500"), needs.Pending()):
        unknown = answered(asked(0), observed, answer)
        # No event may follow, neither of the pod nor of its Kubernetes node.
        assert (deleted(unknown), unknown.look_again) == ([], 1.0)


def orphan(ordinal: int) -> Node:
    return replace(
        node(ordinal, "IDLE"), extra=encode(PodFacts("uid-gone", pod=f"slinky-{ordinal}"))
    )


def test_after_the_clock_was_set_back_a_record_without_a_pod_waits_no_longer() -> None:
    before = Memory(orphaned_since={"slinky-5": NOW + 3600})
    observed = seen([worker(0)], slurm(node(0, "IDLE"), orphan(5)), orphans=(orphan(5),))
    decision = answered(asked(1), observed, needs.Known(False), before)
    assert decision.look_again == ORPHANED_SECONDS
    assert decision.memory.orphaned_since == {"slinky-5": NOW}


def test_a_node_record_is_deleted_only_if_no_pod_of_its_name_is_hidden_from_the_watch() -> None:
    observed = seen([], slurm(orphan(0)), orphans=(orphan(0),))
    memory = Memory(orphaned_since={"slinky-0": NOW - ORPHANED_SECONDS})
    assert decide(asked(0), observed, memory, NOW).needs == needs.NAMES
    known = replace(observed, answers={**UNRESERVED, needs.Jobs(): jobs()})
    assert decide(asked(0), known, memory, NOW).needs == (needs.IsHidden("slinky-0"),)
    assert answered(asked(0), observed, needs.Known(False), memory).actions == (
        actions.DeleteRecords(("slinky-0",)),
    )
    for answer in (needs.Known(True), needs.Failed("HTTP 500")):
        decision = answered(asked(0), observed, answer, memory)
        assert (decision.actions, decision.look_again) == ((), 1.0)


def test_a_record_without_a_pod_stays_down_for_a_job_that_reason_and_condition_name() -> None:
    down = replace(orphan(0), states=frozenset({"DOWN"}), reason="slurm-node: slurmd has stopped")
    memory = Memory(orphaned_since={"slinky-0": NOW - ORPHANED_SECONDS})
    listed = jobs(Job(17, states=frozenset({"PENDING"}), required_nodes="slinky-0"))
    observed = seen([], slurm(down), orphans=(down,))
    first = answered(asked(0), observed, needs.Known(False), memory, listed=listed)
    reason = "slurm-operator: its pod was deleted; kept for job 17"
    assert first.actions == (actions.SetDown(reason, ("slinky-0",)),)
    [condition] = [it for it in first.conditions if it.type == "RecordsReleased"]
    assert (condition.status, condition.reason) == ("False", "Named")
    assert "slinky-0 (job 17)" in condition.message
    kept = replace(down, reason=reason)
    again = answered(
        asked(0), seen([], slurm(kept), orphans=(kept,)), needs.Known(False), memory, listed=listed
    )
    assert (again.actions, again.look_again) == ((), KEPT_SECONDS)
    nobody = answered(asked(0), seen([], slurm(kept), orphans=(kept,)), needs.Known(False), memory)
    assert nobody.actions == (actions.DeleteRecords(("slinky-0",)),)
    assert "RecordsReleased" not in {it.type for it in nobody.conditions}


def test_a_nodeset_that_is_deleted_leaves_the_records_that_jobs_name() -> None:
    reason = "slurm-operator: its pod was deleted; kept for job 17"
    kept = replace(orphan(0), states=frozenset({"DOWN"}), reason=reason)
    memory = Memory(orphaned_since={"slinky-0": NOW - ORPHANED_SECONDS})
    listed = jobs(Job(17, states=frozenset({"PENDING"}), required_nodes="slinky-0"))
    observed = seen([], slurm(kept), orphans=(kept,))
    decision = answered(asked(1, DELETED), observed, needs.Known(False), memory, listed=listed)
    assert decision.actions == (actions.ReleaseNodeSet(),)


def test_the_pod_that_a_comment_of_schedmds_operator_names_must_be_in_the_watch_too() -> None:
    comment = (
        '{"namespace":"slurm","podName":"worker-7","node":"kube-1","nodeSetName":"slinky",'
        '"nodeSetUID":"set"}'
    )
    record = replace(node(0, "DOWN"), comment=comment)
    observed = seen([], slurm(record), orphans=(record,))
    memory = Memory(orphaned_since={"slinky-0": NOW - ORPHANED_SECONDS})
    # Its state is none of ours, so it is only drained; the pod is asked for first.
    assert decide(asked(0), observed, memory, NOW).needs == (needs.IsHidden("worker-7"),)
    assert answered(asked(0), observed, needs.Known(True), memory).actions == ()


def test_how_long_a_record_has_had_no_pod_is_remembered_and_the_rest_is_waited_for() -> None:
    observed = seen([], slurm(orphan(0)), orphans=(orphan(0),))
    first = decide(asked(0), observed, Memory(), NOW)
    assert (first.actions, first.look_again) == ((), ORPHANED_SECONDS)
    assert first.memory.orphaned_since == {"slinky-0": NOW}
    assert (
        decide(asked(0), replace(observed, orphans=()), first.memory, NOW).memory.orphaned_since
        == {}
    )


def test_without_a_template_pods_are_drained_but_none_is_created() -> None:
    desired = replace(asked(3), creatable=False)
    assert decide(desired, seen([worker(0)], slurm(node(0, "IDLE"))), Memory(), NOW).actions == ()
    shrunk = replace(asked(0), creatable=False)
    assert of(
        actions.Drain, decide(shrunk, seen([worker(0)], slurm(node(0, "IDLE"))), Memory(), NOW)
    )


def test_until_its_own_writes_are_seen_no_pod_is_created_or_deleted_but_nodes_are_drained() -> None:
    view = slurm(
        node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)), node(2, "IDLE")
    )
    pods = [worker(0), worker(1, cordon="operator"), worker(2, cordon="operator")]
    observed = seen(pods, view, settled=False, answers={**UNRESERVED, needs.Jobs(): jobs()})
    decision = decide(asked(1), observed, Memory(), NOW)
    assert [type(it) for it in decision.actions] == [actions.Drain]
    assert decide(asked(5), seen([], slurm(), settled=False), Memory(), NOW).actions == ()


def test_the_pod_of_a_name_that_has_just_failed_is_created_only_after_its_back_off() -> None:
    failed = worker(0, phase="Failed", ready=False, available=False)
    first = decide(asked(1), seen([failed], slurm()), Memory(), NOW)
    assert deleted(first) == ["slinky-0"]
    gone = seen([], slurm())
    waiting = decide(asked(1), gone, first.memory, NOW + 0.4)
    assert not waiting.actions
    assert waiting.look_again is not None
    assert 0 < waiting.look_again <= 0.6
    assert decide(asked(1), gone, first.memory, NOW + 1.0).actions == (
        actions.CreatePods(ordinals=(0,)),
    )


# Partitions


def removed(view: SlurmView, answers: dict[Need, Answer], memory: Memory | None = None) -> Decision:
    """A NodeSet whose partition `slinky` is not asked for."""
    desired = asked(0)
    status = msgspec.structs.replace(desired.nodeset.status, partitions=["slinky", "other"])
    nodeset = msgspec.structs.replace(desired.nodeset, status=status)
    return decide(
        replace(desired, nodeset=nodeset), seen([], view, answers=answers), memory or Memory(), NOW
    )


PARTITIONS = needs.Partitions(CLOCK)
SHUT = tuple(Partition(name, states=frozenset({"INACTIVE"})) for name in ("other", "slinky"))


def test_a_partition_needs_to_be_closed_before_the_jobs_are_read() -> None:
    first = removed(slurm(), {})
    assert first.needs == (PARTITIONS,)
    second = removed(slurm(), {PARTITIONS: needs.Known(SHUT, CLOCK)})
    assert second.needs == (needs.Jobs(),)
    done = removed(
        slurm(), {PARTITIONS: needs.Known(SHUT, CLOCK), needs.Jobs(): jobs(asked_at=CLOCK + 1)}
    )
    assert (done.status["partitions"], done.needs) == ([], ())


def test_no_partition_is_removed_while_the_jobs_are_older_than_the_closing_of_one() -> None:
    half = (Partition("other", states=frozenset({"UP"})), SHUT[1])
    decision = removed(
        slurm(), {PARTITIONS: needs.Known(half, CLOCK), needs.Jobs(): jobs(asked_at=CLOCK - 1)}
    )
    assert decision.status["partitions"] == ["other", "slinky"]
    assert decision.look_again == 1.0


def test_a_partition_stays_while_slurm_is_unknown_or_a_job_names_it() -> None:
    unknown = removed(slurm(problem="slurmrestd does not answer"), {})
    assert unknown.status["partitions"] == ["other", "slinky"]
    job = Job(7, states=frozenset({"RUNNING"}), partition="slinky")
    known: dict[Need, Answer] = {
        PARTITIONS: needs.Known(SHUT, CLOCK),
        needs.Jobs(): jobs(job, asked_at=CLOCK + 1),
    }
    decision = removed(slurm(), known)
    assert decision.status["partitions"] == ["slinky"]
    [released] = [it for it in decision.conditions if it.type == "PartitionsReleased"]
    assert "1 job (7)" in released.message
    assert FINISHED_FOR > 300


# Removal of the NodeSet


def test_a_nodeset_without_pods_is_released() -> None:
    assert of(actions.ReleaseNodeSet, decide(asked(1, DELETED), seen([], slurm()), Memory(), NOW))
    assert not of(
        actions.ReleaseNodeSet,
        decide(asked(1, DELETED), seen([], slurm(), settled=False), Memory(), NOW),
    )
    assert not of(actions.ReleaseNodeSet, decide(asked(1), seen([], slurm()), Memory(), NOW))


def test_a_nodeset_is_released_only_after_its_node_records_are_deleted() -> None:
    observed = seen([], slurm(orphan(0)), orphans=(orphan(0),))
    young = decide(asked(1, DELETED), observed, Memory(), NOW)
    assert not of(actions.ReleaseNodeSet, young)
    old = Memory(orphaned_since={"slinky-0": NOW - ORPHANED_SECONDS})
    decision = answered(asked(1, DELETED), observed, needs.Known(False), old)
    assert [type(it) for it in decision.actions] == [actions.DeleteRecords, actions.ReleaseNodeSet]


def test_a_nodeset_whose_deletion_timeout_is_over_does_not_wait_for_node_records() -> None:
    observed = seen([], slurm(orphan(0)), orphans=(orphan(0),))
    decision = decide(asked(1, DELETED, deletionTimeout="10s"), observed, Memory(), NOW)
    assert of(actions.ReleaseNodeSet, decision)


def test_a_deleted_nodeset_waits_for_its_node_records_for_a_minute_once_it_has_no_pods() -> None:
    # They don't become due: the record was seen only just now.
    observed = seen([], slurm(orphan(0)), orphans=(orphan(0),))
    early, late = (Memory(pods_gone_since=NOW - seconds) for seconds in (59, 60))
    assert not of(actions.ReleaseNodeSet, decide(asked(1, DELETED), observed, early, NOW))
    assert of(actions.ReleaseNodeSet, decide(asked(1, DELETED), observed, late, NOW))


def test_a_nodeset_whose_deletion_waited_for_jobs_for_hours_still_waits_for_its_node_records() -> (
    None
):
    two_hours_ago = {"deletionTimestamp": "1970-01-12T11:46:40Z"}
    observed = seen([], slurm(orphan(0)), orphans=(orphan(0),))
    decision = decide(asked(1, two_hours_ago), observed, Memory(), NOW)
    assert not of(actions.ReleaseNodeSet, decision)
    assert decision.look_again is not None
    assert decision.memory.pods_gone_since == NOW
    later = decide(asked(1, two_hours_ago), observed, decision.memory, NOW + 1)
    assert later.memory.pods_gone_since == NOW
    busy = decide(
        asked(1, two_hours_ago), seen([worker(0)], slurm(node(0, "MIXED"))), Memory(), NOW
    )
    assert busy.memory.pods_gone_since is None


def test_a_deleted_nodeset_waits_for_jobs_of_its_partition_until_its_deletion_timeout_is_over() -> (
    None
):
    def released(**spec: Any) -> bool:
        desired = asked(1, DELETED, partition={"enabled": True}, **spec)
        return bool(of(actions.ReleaseNodeSet, decide(desired, seen([], slurm()), Memory(), NOW)))

    assert not released()
    assert not released(deletionTimeout="41s")
    assert released(deletionTimeout="40s")


def test_a_nodeset_deleted_with_its_controller_waits_a_while_for_records_of_silent_slurm() -> None:
    def released(waited: float, *, connected: bool = True) -> bool:
        view = SlurmView({}, "slurmrestd doesn't answer")
        observed = seen([], view, connected=connected, controller_deleted=True)
        decision = decide(asked(1, DELETED), observed, Memory(pods_gone_since=NOW - waited), NOW)
        return bool(of(actions.ReleaseNodeSet, decision))

    assert not released(RECORDS_SECONDS - 1)
    assert released(RECORDS_SECONDS)
    assert released(0, connected=False), "no Slurm has ever been there"


def test_a_nodeset_deleted_with_its_controller_waits_a_while_for_a_reservation_in_silence() -> None:
    def removed(pods: list[WorkerPod], waited: float, *, controller_deleted: bool) -> bool:
        desired = asked(1, {**DELETED, "finalizers": [FINALIZER]})
        view = SlurmView({}, "slurmrestd doesn't answer")
        observed = seen(pods, view, connected=True, controller_deleted=controller_deleted)
        decision = decide(desired, observed, Memory(pods_gone_since=NOW - waited), NOW)
        found = of(actions.RemoveReservation, decision)
        assert found or decision.look_again is not None
        return found == [actions.RemoveReservation("SlurmOperatorMaint-slinky", reachable=False)]

    assert removed([], RECORDS_SECONDS, controller_deleted=True)
    assert not removed([], RECORDS_SECONDS - 1, controller_deleted=True)
    assert not removed([worker(0)], RECORDS_SECONDS, controller_deleted=True)
    assert not removed([], RECORDS_SECONDS, controller_deleted=False)


# Revisions


def test_old_revisions_are_deleted_beyond_the_limit_once_pods_can_be_created() -> None:
    stored = [Stored(f"slinky-{number}", number, Revision(f"r{number}", {})) for number in range(4)]
    observed = seen([], slurm(), revisions=stored)
    desired = asked(0, revisionHistoryLimit=1)
    assert [
        it.name for it in of(actions.PruneRevision, decide(desired, observed, Memory(), NOW))
    ] == [f"slinky-{number}" for number in range(3)]
    assert not decide(replace(desired, creatable=False), observed, Memory(), NOW).actions


# Whatever is seen

RARELY = st.sampled_from([False, False, False, True])
REASONS = st.sampled_from(
    ["", "bad disk", SCALE_IN.format(0), "slurm-node: the pod is terminating", "Not responding"]
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Desired, Observed]:
    """Some pods and node records, of which nothing need fit."""
    pods = []
    for number in range(draw(st.integers(2, 5))):
        terminating = draw(RARELY)
        pods.append(
            worker(
                number,
                phase=draw(st.sampled_from(["Running", "Running", "Pending", "Failed"])),
                ready=draw(st.booleans()),
                started=not draw(RARELY),
                revision=draw(st.sampled_from(["old", "new"])),
                cordon=draw(st.sampled_from([None, "user", "operator"])),
                kube_node_cordon=draw(st.sampled_from([None, "Node (m) was cordoned"])),
                kube_node_gone=draw(st.booleans()),
                out_of_service=draw(st.booleans()),
                slurmd_since=draw(st.sampled_from([None, NOW - 5, NOW - 5000])),
                terminating=terminating,
                terminating_until=NOW + draw(st.integers(-60, 60)) if terminating else None,
            )
        )
    numbers = [number for number in range(7) if not draw(RARELY)]
    nodes = [node(number, *draw(NODE_WORDS), reason=draw(REASONS)) for number in numbers]
    view = replace(
        slurm(*nodes, problem="unreachable" if draw(RARELY) else None),
        age=9.0 if draw(RARELY) else 0.0,
        unsettled=frozenset(
            f"slinky-{number}" for number in draw(st.sets(st.integers(0, 6), max_size=2))
        ),
        unread=frozenset(
            f"slinky-{number}" for number in draw(st.sets(st.integers(0, 6), max_size=2))
        ),
    )
    meta = DELETED if draw(st.booleans()) else None
    return asked(draw(st.sampled_from([0, 0, 1, 3, 6])), meta), seen(
        pods,
        view,
        connected=not draw(RARELY),
        settled=not draw(RARELY),
        controller_deleted=draw(RARELY),
        orphans=tuple(orphan(number) for number in numbers if number > 4),
    )


SOME_JOBS = st.lists(
    st.builds(
        lambda number, state: Job(number, states=frozenset({state}), nodes=f"slinky-{number}"),
        st.integers(0, 6),
        st.sampled_from(["RUNNING", "SUSPENDED", "COMPLETED", "PENDING", "SOMETHING_NEW"]),
    ),
    max_size=2,
)


# With fewer, hardly a pod is deleted of which a defect would make a difference.
@settings(max_examples=4 * settings().max_examples)
@given(worlds(), st.data())
def test_whatever_is_answered_it_ends_and_no_pod_that_may_have_a_job_is_deleted(
    found: tuple[Desired, Observed], data: st.DataObject
) -> None:
    desired, observed = found
    for _ in range(NOT_FOUND_AFTER):
        decision = decide(desired, observed, Memory(), NOW)
        if not decision.needs:
            break
        answers: dict[Need, Answer] = {}
        for need in decision.needs:
            known = jobs(*data.draw(SOME_JOBS)) if isinstance(need, needs.Jobs) else None
            if isinstance(need, needs.SlurmctldStart):
                known = needs.Known(data.draw(st.sampled_from([None, NOW - 50, NOW - 1e6])))
            value = (
                ()
                if isinstance(need, needs.Partitions | needs.Reservations)
                else data.draw(st.booleans())
            )
            good = known if known is not None else needs.Known(value, CLOCK)
            choices: list[Answer] = [
                good,
                good,
                good,
                good,
                needs.Pending(),
                needs.Failed("HTTP 500"),
            ]
            answers[need] = data.draw(st.sampled_from(choices))
        observed = replace(observed, answers={**observed.answers, **answers})
    assert not decision.needs
    listed = observed.answers.get(needs.Jobs())
    with_jobs = {
        f"slinky-{job.job_id}"
        for job in (listed.value.jobs if isinstance(listed, needs.Known) else ())
        if job.states & {"RUNNING", "SUSPENDED", "SOMETHING_NEW"}
    }
    for action in of(actions.DeletePod, decision):
        pod, record = action.deletion.pod, observed.slurm.nodes.get(action.deletion.pod.slurm_node)
        assert observed.settled
        if pod.finished or not pod.started:
            continue
        if pod.terminating:
            assert observed.answers.get(needs.IsLost(pod.kube_node or "")) == needs.Known(
                True, CLOCK
            )
            assert pod.kube_node_gone or pod.out_of_service
            continue
        assert observed.slurm.problem is None
        assert pod.slurm_node not in observed.slurm.unsettled
        if record is None:
            assert observed.answers.get(needs.IsAbsent(pod.slurm_node)) == needs.Known(True, CLOCK)
            start = observed.answers.get(needs.SlurmctldStart())
            # Without its slurmd's container no job of the pod runs.
            if pod.slurmd_since is not None:
                assert isinstance(start, needs.Known)
                assert start.value is None or pod.slurmd_since > start.value
            assert isinstance(listed, needs.Known)
            assert pod.slurm_node not in with_jobs
            continue
        assert not may_have_a_job(record)
        assert isinstance(listed, needs.Known)
        assert pod.slurm_node not in with_jobs | observed.slurm.unread
    for undrain in of(actions.Undrain, decision):
        for name in undrain.slurm_nodes:
            assert observed.slurm.nodes[name].reason.startswith(
                ("slurm-operator: ", "slurm-node: ")
            )


@given(st.integers(0, 6), st.booleans())
def test_a_settled_nodeset_needs_nothing_and_gets_no_action(replicas: int, partition: bool) -> None:
    desired = asked(replicas, partition={"enabled": partition})
    observed = seen(
        [worker(it) for it in range(replicas)], slurm(*(node(it, "IDLE") for it in range(replicas)))
    )
    memory = Memory()
    for _ in range(2):
        decision = decide(desired, observed, memory, NOW)
        assert (decision.needs, decision.actions, decision.look_again) == ((), (), None)
        assert [(it.type, it.status) for it in decision.conditions] == [
            ("Ready", "True"),
            ("SlurmReachable", "True"),
        ]
        memory = decision.memory
