"""Pods on lost machines, and pods that Slurm doesn't know: `sidecars.policy.nodeset.lost`."""

from dataclasses import replace

import pytest

from sidecars.policy.nodeset.failures import failures
from sidecars.policy.nodeset.lost import (
    ALL_UNREGISTERED_SECONDS,
    OVERDUE_SECONDS,
    REPLACEMENT_SECONDS,
    UNREGISTERED_SECONDS,
    absent,
    disrupted,
    is_overdue,
    not_registered,
    stuck,
    stuck_message,
    unregistered,
)
from sidecars.policy.nodeset.records import SlurmView, WorkerPod
from sidecars.slurm.records import Node

NOW = 1_000_000.0
POD = WorkerPod(
    name="slinky-0",
    uid="uid-0",
    ordinal=0,
    slurm_node="slinky-0",
    kube_node="m0",
    revision="new",
    phase="Running",
    ready=True,
    available=True,
    started=True,
    created=NOW - 700,
    slurmd_since=NOW - 600,
)
TERMINATING = replace(POD, terminating=True, terminating_until=NOW + 100)


def slurm(*states: str, problem: str | None = None) -> SlurmView:
    """Slurm with node slinky-0 in these states; without it if there are none."""
    return SlurmView({"slinky-0": Node("slinky-0", states=frozenset(states))} if states else {}, problem)


DOWN = slurm("DOWN", "NOT_RESPONDING")


@pytest.mark.parametrize(
    ("pod", "view", "forced"),
    [
        (replace(TERMINATING, out_of_service=True), slurm("ALLOCATED"), True),
        (replace(TERMINATING, out_of_service=True), slurm(problem="slurmrestd doesn't answer"), True),
        (replace(TERMINATING, kube_node_gone=True), DOWN, True),
        (replace(TERMINATING, kube_node_gone=True), slurm(), True),
        # Its kubelet may be stopping it right now, with a job on it.
        (replace(TERMINATING, kube_node_gone=True), slurm("ALLOCATED"), False),
        (replace(TERMINATING, kube_node_gone=True), slurm(problem="slurmrestd doesn't answer"), False),
        (replace(TERMINATING, kube_node_gone=True, terminating_until=NOW), slurm("ALLOCATED"), True),
        # However long it has been terminating, its machine may be alive.
        (replace(TERMINATING, terminating_until=NOW - 1e6), DOWN, False),
        (replace(TERMINATING, terminating_until=NOW - 1e6, kubelet_silent=True), DOWN, False),
        (replace(POD, out_of_service=True), DOWN, False),
        (replace(POD, kube_node_gone=True), DOWN, False),
    ],
)
def test_a_terminating_pod_is_forced_only_where_nothing_of_it_can_run(
    pod: WorkerPod, view: SlurmView, *, forced: bool
) -> None:
    found = stuck([pod], view, NOW, {})
    assert [(it.pod, it.grace_seconds, it.kube_node_lost) for it in found.delete] == (
        [(pod, 0, True)] if forced else []
    )


def test_the_end_of_the_grace_is_looked_at() -> None:
    assert stuck([replace(TERMINATING, kube_node_gone=True)], slurm("IDLE"), NOW, {}).look_again == 100


def test_a_kubelet_has_a_while_to_tell_of_the_end_of_a_pod() -> None:
    assert not is_overdue(TERMINATING, NOW + 100)
    assert is_overdue(TERMINATING, NOW + 100 + OVERDUE_SECONDS)
    assert not is_overdue(POD, NOW + 1e6)


def test_a_pod_that_terminates_on_a_silent_machine_says_how_to_tell_that_the_machine_is_off() -> None:
    text = stuck_message(
        [replace(TERMINATING, kubelet_silent=True), replace(TERMINATING, name="slinky-1", kubelet_silent=True)]
    )
    assert "pod slinky-0 is terminating on Kubernetes node m0" in text
    assert "1 more pods" in text
    assert "kubectl taint nodes m0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in text
    assert stuck_message([TERMINATING, replace(POD, kubelet_silent=True)]) == ""


def test_a_pod_that_slurm_does_not_know_for_a_minute_is_replaced() -> None:
    others = SlurmView({"other": Node("other")}, None)
    since = absent([POD], others, {}, NOW)
    first = unregistered([POD], others, since, {}, NOW)
    assert (first.delete, first.look_again, not_registered([POD], others, since, NOW)) == ((), 10, "")
    then = NOW + 10
    assert unregistered([POD], others, since, {}, then).look_again == UNREGISTERED_SECONDS - 10
    assert "pod slinky-0: slurmd runs and Slurm has no node slinky-0; the pod" in not_registered(
        [POD], others, since, then
    )
    later = NOW + UNREGISTERED_SECONDS
    since = absent([POD], others, since, later)
    [deletion] = unregistered([POD], others, since, {}, later).delete
    assert (deletion.pod, deletion.grace_seconds, deletion.kube_node_lost) == (POD, None, False)


def test_where_slurm_lists_no_node_at_all_the_pods_are_left_alone_for_longer() -> None:
    since = absent([POD], slurm(), {}, NOW)
    almost = NOW + ALL_UNREGISTERED_SECONDS - 1
    assert unregistered([POD], slurm(), since, {}, almost).delete == ()
    assert unregistered([POD], slurm(), since, {}, almost).look_again == 1
    assert f"after {ALL_UNREGISTERED_SECONDS:g} s" in not_registered([POD], slurm(), since, almost)
    assert unregistered([POD], slurm(), since, {}, almost + 1).delete


