"""Why a pending job waits: the cause stands before Slurm's reason, and nothing is promised that
other jobs or Slurm would refute.
"""

from dataclasses import replace
from typing import Any

from sidecars.explain.core import job as subject
from sidecars.explain.core.records import Answer, Ending, Finding, Level, Seen, Waiting
from sidecars.slurm.records import Reservation
from tests.unit.explain.core.building import (
    NODESET,
    NOW,
    busy,
    condition,
    daemon,
    job,
    node,
    nodeset,
    partition,
    pod,
    seen,
    started,
    starting,
    unscheduled,
)

FULL = (busy("cpu-0"), busy("cpu-1"))
SCALED = {"replicas": 0, "autoscaling": {"max": 4}}


def of(
    found: Any, slurm: dict[str, Any] | None = None, kube: dict[str, Any] | None = None
) -> Answer:
    return subject.explain(seen({"jobs": (found,)} | (slurm or {}), kube), "12")


def level(answer: Answer, code: str) -> Level:
    return {it.code: it.level for it in answer.findings}[code]


def first(answer: Answer) -> str:
    return answer.findings[0].code


def codes(answer: Answer) -> set[str]:
    return {it.code for it in answer.findings}


def test_a_worker_that_can_not_be_scheduled_stands_before_a_reason_that_names_the_partition() -> (
    None
):
    answer = of(
        job("PartitionConfig"),
        {"nodes": ()},
        {"nodesets": (nodeset(replicas=1),), "pods": (unscheduled("cpu-0"), daemon())},
    )
    assert first(answer) == "Unschedulable"
    assert level(answer, "PartitionConfig") is Level.SHOWS
    assert answer.would_start == ()
    assert "another partition" not in " ".join(it.remedy for it in answer.findings)


def test_while_autoscaling_starts_the_first_worker_nothing_needs_a_remedy() -> None:
    own = nodeset(replicas=1, conditions=(condition("Autoscaled", "True", "Demand", "1 job"),))
    own["spec"] |= {"autoscaling": {"max": 4}}
    answer = of(
        job("PartitionConfig"),
        {"nodes": ()},
        {"nodesets": (own,), "pods": (starting("cpu-0"), daemon())},
    )
    assert Level.BLOCKS not in {it.level for it in answer.findings}
    assert first(answer) == "NoNodes"
    assert not any(it.commands for it in answer.findings)


def test_autoscaling_that_does_not_scale_is_the_cause_with_its_remedy() -> None:
    refused = condition("Autoscaled", "False", "OtherOwner", "kubectl has set it")
    own = nodeset(replicas=0, conditions=(refused,)) | {"spec": SCALED}
    answer = of(job("PartitionConfig"), {"nodes": ()}, {"nodesets": (own,), "pods": (daemon(),)})
    assert first(answer) == "OtherOwner"
    assert answer.findings[0].remedy


def test_a_named_node_that_is_drained_stands_before_nodesets_that_the_job_does_not_need() -> None:
    empty = nodeset("other", replicas=0) | {
        "status": {"replicas": 0, "partitions": ["cpu"], "conditions": []}
    }
    drained = node("cpu-1", "IDLE", "DRAIN", reason="fan", reason_set_by_user="root")
    answer = of(
        job("ReqNodeNotAvail", required_nodes="cpu-1"),
        {"nodes": (node("cpu-0"), drained)},
        {"nodesets": (nodeset(), empty)},
    )
    assert first(answer) == "Drained"
    assert "ScaledToZero" not in codes(answer)
    assert "with node cpu-1 in service" in answer.would_start
    assert "without --nodelist=cpu-1" in answer.would_start


def test_a_named_node_without_room_is_shown_with_what_is_free_and_the_job_that_ends() -> None:
    answer = of(
        job("Resources", required_nodes="cpu-1"),
        {
            "nodes": (node("cpu-0"), busy("cpu-1")),
            "running": (Ending("8", NOW + 60, "bob", "cpu-1", "cpu"),),
        },
    )
    found = answer.findings[0]
    assert found.code == "NamedNodeBusy"
    assert "0 of 4 CPUs" in found.cause
    assert (found.event, found.at) == ("job 8 on it reaches its time limit", NOW + 60)


def test_a_named_node_whose_worker_does_not_start_is_explained_by_its_pod() -> None:
    answer = of(
        job("ReqNodeNotAvail", required_nodes="cpu-5"),
        {},
        {"pods": (pod("cpu-0"), unscheduled("cpu-5"), daemon())},
    )
    assert first(answer) == "Unschedulable"
    assert level(answer, "NamedNodeMissing") is Level.WAITS


