"""Pods on lost machines, and pods that Slurm doesn't know: `sidecars.policy.nodeset.lost`."""

from dataclasses import replace

import pytest

from sidecars.policy.nodeset.failures import failures
from sidecars.policy.nodeset.lost import (
    ALL_UNREGISTERED_SECONDS,
    OVERDUE_SECONDS,
    UNREGISTERED_SECONDS,
    absent,
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
    found = stuck([pod], view, NOW)
    assert [(it.pod, it.grace_seconds, it.kube_node_lost) for it in found.delete] == (
        [(pod, 0, True)] if forced else []
    )


def test_the_end_of_the_grace_is_looked_at() -> None:
    assert stuck([replace(TERMINATING, kube_node_gone=True)], slurm("IDLE"), NOW).look_again == 100


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
    first = unregistered([POD], others, since, NOW)
    assert (first.delete, first.look_again, not_registered([POD], others, since, NOW)) == ((), 10, "")
    then = NOW + 10
    assert unregistered([POD], others, since, then).look_again == UNREGISTERED_SECONDS - 10
    assert "pod slinky-0: slurmd runs and Slurm has no node slinky-0; the pod" in not_registered(
        [POD], others, since, then
    )
    later = NOW + UNREGISTERED_SECONDS
    since = absent([POD], others, since, later)
    [deletion] = unregistered([POD], others, since, later).delete
    assert (deletion.pod, deletion.grace_seconds, deletion.kube_node_lost) == (POD, None, False)


def test_where_slurm_lists_no_node_at_all_the_pods_are_left_alone_for_longer() -> None:
    since = absent([POD], slurm(), {}, NOW)
    almost = NOW + ALL_UNREGISTERED_SECONDS - 1
    assert unregistered([POD], slurm(), since, almost).delete == ()
    assert unregistered([POD], slurm(), since, almost).look_again == 1
    assert f"after {ALL_UNREGISTERED_SECONDS:g} s" in not_registered([POD], slurm(), since, almost)
    assert unregistered([POD], slurm(), since, almost + 1).delete


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
