"""Slurm's power saving of a NodeSet: `sidecars.policy.nodeset.power`, and what the whole decision
reads from it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.contract import reasons
from sidecars.contract.extra import PodFacts, encode
from sidecars.policy.nodeset import actions, needs, power
from sidecars.policy.nodeset.decide import Decision, decide
from sidecars.policy.nodeset.desired import desired_pods
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.records import Desired, Observed, SlurmView, WorkerPod
from sidecars.policy.placement import Rules
from sidecars.slurm.records import Job, Node
from sidecars.workloads import nodeset as render
from tests.support import builders
from tests.unit.policy.nodeset.builders import NOW, slurm, worker

OFFER = "CPUs=4 RealMemory=8000"
NO_NODE = "0/3 nodes are available: 3 Insufficient cpu."
CLOCK = 1_000.0
CLOSED = "SlurmOperatorClosed-slinky"
DRAINED = reasons.NO_CAPACITY + NO_NODE


def cloud(ordinal: int, *words: str, **fields: Any) -> Node:
    """A record of power saving, as the operator creates it for a NodeSet with OFFER."""
    present: dict[str, Any] = {
        "features": ("slinky",),
        "cpus": 4,
        "real_memory": 8000,
        "weight": 1,
        "suspend_time": 1_000_000_000,
        "last_busy": int(NOW) - 10,
    }
    states = frozenset({"CLOUD", "DYNAMIC_NORM", *words})
    return Node(f"slinky-{ordinal}", states=states, **{**present, **fields})


def off(ordinal: int, **fields: Any) -> Node:
    return cloud(ordinal, "IDLE", "POWERED_DOWN", **fields)


def asked(
    replicas: int,
    pods: Iterable[WorkerPod],
    view: SlurmView,
    meta: dict[str, Any] | None = None,
    **saving: Any,
) -> Desired:
    """What a NodeSet `slinky` with power saving asks for."""
    fields = {"enabled": True, "node": OFFER, **saving}
    nodeset = power.with_offer(
        builders.nodeset("slinky", meta, replicas=replicas, powerSaving=fields), pods, view
    )
    line, problem = power.line(nodeset)
    ordinals = power.ordinals(nodeset, pods, view, offered=bool(line), problem=problem)
    wanted = desired_pods(nodeset, "new", Rules.of({}), {}, (), NOW, ordinals)
    return Desired(nodeset, wanted, record_line=line, record_problem=problem)


def decided(
    replicas: int, pods: Iterable[WorkerPod], *nodes: Node, jobs: Iterable[Job] = (), **saving: Any
) -> Decision:
    """The decision when the list of jobs is this one."""
    everyone, view = tuple(pods), slurm(*nodes)
    answers: dict[needs.Need, needs.Answer] = {
        needs.Jobs(): needs.Known(needs.JobList(tuple(jobs), CLOCK), CLOCK)
    }
    observed = Observed(everyone, view, clock=CLOCK, answers=answers)
    return decide(asked(replicas, everyone, view, **saving), observed, Memory(), NOW)


def starting(ordinal: int, **changes: Any) -> WorkerPod:
    """A pod that was created ten seconds ago and is bound to no Kubernetes node."""
    fresh = {
        "kube_node": None,
        "phase": "Pending",
        "ready": False,
        "available": False,
        "started": False,
    }
    return worker(ordinal, **{**fresh, "ready_since": None, "created": NOW - 10, **changes})


def kinds(decision: Decision) -> list[type]:
    return [type(action) for action in decision.actions]


def condition(decision: Decision) -> tuple[str, str]:
    [found] = [it for it in decision.conditions if it.type == "PowerSaving"]
    return found.status, found.reason


# --- which ordinals need a pod


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("IDLE POWERED_DOWN", False),
        ("IDLE POWERING_DOWN", False),
        ("ALLOCATED POWERED_DOWN", False),
        ("IDLE POWERED_DOWN POWER_UP", False),
        ("DOWN POWERED_DOWN", False),
        ("ALLOCATED NOT_RESPONDING POWERING_UP", True),
        ("IDLE", True),
        ("MIXED", True),
        ("IDLE POWER_DOWN", True),
        ("DOWN NOT_RESPONDING", True),
        ("IDLE DRAIN", True),
    ],
)
def test_a_node_needs_its_pod_from_the_moment_that_slurm_starts_it_until_slurm_stops_it(
    words: str, needed: bool
) -> None:
    view = slurm(cloud(0, *words.split()))
    nodeset = builders.nodeset("slinky", replicas=1, powerSaving={"enabled": True})
    assert power.ordinals(nodeset, (), view, offered=True) == (
        frozenset({0}) if needed else frozenset()
    )


def test_a_nodeset_that_has_lost_its_status_goes_on_with_what_its_records_show() -> None:
    found = decided(2, (), off(0), cloud(1, "ALLOCATED", "POWERING_UP"), node="")
    assert [it.ordinals for it in found.actions if isinstance(it, actions.CreatePods)] == [(1,)]
    assert condition(found) == ("True", "Following")


@pytest.mark.parametrize("release", [(25, 11, 7), (26, 5, 2)])
def test_a_slurm_that_is_too_old_for_power_saving_gets_no_records_and_is_reported(
    release: tuple[int, int, int],
) -> None:
    view = replace(slurm(), release=release)
    found = decide(asked(2, (), view), Observed((), view, clock=CLOCK), Memory(), NOW)
    assert not [it for it in found.actions if isinstance(it, actions.CreateRecords)]
    condition = power.plan(asked(2, (), view), Observed((), view, clock=CLOCK), Memory(), NOW)
    assert condition.condition is not None
    assert (condition.condition.status, condition.condition.reason) == ("False", "SlurmTooOld")
    assert "needs Slurm 26.05.3 or newer" in condition.condition.message


def test_power_saving_begins_when_slurm_is_new_enough_or_does_not_report_its_release() -> None:
    for release in ((26, 5, 3), (27, 11, 0), None):
        view = replace(slurm(), release=release)
        found = decide(asked(2, (), view), Observed((), view, clock=CLOCK), Memory(), NOW)
        assert [it for it in found.actions if isinstance(it, actions.CreateRecords)]


def test_while_slurm_is_unknown_the_pods_stay_as_they_are() -> None:
    pods = (worker(0), worker(2))
    view = replace(slurm(off(0), cloud(1, "ALLOCATED", "POWERING_UP")), problem="no answer")
    found = decide(asked(3, pods, view), Observed(pods, view, clock=CLOCK), Memory(), NOW)
    assert found.actions == ()
    assert condition(found) == ("Unknown", "NoAnswer")


def test_a_slurmd_without_a_record_keeps_its_pod_until_it_is_explained() -> None:
    nodeset = builders.nodeset("slinky", replicas=2, powerSaving={"enabled": True})
    assert power.ordinals(nodeset, [worker(1)], slurm(), offered=True) == {1}


# --- records


def test_all_ordinals_get_a_record_in_one_request_and_no_pod() -> None:
    found = decided(3, ())
    [create] = found.actions
    assert isinstance(create, actions.CreateRecords)
    assert create.slurm_nodes == ("slinky-0", "slinky-1", "slinky-2")
    assert create.conf == "State=CLOUD Weight=1 CPUs=4 RealMemory=8000 Features=slinky"


def test_workers_that_always_run_are_started() -> None:
    found = decided(2, (), off(0), off(1), min=1)
    assert found.actions == (actions.PowerUp(("slinky-0",)),)


def idle(seconds: float, ordinal: int = 0, *words: str, **fields: Any) -> Node:
    """A node that is up and has been idle for so long."""
    return cloud(ordinal, *(words or ("IDLE",)), **{"last_busy": int(NOW - seconds), **fields})


OLD = {"ready_since": NOW - 5000}


def test_a_worker_that_is_idle_for_long_enough_is_stopped_unless_it_always_runs() -> None:
    pods = [worker(0, **OLD), worker(1, **OLD)]
    found = decided(2, pods, idle(301), idle(100, 1))
    assert found.actions == (actions.PowerDownWhenIdle(("slinky-0",)),)
    assert found.look_again == 200
    assert decided(2, pods, idle(301), idle(100, 1), min=1).actions == ()
    assert decided(1, pods[:1], idle(31), idleSeconds=30).actions != ()


def test_a_worker_is_not_stopped_sooner_than_it_has_been_up_for() -> None:
    assert decided(1, [worker(0, ready_since=NOW - 10)], idle(9000)).actions == ()
    assert decided(1, [worker(0, **OLD)], idle(0, last_busy=0)).actions == ()


@pytest.mark.parametrize("reason", [reasons.POD_LEAVING, "slurm-operator: pending termination"])
def test_a_reason_that_remains_of_a_drain_keeps_no_worker_up_and_no_record_out_of_date(
    reason: str,
) -> None:
    """Slurm ends a drain when it powers the node down, and keeps its reason."""
    found = decided(1, [worker(0, **OLD)], idle(301, reason=reason))
    assert found.actions == (actions.PowerDownWhenIdle(("slinky-0",)),)
    assert actions.ReplaceRecords in kinds(decided(1, (), off(0, reason=reason), price=5))


def test_the_reason_that_remains_of_a_drain_is_removed_while_the_node_has_no_pod() -> None:
    left = off(0, reason=reasons.POD_LEAVING)
    assert actions.Undrain(("slinky-0",)) in decided(1, (), left).actions
    for kept in (
        off(0, reason="bad disk"),
        cloud(0, "IDLE", "DRAIN", "POWERED_DOWN", reason=reasons.POD_LEAVING),
        cloud(0, "DOWN", "POWERED_DOWN", reason="slurm-operator: its pod was deleted"),
    ):
        assert actions.Undrain not in kinds(decided(1, (), kept))
    assert actions.Undrain not in kinds(decided(1, [worker(0)], left))


@pytest.mark.parametrize(
    "kept",
    [
        idle(9000, 0, "MIXED"),
        idle(9000, 0, "IDLE", "COMPLETING"),
        idle(9000, 0, "IDLE", "PLANNED"),
        idle(9000, 0, "IDLE", "RESERVED"),
        idle(9000, 0, "IDLE", "MAINTENANCE"),
        idle(9000, 0, "IDLE", "POWER_DOWN"),
        idle(9000, 0, "IDLE", "NOT_RESPONDING"),
        idle(9000, reservation="maintenance"),
        idle(9000, 0, "IDLE", "DRAIN", reason="bad disk"),
        idle(9000, reason="look at it"),
    ],
)
def test_a_worker_that_is_used_or_retained_is_not_stopped_however_long_it_is_idle(
    kept: Node,
) -> None:
    found = decided(1, [worker(0, **OLD)], kept)
    assert actions.PowerDownWhenIdle not in kinds(found)


def test_a_record_that_is_out_of_date_is_replaced_while_the_node_is_powered_down_and_free() -> None:
    line = "State=CLOUD Weight={} CPUs=4 RealMemory=8000 Features=slinky"
    [found] = decided(1, (), off(0), price=5).actions
    assert found == actions.ReplaceRecords(line.format(5), {"slinky-0": line.format(1)})
    for kept in (
        cloud(0, "IDLE"),
        off(0, reservation="maintenance"),
        cloud(0, "ALLOCATED", "POWERED_DOWN"),
    ):
        pods = [] if "POWERED_DOWN" in kept.states else [worker(0)]
        assert actions.ReplaceRecords not in kinds(decided(1, pods, kept, price=5))


def test_a_record_that_slurm_shows_in_other_words_is_created_again_only_once() -> None:
    view = slurm(off(0, weight=7))
    desired = asked(1, (), view)
    observed = Observed((), view, clock=CLOCK)
    memory = Memory(created_records={"slinky-0": desired.record_line})
    assert decide(desired, observed, memory, NOW).actions == ()


def test_what_slurm_has_refused_replaces_and_creates_nothing_for_a_minute_and_is_reported() -> None:
    view = slurm(off(0, weight=7))
    desired = asked(2, (), view)
    line = desired.record_line

    def at(ago: float) -> Decision:
        memory = Memory(refused_records={line: (NOW - ago, "HTTP 500: Invalid argument")})
        return decide(desired, Observed((), view, clock=CLOCK), memory, NOW)

    found = at(10)
    assert found.actions == ()
    assert condition(found) == ("False", "Invalid")
    [message] = [it.message for it in found.conditions if it.type == "PowerSaving"]
    assert line in message
    assert "Invalid argument" in message
    assert found.look_again == 50
    assert {*kinds(at(61))} == {actions.CreateRecords, actions.ReplaceRecords}


def test_as_long_as_no_worker_has_registered_one_is_started_to_show_what_it_offers() -> None:
    found = decided(3, (), node="")
    assert found.actions == (actions.CreatePods(ordinals=(0,)),)
    assert condition(found) == ("False", "FirstWorker")


def test_what_a_worker_has_registered_with_is_remembered_and_used_for_all_records() -> None:
    registered = Node(
        "slinky-0",
        states=frozenset({"IDLE", "DYNAMIC_NORM"}),
        cpus=8,
        sockets=1,
        cores=4,
        threads=2,
        real_memory=16_000,
        specialized_memory=1024,
        gres="gpu:h100:2(S:0)",
        slurmd_start_time=5,
    )
    found = decided(2, [worker(0)], registered, node="")
    offer = (
        "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000 MemSpecLimit=1024 "
        "Gres=gpu:h100:2"
    )
    assert found.status["nodeConf"] == offer
    [create] = [it for it in found.actions if isinstance(it, actions.CreateRecords)]
    assert create.slurm_nodes == ("slinky-1",)
    assert "GresConf=name=gpu,type=h100,count=2" in create.conf


@pytest.mark.parametrize("declared", ["CPUs", "CPUs=four", "CPUs=4 RealMemory=8G"])
def test_an_offer_that_can_t_be_read_is_reported_and_starts_nothing(declared: str) -> None:
    found = decided(3, (), node=declared)
    assert condition(found) == ("False", "Invalid")
    assert found.actions == ()


@pytest.mark.parametrize("declared", ["CPUs", "CPUs=four", "CPUs=4 RealMemory=8G"])
def test_while_an_offer_can_t_be_read_the_workers_follow_slurm_by_the_records_that_exist(
    declared: str,
) -> None:
    records = (
        off(0),
        cloud(1, "ALLOCATED", "POWERING_UP"),
        cloud(2, "MIXED"),
        cloud(3, "IDLE", "POWERED_DOWN"),
    )
    found = decided(5, [worker(2), worker(3)], *records, node=declared)
    assert condition(found) == ("False", "Invalid")
    created, deleted = found.actions[-1], found.actions[:-1]
    assert created == actions.CreatePods(ordinals=(1,))
    assert [it.deletion.pod.ordinal for it in deleted if isinstance(it, actions.DeletePod)] == [3]
    assert len(deleted) == 1


def test_while_an_offer_can_t_be_read_a_worker_with_a_record_of_its_own_stays() -> None:
    own = Node("slinky-0", states=frozenset({"IDLE", "DYNAMIC_NORM"}), cpus=4, slurmd_start_time=5)
    assert decided(2, [worker(0)], own, node="CPUs=four").actions == ()


def test_while_an_offer_can_t_be_read_a_node_that_did_not_start_is_resumed_as_ever() -> None:
    late = cloud(
        0, "DOWN", "POWERED_DOWN", reason=reasons.RESUME_TIMEOUT, reason_changed_at=int(NOW - 301)
    )
    assert decided(1, (), late, node="CPUs=four").actions == (actions.Resume(("slinky-0",)),)


# --- ahead of planned jobs


def planned(start: float, nodes: str = "slinky-0", states: str = "PENDING") -> Job:
    return Job(7, states=frozenset({states}), scheduled_nodes=nodes, start_time=int(start))


PLANNED = cloud(0, "IDLE", "PLANNED", "POWERED_DOWN")


def test_a_node_is_started_so_long_before_the_planned_start_of_its_job_and_not_earlier() -> None:
    def at(start: float, **saving: Any) -> Decision:
        return decided(2, (), PLANNED, off(1), jobs=[planned(start)], **saving)

    assert at(NOW + 100, startAheadSeconds=120).actions == (actions.PowerUp(("slinky-0",)),)
    early = at(NOW + 130, startAheadSeconds=120)
    assert early.actions == ()
    assert early.look_again == 10
    assert at(NOW + 100).actions == ()  # by default


@pytest.mark.parametrize(
    ("node", "job"),
    [
        (PLANNED, planned(NOW + 10, "other-0")),
        (PLANNED, planned(NOW + 10, states="RUNNING")),
        (PLANNED, planned(NOW - 3600)),
        (PLANNED, planned(0)),
        (off(0), planned(NOW + 10)),
        (
            cloud(0, "IDLE", "DRAIN", "PLANNED", "POWERED_DOWN", reason="bad disk"),
            planned(NOW + 10),
        ),
        (cloud(0, "IDLE", "PLANNED", "POWERED_DOWN", reservation="r"), planned(NOW + 10)),
    ],
)
def test_no_node_is_started_for_another_job_or_that_nobody_plans_or_may_use(
    node: Node, job: Job
) -> None:
    assert decided(1, (), node, jobs=[job], startAheadSeconds=120).actions == ()


def test_planned_starts_are_only_read_while_a_powered_down_node_is_planned() -> None:
    def step(memory: Memory, *nodes: Node, answered: bool) -> Decision:
        view = slurm(*nodes)
        desired = asked(1, (), view, startAheadSeconds=60)
        jobs = needs.Known(needs.JobList((planned(NOW + 70),), CLOCK), CLOCK)
        answers: dict[needs.Need, needs.Answer] = {needs.Jobs(): jobs} if answered else {}
        return decide(desired, Observed((), view, clock=CLOCK, answers=answers), memory, NOW)

    assert needs.Jobs() not in step(Memory(), off(0), answered=False).needs
    assert needs.Jobs() in step(Memory(), PLANNED, answered=False).needs
    memory = step(Memory(), PLANNED, answered=True).memory
    again = step(memory, PLANNED, answered=False)
    assert needs.Jobs() not in again.needs
    assert again.look_again == 10
    soon = replace(memory, planned_starts={"slinky-0": NOW + 50})
    assert step(soon, PLANNED, answered=False).actions == (actions.PowerUp(("slinky-0",)),)
    assert needs.Jobs() in step(replace(memory, planned_at=NOW - 31), PLANNED, answered=False).needs


# --- stopping


def test_a_worker_that_slurm_has_stopped_is_deleted_without_a_drain_and_its_record_stays() -> None:
    for words in (("IDLE", "POWERING_DOWN"), ("IDLE", "POWERED_DOWN")):
        found = decided(1, [worker(0)], cloud(0, *words))
        assert [type(it) for it in found.actions] == [actions.DeletePod]
        assert found.actions[0].deletion.drained  # type: ignore[union-attr]  # the record is read again before


def test_a_worker_whose_node_has_a_suspended_job_or_work_stays() -> None:
    suspended = Job(1, states=frozenset({"SUSPENDED"}), nodes="slinky-0")
    assert actions.DeletePod not in kinds(decided(1, [worker(0)], off(0), jobs=[suspended]))
    for words in (
        ("MIXED", "POWERING_DOWN"),
        ("IDLE", "COMPLETING", "POWERING_DOWN"),
        ("UNKNOWN", "POWERED_DOWN"),
    ):
        assert actions.DeletePod not in kinds(decided(1, [worker(0)], cloud(0, *words)))


def test_no_node_that_slurm_may_be_starting_is_drained_because_its_pod_was_to_go() -> None:
    view = slurm(off(0))
    desired = asked(1, [worker(0)], view)
    for words in (("ALLOCATED", "POWERING_UP"), ("ALLOCATED", "POWERED_DOWN"), ("MIXED",)):
        later = Observed(
            (worker(0),),
            slurm(cloud(0, *words)),
            clock=CLOCK,
            answers={needs.Deadlines(): needs.Known(1)},
        )
        assert not {actions.Drain, actions.DeletePod} & {
            *kinds(decide(desired, later, Memory(), NOW))
        }


def test_an_ordinal_beyond_replicas_is_scaled_in_by_the_usual_rules() -> None:
    found = decided(1, [worker(1)], off(0), cloud(1, "MIXED"))
    assert [it.slurm_nodes for it in found.actions if isinstance(it, actions.Drain)] == [
        ("slinky-1",)
    ]


# --- pods that can't start


def test_a_pod_that_finds_no_kubernetes_node_gives_way_to_other_nodesets() -> None:
    late = starting(0, unscheduled=NO_NODE, created=NOW - 301)
    waiting = Job(7, states=frozenset({"RUNNING", "CONFIGURING"}), nodes="slinky-0")
    other = Job(8, states=frozenset({"RUNNING"}), nodes="other-0")
    found = decided(
        3, [late], cloud(0, "ALLOCATED", "POWERING_UP"), off(1), off(2), jobs=[waiting, other]
    )
    close = actions.Close(CLOSED, ("slinky-0", "slinky-1", "slinky-2"), int(NOW) + 300)
    assert found.actions == (actions.PowerDown(("slinky-0",), (7,), NO_NODE, close),)
    assert condition(found) == ("False", "NoCapacity")


def test_a_pod_without_an_image_gives_way_too() -> None:
    late = starting(0, no_image="ErrImagePull: not found", created=NOW - 301, kube_node="kube-0")
    assert actions.PowerDown in kinds(decided(1, [late], cloud(0, "ALLOCATED", "POWERING_UP")))


def test_a_pod_that_is_not_late_yet_is_waited_for() -> None:
    found = decided(
        1,
        [starting(0, unscheduled=NO_NODE, created=NOW - 10)],
        cloud(0, "ALLOCATED", "POWERING_UP"),
    )
    assert found.actions == ()
    # By then, a node autoscaler may have reported something about it.
    assert found.look_again == 10
    # Half of startSeconds, unless it is set.
    late = starting(0, unscheduled=NO_NODE, created=NOW - 61)
    node = cloud(0, "ALLOCATED", "POWERING_UP")
    assert actions.PowerDown in kinds(decided(1, [late], node, startSeconds=120))
    assert actions.PowerDown in kinds(decided(1, [late], node, capacityWaitSeconds=60))


def test_nothing_is_stopped_while_the_jobs_that_wait_for_it_are_unknown() -> None:
    late = starting(0, unscheduled=NO_NODE, created=NOW - 301)
    view = slurm(cloud(0, "ALLOCATED", "POWERING_UP"), off(1))
    desired = asked(2, [late], view)
    assert (
        needs.Jobs() in decide(desired, Observed((late,), view, clock=CLOCK), Memory(), NOW).needs
    )
    failed = Observed((late,), view, clock=CLOCK, answers={needs.Jobs(): needs.Failed("no answer")})
    found = decide(desired, failed, Memory(), NOW)
    assert found.actions == ()
    assert found.look_again == 1.0


def test_nodes_that_are_up_or_start_as_they_should_are_not_closed() -> None:
    late = starting(0, unscheduled=NO_NODE, created=NOW - 301)
    records = [
        cloud(0, "ALLOCATED", "POWERING_UP"),
        cloud(1, "IDLE"),
        cloud(2, "ALLOCATED", "POWERING_UP"),
        cloud(3, "ALLOCATED", "POWERED_DOWN"),
        cloud(4, "IDLE", "POWERING_DOWN"),
    ]
    [stop] = [
        it
        for it in decided(5, [late, worker(1), starting(2)], *records).actions
        if isinstance(it, actions.PowerDown)
    ]
    assert stop.close is not None
    assert stop.close.slurm_nodes == ("slinky-0", "slinky-3", "slinky-4")


def closed(ordinal: int, *words: str, **fields: Any) -> Node:
    """A record in the reservation by which the operator closes nodes."""
    shown = words or ("IDLE", "POWERED_DOWN", "RESERVED")
    return cloud(ordinal, *shown, reservation=CLOSED, **fields)


def test_closed_nodes_are_neither_started_nor_replaced_and_slurm_opens_them() -> None:
    found = decided(2, (), closed(0, weight=7), closed(1), min=1)
    assert found.actions == ()
    assert condition(found) == ("False", "NoCapacity")
    assert condition(decided(2, (), off(0), off(1))) == ("True", "Following")


def test_a_closure_that_slurm_does_not_show_yet_counts() -> None:
    late = starting(0, unscheduled=NO_NODE, created=NOW - 301)
    first = decided(2, [late], cloud(0, "ALLOCATED", "POWERING_UP"), off(1), min=2)
    view = slurm(cloud(0, "IDLE", "POWERING_DOWN"), off(1, weight=7))
    desired = asked(2, (), view, min=2)
    observed = Observed((), view, clock=CLOCK)
    found = decide(desired, observed, first.memory, NOW + 1)
    assert found.actions == ()
    [message] = [it.message for it in found.conditions if it.type == "PowerSaving"]
    assert NO_NODE in message
    later = decide(desired, observed, first.memory, NOW + 16)
    assert kinds(later) == [actions.ReplaceRecords]
    assert condition(later) == ("True", "Following")


def test_after_a_restart_of_the_operator_the_condition_still_shows_why_nodes_are_closed() -> None:
    late = starting(0, unscheduled=NO_NODE, created=NOW - 301)
    first = decided(2, [late], cloud(0, "ALLOCATED", "POWERING_UP"), off(1))
    [former] = [it for it in first.conditions if it.type == "PowerSaving"]
    view = slurm(closed(0), closed(1))
    shown = {"type": "PowerSaving", "reason": former.reason, "message": former.message}
    found = decide(
        asked(2, (), view), Observed((), view, clock=CLOCK, conditions=(shown,)), Memory(), NOW + 5
    )
    [message] = [it.message for it in found.conditions if it.type == "PowerSaving"]
    assert message == former.message


def test_closed_records_are_opened_before_they_are_deleted() -> None:
    fewer = decided(1, (), closed(0), closed(1))
    assert fewer.actions == (actions.Close(CLOSED, ("slinky-0",)),)
    meta = {"deletionTimestamp": "1970-01-12T13:46:00Z"}
    view = slurm(closed(0))
    leaving = decide(asked(1, (), view, meta), Observed((), view, clock=CLOCK), Memory(), NOW)
    assert actions.Reopen(CLOSED) in leaving.actions


def test_drains_by_which_another_version_has_closed_nodes_are_lifted() -> None:
    drained = cloud(1, "IDLE", "DRAIN", "POWERED_DOWN", reason=DRAINED, reason_changed_at=int(NOW))
    found = decided(2, (), off(0, reason=DRAINED), drained)
    assert found.actions == (actions.Undrain(("slinky-0", "slinky-1")),)


def test_a_drain_of_an_administrator_is_neither_lifted_nor_replaced() -> None:
    foreign = cloud(0, "IDLE", "DRAIN", "POWERED_DOWN", reason="bad disk", reason_changed_at=1)
    assert decided(2, (), foreign, off(1)).actions == ()
    assert decided(1, (), foreign, price=3).actions == ()


def test_a_node_that_did_not_start_in_time_is_resumed_after_a_while() -> None:
    def late(ago: float) -> Node:
        return cloud(
            0,
            "DOWN",
            "POWERED_DOWN",
            reason=reasons.RESUME_TIMEOUT,
            reason_changed_at=int(NOW - ago),
        )

    assert kinds(decided(1, [worker(0)], late(301))) == [actions.DeletePod]
    found = decided(1, (), late(10))
    assert found.actions == ()
    assert condition(found) == ("False", "ResumeTimeout")
    assert decided(1, (), late(301)).actions == (actions.Resume(("slinky-0",)),)


@pytest.mark.parametrize(
    ("reason", "by", "resumed"),
    [
        (reasons.OPERATOR_PREFIX + "slinky-0 is lost", "root", True),
        (reasons.UNEXPECTEDLY_REBOOTED, "slurm", True),
        ("bad disk", "root", False),
    ],
)
def test_a_down_node_without_a_pod_is_resumed_unless_an_administrator_has_set_it_down(
    reason: str, by: str, resumed: bool
) -> None:
    down = cloud(0, "DOWN", "POWERED_DOWN", reason=reason, reason_set_by_user=by)
    resume = (actions.Resume(("slinky-0",)),)
    assert decided(1, (), down).actions == (resume if resumed else ())


def test_a_worker_that_was_started_before_slurm_asked_is_replaced_without_closing_the_nodeset() -> (
    None
):
    found = decided(2, [worker(0)], cloud(0, "ALLOCATED", "NOT_RESPONDING", "POWERING_UP"), off(1))
    assert found.actions == (actions.PowerDown(("slinky-0",), (), ""),)


LESS = {
    "reason": "gres/gpu count reported lower than configured (2 < 4)",
    "reason_set_by_user": "slurm",
}


@pytest.mark.parametrize(
    "reason",
    [
        "gres/gpu count reported lower than configured (2 < 4)",
        "Low RealMemory (reported:24105 < 90.00% of configured:99999)",
        "Low socket*core*thread count, Low CPUs",
    ],
)
def test_a_worker_with_less_than_its_record_keeps_its_drain_and_is_reported(reason: str) -> None:
    small = cloud(0, "IDLE", "DRAIN", "INVALID_REG", **{**LESS, "reason": reason})
    large = {"real_memory": 99_999, "gres": "gpu:4"}
    declared = "CPUs=4 RealMemory=99999 Gres=gpu:4"
    found = decided(2, [worker(0)], small, off(1, **large), node=declared)
    assert found.actions == ()
    assert condition(found) == ("False", "WorkerTooSmall")
    [message] = [it.message for it in found.conditions if it.type == "PowerSaving"]
    assert reason in message
    assert "slinky-0" in message


GPUS = {"cpus": 4, "real_memory": 8000, "gres": "gpu:4"}
CORRECTED = f"{OFFER} Gres=gpu:2"


def test_a_worker_with_less_than_its_record_is_stopped_gently_once_a_new_record_suits() -> None:
    small = cloud(0, "IDLE", "DRAIN", "INVALID_REG", **GPUS, **LESS)
    assert decided(1, [worker(0)], small, node=CORRECTED).actions == (
        actions.PowerDownWhenIdle(("slinky-0",)),
    )
    # The reason stays when the drain ends.
    stopped = cloud(0, "IDLE", "INVALID_REG", "POWERED_DOWN", **GPUS, **LESS)
    assert kinds(decided(1, (), stopped, node=CORRECTED)) == [actions.ReplaceRecords]


@pytest.mark.parametrize(
    "kept",
    [
        cloud(0, "MIXED", "DRAIN", "INVALID_REG", **LESS),
        cloud(0, "IDLE", "DRAIN", "INVALID_REG", **{**LESS, "reason_set_by_user": "root"}),
        cloud(0, "IDLE", "DRAIN", "INVALID_REG", **{**LESS, "reason": "bad disk"}),
        cloud(
            0,
            "IDLE",
            "DRAIN",
            "INVALID_REG",
            **{**LESS, "reason": LESS["reason"].replace("2 <", "1 <")},
        ),
        cloud(
            0,
            "IDLE",
            "DRAIN",
            "INVALID_REG",
            **{**LESS, "reason": "Low socket*core*thread count, Low CPUs"},
        ),
        cloud(
            0,
            "IDLE",
            "DRAIN",
            "INVALID_REG",
            **{**LESS, "reason": "Low RealMemory (reported:7000 < 90.00% of configured:8000)"},
        ),
    ],
)
def test_a_drained_worker_that_the_desired_record_does_not_suit_or_that_is_another_s_stays(
    kept: Node,
) -> None:
    assert decided(1, [worker(0)], kept, node=CORRECTED).actions == ()


def test_a_record_that_shows_its_small_worker_is_not_replaced_by_the_same_again() -> None:
    # slurmctld may show the fewer GPUs when the worker registers again.
    small = cloud(0, "IDLE", "DRAIN", "INVALID_REG", cpus=4, real_memory=8000, gres="gpu:2", **LESS)
    assert decided(1, [worker(0)], small, node=f"{OFFER} Gres=gpu:4").actions == ()


def test_a_nodeset_that_is_being_deleted_creates_and_starts_nothing() -> None:
    view = slurm(off(0))
    desired = asked(2, (), view, meta={"deletionTimestamp": "1970-01-12T13:46:00Z"})
    found = decide(desired, Observed((), view, clock=CLOCK), Memory(), NOW)
    assert not {actions.CreateRecords, actions.PowerUp, actions.CreatePods} & {*kinds(found)}


def test_a_record_without_a_pod_stays_while_slurm_has_it_powered_down() -> None:
    nodeset = builders.nodeset("slinky", replicas=1, powerSaving={"enabled": True})
    keeps = power.retained(nodeset)
    assert keeps(off(0))
    assert keeps(cloud(0, "ALLOCATED", "POWERING_UP"))
    assert not keeps(cloud(0, "IDLE"))
    assert not keeps(off(1))
    assert not power.retained(builders.nodeset("slinky", replicas=1))(off(0))


def awaited(ordinal: int, *words: str) -> Node:
    """A record of the NodeSet whose node a job has, and that is being started."""
    extra = encode(PodFacts("", nodeset_uid="uid-of-slinky"))
    return cloud(ordinal, "ALLOCATED", *(words or ("POWERING_UP",)), extra=extra)


def test_a_node_that_a_job_waits_for_gets_its_pod_although_fewer_replicas_are_asked_for() -> None:
    found = decided(1, (), off(0), awaited(7))
    assert [it.ordinals for it in found.actions if isinstance(it, actions.CreatePods)] == [(7,)]
    nodeset = builders.nodeset("slinky", replicas=1, powerSaving={"enabled": True})
    assert power.retained(nodeset)(awaited(7))
    other = replace(awaited(7), extra=encode(PodFacts("", nodeset_uid="another")))
    assert power.ordinals(nodeset, (), slurm(other), offered=True) == frozenset()


def test_a_pod_for_which_a_job_waits_stays_until_the_job_has_begun_and_is_drained_then() -> None:
    waiting = decided(1, [starting(7)], off(0), awaited(7))
    assert not {actions.DeletePod, actions.Drain, actions.SetDown} & {*kinds(waiting)}
    begun = decided(1, [worker(7)], off(0), awaited(7, "CLOUD"))
    assert [it.slurm_nodes for it in begun.actions if isinstance(it, actions.Drain)] == [
        ("slinky-7",)
    ]


POWER = st.sampled_from(
    [(), ("POWERING_UP",), ("POWERED_DOWN",), ("POWERING_DOWN",), ("POWERED_DOWN", "POWER_UP")]
)
BASE = st.sampled_from(["IDLE", "IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"])
FLAGS = st.sampled_from([(), (), ("DRAIN",), ("COMPLETING",), ("NOT_RESPONDING",)])


@settings(max_examples=400, deadline=None)
@given(
    records=st.lists(st.tuples(BASE, POWER, FLAGS), min_size=1, max_size=5),
    has_pod=st.lists(st.booleans(), min_size=5, max_size=5),
    replicas=st.integers(0, 5),
    with_job=st.sets(st.integers(0, 4)),
)
def test_no_pod_is_deleted_whose_node_has_work_or_can_be_given_some(
    records: list[tuple[str, tuple[str, ...], tuple[str, ...]]],
    has_pod: list[bool],
    replicas: int,
    with_job: set[int],
) -> None:
    nodes = [
        cloud(number, base, *powered, *flags)
        for number, (base, powered, flags) in enumerate(records)
    ]
    pods = [worker(number) for number in range(len(nodes)) if has_pod[number]]
    jobs = [
        Job(number, states=frozenset({"SUSPENDED"}), nodes=f"slinky-{number}")
        for number in sorted(with_job)
    ]
    view = slurm(*nodes)
    answers: dict[needs.Need, needs.Answer] = {
        needs.Jobs(): needs.Known(needs.JobList(tuple(jobs), CLOCK), CLOCK),
        needs.Deadlines(): needs.Known(True),
    }
    found = decide(
        asked(replicas, pods, view),
        Observed(pods, view, clock=CLOCK, answers=answers),
        Memory(),
        NOW,
    )
    for action in found.actions:
        if isinstance(action, actions.DeletePod):
            number = action.deletion.pod.ordinal
            words = nodes[number].states
            assert number not in with_job
            assert (
                words.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING", "UNKNOWN", "POWERING_UP"})
                or "DRAIN" in words
            )
            assert words & {"POWERED_DOWN", "POWERING_DOWN", "DRAIN"}
            assert words.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING"})


def test_a_record_of_power_saving_names_its_nodeset_before_any_pod_has_claimed_it() -> None:
    assert (
        encode(PodFacts("", namespace="slurm", nodeset_uid="u"))
        == '{"podUid":"","namespace":"slurm","nodeSetUid":"u"}'
    )
    assert render.registered(off(0, slurmd_start_time=5)) == ""