def test_what_jobs_ahead_of_it_would_take_is_not_promised() -> None:
    ahead = Waiting("5", 900, "bob", "Resources", ("cpu",))
    answer = of(job("Priority"), {"nodes": FULL, "waiting": (ahead,)})
    assert answer.would_start == ()
    [fits] = [it for it in answer.findings if it.code == "WouldFit"]
    assert f"1 more node of NodeSet {NODESET}" in fits.cause
    assert "1 pending job" in fits.cause


def test_jobs_that_take_no_nodes_or_wait_elsewhere_are_not_ahead() -> None:
    others = (
        Waiting("5", 900, "bob", "Dependency", ("cpu",)),
        Waiting("6", 900, "bob", "JobHeldUser", ("cpu",)),
        Waiting("7", 900, "bob", "Resources", ("spare",)),
        Waiting("8", 50, "bob", "Priority", ("cpu",)),
        Waiting("12_[3-9]", 900, "ada", "Resources", ("cpu",)),
    )
    answer = of(job("Resources"), {"nodes": FULL, "waiting": others})
    assert "JobsAhead" not in codes(answer)
    assert answer.would_start


def test_a_job_of_a_partition_with_a_higher_tier_that_shares_nodes_is_ahead() -> None:
    nodes = tuple(replace(it, partitions=("cpu", "urgent")) for it in FULL)
    partitions = (partition(), partition("urgent", tier=5))
    low = Waiting("5", 1, "bob", "Resources", ("urgent",))
    answer = of(job("Resources"), {"nodes": nodes, "partitions": partitions, "waiting": (low,)})
    assert "JobsAhead" in codes(answer)
    assert answer.would_start == ()


def test_another_partition_is_proposed_only_where_no_job_is_ahead() -> None:
    spare = node("spare-0", partitions=("spare",), extra="")
    slurm = {"nodes": (*FULL, spare), "partitions": (partition(), partition("spare"))}
    assert "in partition spare" in of(job(), slurm).would_start
    waits = Waiting("5", 900, "bob", "Resources", ("spare",))
    assert "in partition spare" not in of(job(), slurm | {"waiting": (waits,)}).would_start


def test_more_nodes_than_exist_is_the_cause_and_none_is_proposed_beyond_a_maximum() -> None:
    many = job("PartitionNodeLimit", min_nodes=8, max_nodes=8, cpus=8, tasks=8)
    own = nodeset()
    own["spec"] |= {"autoscaling": {"max": 4}}
    answer = of(many, {}, {"nodesets": (own,)})
    assert first(answer) == "TooManyNodes"
    assert "requests 8 nodes" in answer.findings[0].cause
    assert "at most 4" in answer.findings[0].cause
    assert answer.would_start == ()


def test_a_reservation_is_no_job_on_the_nodes() -> None:
    reserved = node("cpu-0", "IDLE", "RESERVED", reservation="course")
    course = Reservation(
        "course", "cpu-0", users=("bob",), start_time=int(NOW) - 60, end_time=int(NOW) + 900
    )
    answer = of(job(), {"nodes": (reserved,), "reservations": (course,)})
    assert first(answer) == "Reserved"
    assert "Busy" not in codes(answer)


def test_a_dependency_on_a_held_job_is_followed() -> None:
    answer = of(
        job("Dependency", dependency="afterok:7(unfulfilled)"),
        {"waiting": (Waiting("7", 0, "ada", "JobHeldUser", ("cpu",)),)},
    )
    found = answer.findings[0]
    assert (found.about, found.code) == ("job 7", "JobHeldUser")
    assert found.commands == ("scontrol release 7",)


def test_a_dependency_on_a_job_that_runs_shows_when_it_ends() -> None:
    answer = of(
        job("Dependency", dependency="afterok:7(unfulfilled)"),
        {"running": (Ending("7", NOW + 60, "ada", "cpu-0", "cpu"),)},
    )
    assert first(answer) == "Dependency"
    event = answer.next_event
    assert event is not None
    assert (event.about, event.at) == ("job 7", NOW + 60)


def test_what_slurm_refuses_although_it_should_fit_is_a_rule_that_is_not_known() -> None:
    allowed = partition(allow_groups=("students",))
    answer = of(job("Resources", last_evaluated=int(NOW) - 5), {"partitions": (allowed,)})
    assert "FitsNow" not in codes(answer)
    [found] = [it for it in answer.findings if it.code == "UnknownRule"]
    assert "allows only the groups students" in found.cause
    fresh = node("cpu-0", last_busy=int(NOW) - 1)
    assert "FitsNow" in codes(
        of(job("Resources", last_evaluated=int(NOW) - 5), {"nodes": (fresh,)})
    )