def many(count: int) -> list[WorkerPod]:
    return [replace(POD, name=f"slinky-{n}", uid=f"uid-{n}", slurm_node=f"slinky-{n}") for n in range(count)]


def listing(*numbers: int) -> SlurmView:
    """Slurm with these nodes of workers, and a static one that no pod has."""
    nodes = [Node(f"slinky-{n}", states=frozenset({"IDLE"})) for n in numbers]
    return SlurmView({node.name: node for node in (*nodes, Node("static"))}, None)


def test_no_pod_is_replaced_when_slurm_has_lost_most_nodes_though_it_lists_a_static_one() -> None:
    pods, view = many(1000), listing()
    since = absent(pods, view, {}, NOW)
    for later in (UNREGISTERED_SECONDS, 1e6):
        assert unregistered(pods, view, since, {}, NOW + later).delete == ()
    message = disrupted(pods, since, NOW + UNREGISTERED_SECONDS)
    assert message.startswith("Slurm has no node of 1000 of the 1000 workers whose slurmd runs, such as slinky-0: ")
    assert "no pod is replaced" in message
    gone = replace(pods[0], terminating=True, terminating_until=NOW + 5000, kube_node_gone=True)
    [_, *others] = pods
    assert stuck([gone, *others], view, NOW + 100, since).delete == ()
    assert stuck([gone, *others], listing(*range(1, 1000)), NOW + 100, {}).delete


@pytest.mark.parametrize(("count", "unknown", "stops"), [(2, 2, False), (3, 3, True), (10, 5, False), (10, 6, True)])
def test_replacement_stops_when_three_or_more_and_most_workers_are_unknown_to_slurm(
    count: int, unknown: int, stops: bool
) -> None:
    pods, view = many(count), listing(*range(unknown, count))
    since = absent(pods, view, {}, NOW)
    assert bool(disrupted(pods, since, NOW + UNREGISTERED_SECONDS)) is stops
    assert bool(unregistered(pods, view, since, {}, NOW + UNREGISTERED_SECONDS).delete) is not stops


def test_workers_that_have_just_started_are_not_yet_unknown_to_slurm() -> None:
    pods = [replace(pod, slurmd_since=NOW - 1) for pod in many(10)]
    assert disrupted(pods, absent(pods, listing(), {}, NOW), NOW) == ""


def test_a_tenth_of_the_workers_is_replaced_in_a_minute_and_one_at_least() -> None:
    pods, view = many(40), listing(*range(10, 40))
    since, now = absent(pods, view, {}, NOW), NOW + UNREGISTERED_SECONDS
    first = unregistered(pods, view, since, {}, now)
    assert [it.pod.name for it in first.delete] == ["slinky-0", "slinky-1", "slinky-2", "slinky-3"]
    replaced = {it.pod.uid: now for it in first.delete}
    again = unregistered(pods, view, since, replaced, now + 20)
    # A deletion that failed is tried again, and no other pod is added.
    assert [it.pod.name for it in again.delete] == [it.pod.name for it in first.delete]
    assert again.look_again == REPLACEMENT_SECONDS - 20
    left = pods[4:]
    assert unregistered(left, view, since, replaced, now + 20).delete == ()
    next_minute = unregistered(left, view, since, replaced, now + REPLACEMENT_SECONDS)
    assert [it.pod.name for it in next_minute.delete] == ["slinky-4", "slinky-5", "slinky-6"]
    few = many(5)
    since = absent(few, listing(2, 3, 4), {}, NOW)
    assert len(unregistered(few, listing(2, 3, 4), since, {}, now).delete) == 1


def test_time_in_which_slurm_did_not_answer_or_knew_the_node_does_not_count() -> None:
    since = absent([POD], slurm(), {}, NOW)
    assert absent([POD], slurm(problem="slurmrestd doesn't answer"), since, NOW + 30) == {}
    assert absent([POD], slurm("IDLE"), since, NOW + 30) == {}


@pytest.mark.parametrize(
    "pod",
    [
        replace(POD, slurmd_since=None),
        replace(POD, terminating=True),
        replace(POD, phase="Failed"),
        replace(POD, slurm_node=""),
    ],
)
def test_only_a_pod_whose_slurmd_runs_counts_as_absent(pod: WorkerPod) -> None:
    assert absent([pod], slurm(), {}, NOW) == {}


def test_each_pod_of_a_name_that_does_not_get_known_to_slurm_is_waited_for_twice_as_long() -> None:
    first, wait = failures({}, [POD], NOW, unregistered={"uid-0"}, absent={"uid-0"})
    assert wait == 1
    assert failures(first, [POD], NOW, unregistered={"uid-0"}, absent={"uid-0"})[0] == first
    successor = replace(POD, uid="uid-1")
    kept, _ = failures(first, [successor], NOW + 30, absent={"uid-1"})
    assert kept == first
    second, wait = failures(kept, [successor], NOW + 90, unregistered={"uid-1"}, absent={"uid-1"})
    assert (second["slinky-0"].count, wait) == (2, 2)
    assert failures(second, [replace(POD, uid="uid-2")], NOW + 120)[0] == {}
