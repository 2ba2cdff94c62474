"""Conditions and status of a NodeSet: `sidecars.policy.nodeset.report`."""

from dataclasses import replace
from typing import Any

import pytest

from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset.records import (
    Desired,
    DesiredPods,
    Observed,
    SlurmView,
    Waiting,
    WorkerPod,
)
from sidecars.policy.nodeset.report import Progress, report
from sidecars.policy.reasons import PartitionsReleased, Ready, ReservationCreated
from tests.support import builders
from tests.unit.policy.nodeset.builders import NOW, node, slurm, worker

BLOCKED = Condition(
    "PartitionsReleased", "False", PartitionsReleased.JOBS_REFER, "partition slinky stays"
)
PROBLEM = Condition("Ready", "False", Ready.REFERENCE_MISSING, "a Secret is missing")
NODES = slurm(node(0, "IDLE"), node(1, "MIXED"), node(2, "DOWN", "DRAIN"))


def asked(replicas: int = 2, **changes: Any) -> Desired:
    return Desired(
        builders.nodeset("slinky"), DesiredPods("slurm", replicas, "new", name="slinky", **changes)
    )


def seen(*pods: WorkerPod, view: SlurmView = NODES) -> Observed:
    return Observed(pods, view)


WAITS = Progress(
    waiting=(Waiting(worker(1), "its jobs are still running"), Waiting(worker(2), "x"))
)
TERMINATING = worker(1, terminating=True)


@pytest.mark.parametrize(
    ("desired", "observed", "progress", "failure", "want"),
    [
        (asked(), seen(worker(0), worker(1)), Progress(), None, "Ready"),
        (asked(), seen(worker(0)), Progress(), None, "PodsNotReady"),
        (asked(1), seen(worker(0), TERMINATING), Progress(), None, "ScalingIn"),
        (asked(1), seen(worker(0), worker(1)), WAITS, None, "Draining"),
        (asked(1), seen(worker(0), worker(1)), WAITS, PROBLEM, "ReferenceMissing"),
        (
            replace(asked(1), problem=PROBLEM),
            seen(worker(0), worker(1)),
            WAITS,
            None,
            "ReferenceMissing",
        ),
        (asked(1, deleting=True), seen(worker(0), worker(1)), WAITS, PROBLEM, "Draining"),
        (asked(1, deleting=True), seen(TERMINATING), Progress(), None, "Removing"),
        (
            asked(1, deleting=True),
            seen(),
            Progress(partitions_blocked=BLOCKED, pods_gone=True),
            None,
            "JobsRefer",
        ),
        (asked(1), seen(), Progress(problems=("no name",)), None, "NameConflict"),
        (
            asked(1),
            seen(replace(TERMINATING, kubelet_silent=True)),
            Progress(),
            None,
            "KubeNodeLost",
        ),
        (
            asked(1),
            seen(worker(7)),
            Progress(absent_since={"uid-7": NOW - 30}),
            None,
            "NotRegistered",
        ),
        (
            asked(3),
            seen(*(worker(number, ready=False, slurmd_since=NOW - 600) for number in (7, 8, 9))),
            Progress(
                absent_since={f"uid-{number}": NOW - 30 for number in (7, 8, 9)},
                spared=frozenset({"uid-8"}),
            ),
            None,
            "StateLost",
        ),
    ],
)
def test_the_condition_ready_names_what_matters_most(
    desired: Desired, observed: Observed, progress: Progress, failure: Condition | None, want: str
) -> None:
    conditions, _ = report(desired, observed, progress, NOW, failure)
    assert (conditions[0].type, conditions[0].reason) == ("Ready", want)
    assert (conditions[0].status == "True") == (want == "Ready")


def test_ready_is_false_and_names_the_nodes_of_ready_pods_that_are_down() -> None:
    reasons = ("bad disk", "Not responding", "", "bad disk", "bad disk")
    down = slurm(
        *(node(number, "DOWN", reason=reason) for number, reason in enumerate(reasons)),
        node(5, "IDLE"),
    )
    pods = [worker(number) for number in range(6)]
    [ready, *_], _ = report(asked(6), seen(*pods, view=down), Progress(), NOW)
    assert (ready.status, ready.reason) == ("False", "SlurmNodesDown")
    assert ready.message == (
        "Slurm nodes slinky-0 (bad disk), slinky-1 (Not responding), slinky-2 and 2 more are "
        "DOWN though their pods are ready; when the cause is fixed, run `scontrol update "
        "nodename=slinky-0 state=resume`"
    )
    gone = [replace(pod, terminating=True) for pod in pods[:5]]
    [ready, *_], _ = report(asked(1), seen(*gone, pods[5], view=down), Progress(), NOW)
    assert ready.reason == "ScalingIn"
    unknown = replace(down, problem="HTTP 500")
    [ready, *_], _ = report(asked(6), seen(*pods, view=unknown), Progress(), NOW)
    assert ready.reason == "Ready"