PLANNED: dict[str, Any] = {"start_time": int(NOW) + 7200, "scheduled_nodes": "cpu-1"}
OFF = node("burst-0", "IDLE", "CLOUD", "POWERED_DOWN")


def planned(answer: Answer) -> Finding:
    [found] = [it for it in answer.findings if it.code == "PlannedLater"]
    assert "FitsNow" not in codes(answer)
    return found


def test_a_job_that_slurm_has_planned_for_later_shows_the_plan_and_nodes_without_power() -> None:
    found = planned(of(job("None", **PLANNED), {"nodes": (OFF, busy("cpu-1"))}))
    assert "are powered down: burst-0." in found.cause
    assert "for later, on cpu-1" in found.cause
    assert (found.level, found.at) == (Level.WAITS, NOW + 7200)
    soon = PLANNED | {"start_time": int(NOW) + 60}
    assert "FitsNow" in codes(of(job("None", **soon), {"nodes": (OFF, busy("cpu-1"))}))


def test_a_queue_longer_than_backfill_tests_is_the_reason_of_a_plan_that_stays() -> None:
    waiting = tuple(Waiting(str(100 + it), 1, "bob", "Priority") for it in range(11))
    seen = {"nodes": (OFF,), "waiting": waiting}
    of_ten = {"config": {"schedulerparameters": "defer,BF_MAX_JOB_TEST=10"}}
    found = planned(of(job("None", **PLANNED), seen | of_ten))
    assert (found.level, found.at) == (Level.WARNS, NOW + 7200)
    assert "Of 11 pending jobs, its backfill scheduler tests at most 10 in a cycle" in found.cause
    assert "bf_max_job_test" in found.remedy
    for config in ("", "bf_max_job_test=x", "bf_max_job_test", "bf_max_job_test=11"):
        known = {"config": {"schedulerparameters": config}}
        assert planned(of(job("None", **PLANNED), seen | known)).level is Level.WAITS


def test_the_pod_of_a_node_that_is_powered_up_is_the_cause_if_it_can_not_start() -> None:
    powering = node("cpu-0", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING", "CLOUD")
    answer = of(
        started("RUNNING", "CONFIGURING"),
        {"nodes": (powering,)},
        {"pods": (starting("cpu-0", "ImagePullBackOff", "no such tag"), daemon())},
    )
    assert first(answer) == "ImagePullBackOff"


def test_a_job_that_failed_before_its_script_began_is_explained_by_its_files() -> None:
    failed = started(
        "FAILED", exit_signal=53, output="/scratch/bob/slurm-12.out", working_directory="/home/bob"
    )
    [found] = of(failed).findings
    assert "/scratch/bob/slurm-12.out" in found.cause
    assert "/home/bob" in found.cause
    assert "shared volume" in found.remedy


def test_each_component_of_a_heterogeneous_job_is_explained() -> None:
    drained = node("gpu-0", "IDLE", "DRAIN", reason="fan", partitions=("gpu",), extra="")
    parts = (
        job(het_job_id=12, het_job_ids="12-13"),
        replace(job(het_job_id=12, het_job_ids="12-13", partitions=("gpu",)), job_id=13),
    )
    gpu = partition("gpu")
    found: Seen = seen(
        {"jobs": parts, "nodes": (node("cpu-0"), drained), "partitions": (partition(), gpu)}
    )
    answer = subject.explain(found, "12")
    assert first(answer) == "Drained"
    assert {"job 12+0", "job 12+1"} <= {it.about for it in answer.findings}


def test_a_job_that_was_set_back_is_released_only_when_nodes_could_run_it() -> None:
    able = of(job("BadConstraints", priority=0)).findings[0]
    assert able.code == "BadConstraints"
    assert "nodes that could run it exist" in able.cause
    unable = of(job("BadConstraints", priority=0, features="zen5"))
    assert [it.code for it in unable.findings][:2] == ["Impossible", "BadConstraints"]


def test_workers_that_are_about_to_register_are_not_asked_for_again() -> None:
    answer = of(
        job(), {"nodes": (busy("cpu-0"),)}, {"pods": (pod("cpu-0"), starting("cpu-1"), daemon())}
    )
    assert not [it for it in answer.would_start if "NodeSet" in it]
    assert level(answer, "Starting") is Level.WAITS