def test_of_several_pods_that_wait_the_first_is_named_and_the_others_counted() -> None:
    conditions, _ = report(asked(1), seen(worker(0), worker(1)), WAITS, NOW)
    assert (
        conditions[0].message
        == "pod slinky-1: its jobs are still running (and 1 more pods are waiting)"
    )


def test_pods_that_are_not_scheduled_are_counted_by_their_reason_the_most_frequent_first() -> None:
    def pending(number: int, why: str) -> WorkerPod:
        return worker(number, ready=False, phase="Pending", kube_node=None, unscheduled=why)

    few = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    pods = [worker(0), pending(1, "0/3 nodes: taints"), pending(2, few), pending(3, few)]
    conditions, _ = report(asked(4), seen(*pods), Progress(), NOW)
    assert conditions[0].reason == "PodsNotReady"
    assert conditions[0].message == (
        f"1 of 4 pods are ready. 2 pods are not scheduled: {few} 1 pod is not scheduled: 0/3 "
        "nodes: taints"
    )
    gone = [replace(it, terminating=True) for it in pods[1:]]
    conditions, _ = report(asked(4), seen(*gone), Progress(), NOW)
    assert conditions[0].message == "0 of 4 pods are ready; see `kubectl -n slurm get pods`"


def test_pods_without_their_image_are_counted_by_the_image() -> None:
    def waiting(number: int, why: str) -> WorkerPod:
        return worker(number, ready=False, phase="Pending", no_image=why)

    pods = [worker(0), *(waiting(number, "the image a/b:1 can't be pulled") for number in (1, 2))]
    conditions, _ = report(asked(3), seen(*pods), Progress(), NOW)
    assert conditions[0].reason == "PodsNotReady"
    assert (
        conditions[0].message
        == "1 of 3 pods are ready. 2 pods don't start: the image a/b:1 can't be pulled"
    )


def test_of_many_reasons_not_to_schedule_a_pod_three_are_quoted() -> None:
    pods = [
        worker(number, ready=False, kube_node=None, unscheduled=f"because {number}")
        for number in range(9)
    ]
    conditions, _ = report(asked(9), seen(*pods), Progress(), NOW)
    assert conditions[0].message.count("because") == 3
    assert conditions[0].message.endswith("6 more pods are not scheduled for other reasons")


def test_a_deleted_nodeset_that_waits_for_jobs_names_the_setting_that_limits_the_wait() -> None:
    conditions, _ = report(asked(1, deleting=True), seen(worker(0), worker(1)), WAITS, NOW)
    assert conditions[0].message.endswith("; spec.deletionTimeout limits the wait")


def test_an_unreachable_slurm_and_the_other_conditions_are_reported() -> None:
    reservation = Condition("ReservationCreated", "True", ReservationCreated.CREATED, "it exists")
    progress = Progress(reservation=reservation, partitions_blocked=BLOCKED)
    conditions, _ = report(asked(), seen(view=slurm(problem="HTTP 500")), progress, NOW)
    assert [(it.type, it.status) for it in conditions] == [
        ("Ready", "False"),
        ("SlurmReachable", "False"),
        ("ReservationCreated", "True"),
        ("PartitionsReleased", "False"),
    ]
    assert conditions[1].message.startswith("HTTP 500; no pod is deleted until")


def test_the_status_counts_pods_and_node_states() -> None:
    pods = (
        worker(0),
        worker(1, revision="old", available=False),
        worker(2, ready=False, available=False),
    )
    _, status = report(
        asked(4), seen(*pods, worker(3, terminating=True)), Progress(partitions=("slinky",)), NOW
    )
    want = {
        "replicas": 4,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "unavailableReplicas": 3,
        "desired": 4,
        "slurmIdle": 1,
        "slurmAllocated": 1,
        "slurmDown": 1,
        "slurmDrain": 1,
        "nodeSetHash": "new",
        "partitions": ["slinky"],
    }
    assert {name: status[name] for name in want} == want


def test_collisions_and_pins_are_in_the_status_only_if_there_are_any() -> None:
    _, status = report(asked(), seen(), Progress(), NOW)
    assert not {"collisionCount", "ordinalToNode"} & status.keys()
    _, status = report(replace(asked(pins={"0": "a"}), collisions=2), seen(), Progress(), NOW)
    assert (status["collisionCount"], status["ordinalToNode"]) == (2, {"0": "a"})
