"""Drains of Slurm nodes and their owners: `sidecars.policy.nodeset.drain`, through the plan of one
pass.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from sidecars.contract.reasons import Owner
from sidecars.policy.nodeset.pods import PodPlan, plan
from sidecars.policy.nodeset.records import DesiredPods, SlurmView, WorkerPod
from sidecars.slurm.owners import owner_of
from sidecars.slurm.records import Node
from tests.unit.policy.nodeset.builders import NOW, SCALE_IN, node, slurm, worker

CORDONED = "Node (m) was cordoned"
OURS = f"slurm-operator: {CORDONED}"
FOREIGN = [
    ("IDLE", "watch this node"),
    ("MIXED", "watch this node"),
    ("DOWN", "bad disk"),
    ("DOWN NOT_RESPONDING", "bad disk : Not responding"),
    ("IDLE DRAIN", "bad disk"),
    ("MIXED DRAIN", "bad disk"),
    ("IDLE FAIL", "bad disk"),
    ("MIXED FAIL", "bad disk"),
    ("IDLE MAINTENANCE", "bad disk"),
    ("DOWN", "Not responding"),
    ("DOWN", "Node unexpectedly rebooted"),
]


def decide(replicas: int, pods: Iterable[WorkerPod], view: SlurmView, **changes: object) -> PodPlan:
    desired = replace(DesiredPods("slurm", replicas, "new"), **changes)  # type: ignore[arg-type]  # a keyword bundle
    return plan(desired, pods, view, NOW)


def record(words: str, reason: str = "") -> Node:
    return node(0, *words.split(), reason=reason)


@pytest.mark.parametrize(("words", "reason"), FOREIGN)
def test_a_foreign_reason_is_not_overwritten_whatever_the_state_of_the_node(
    words: str, reason: str
) -> None:
    view = slurm(record(words, reason))
    for pod in (worker(0), worker(0, kube_node_cordon=CORDONED), worker(0, cordon="user")):
        for replicas in (0, 1):
            assert set(decide(replicas, [pod], view).drain) <= {None}


@pytest.mark.parametrize(("words", "reason"), FOREIGN)
def test_a_cordon_does_not_drain_a_node_with_a_foreign_reason(words: str, reason: str) -> None:
    view = slurm(record(words, reason))
    assert decide(1, [worker(0, kube_node_cordon=CORDONED)], view).drain == {}
    after = decide(1, [worker(0)], view)
    assert (after.drain, after.undrain) == ({}, ())


@pytest.mark.parametrize(("words", "reason"), FOREIGN)
def test_a_condemned_pod_whose_node_has_a_foreign_reason_is_drained_with_it_and_then_deleted(
    words: str, reason: str
) -> None:
    pod, before = worker(0), record(words, reason)
    first = decide(0, [pod], slurm(before))
    accepts_jobs = not before.states & {"DRAIN", "FAIL"}
    assert first.drain == ({None: ("slinky-0",)} if accepts_jobs else {})
    after = replace(before, states=before.states | {"DRAIN"}) if accepts_jobs else before
    second = decide(0, [pod], slurm(after))
    assert second.drain == {}
    assert bool(second.delete) is ("MIXED" not in after.states)


@pytest.mark.parametrize("words", ["IDLE", "DOWN", "IDLE MAINTENANCE"])
@pytest.mark.parametrize("reason", ["", SCALE_IN.format(0), "slurm-node: slurmd has stopped"])
def test_a_reason_of_nobody_or_of_this_product_is_replaced_by_that_of_a_drain(
    words: str, reason: str
) -> None:
    if "DOWN" in words and not reason:
        reason = SCALE_IN.format(0)
    assert decide(
        1, [worker(0, kube_node_cordon=CORDONED)], slurm(record(words, reason))
    ).drain == {OURS: ("slinky-0",)}


@pytest.mark.parametrize("words", ["IDLE DRAIN", "DOWN", "IDLE FAIL"])
def test_a_state_that_someone_set_without_a_reason_is_not_given_one(words: str) -> None:
    assert set(decide(0, [worker(0)], slurm(record(words))).drain) <= {None}
    assert decide(1, [worker(0, kube_node_cordon=CORDONED)], slurm(record(words))).drain == {}
    assert decide(1, [worker(0)], slurm(record(words))).undrain == ()


def test_what_slurmctld_appends_to_the_operators_reason_is_not_overwritten() -> None:
    view = slurm(record("DOWN DRAIN NOT_RESPONDING", f"{OURS} : Not responding"))
    assert decide(1, [worker(0, kube_node_cordon=CORDONED)], view).drain == {}


@pytest.mark.parametrize("user", ["", "slurm"])
def test_a_drain_with_slurmctlds_words_about_a_silent_node_is_lifted_from_a_ready_pod(
    user: str,
) -> None:
    view = slurm(replace(record("IDLE DRAIN", "Not responding"), reason_set_by_user=user))
    assert decide(1, [worker(0)], view).undrain == ("slinky-0",)
    assert decide(1, [worker(0, ready=False)], view).undrain == ()


@pytest.mark.parametrize("reason", ["Not responding", "Node unexpectedly rebooted", "none"])
def test_a_drain_that_an_administrator_set_with_slurmctlds_words_is_not_lifted(reason: str) -> None:
    drained = replace(record("IDLE DRAIN", reason), reason_set_by_user="root")
    assert decide(1, [worker(0)], slurm(drained)).undrain == ()
    assert owner_of(drained) is Owner.FOREIGN


def test_a_drain_for_a_failed_prolog_that_keeps_the_words_about_a_reboot_is_not_lifted() -> None:
    view = slurm(
        replace(record("IDLE DRAIN", "Node unexpectedly rebooted"), reason_set_by_user="slurm")
    )
    assert decide(1, [worker(0)], view).undrain == ()


def test_a_node_that_an_administrator_failed_is_not_undrained_by_the_operator() -> None:
    assert decide(1, [worker(0)], slurm(record("IDLE FAIL", OURS))).undrain == ()


def test_a_pod_is_marked_for_a_cordoned_node_only_if_its_slurm_node_is_ours_to_drain() -> None:
    pod = worker(0, kube_node_cordon=CORDONED)
    for words, reason in FOREIGN:
        marked = reason in ("Not responding", "Node unexpectedly rebooted")
        assert bool(decide(1, [pod], slurm(record(words, reason))).cordon) is marked


def test_a_node_that_was_written_to_is_neither_drained_nor_undrained_before_it_is_read_again() -> (
    None
):
    unread = frozenset({"slinky-0"})
    draining = replace(slurm(record("IDLE")), unsettled=unread)
    condemned = decide(0, [worker(0)], draining)
    assert condemned.drain == {}
    assert condemned.look_again is not None
    lifted = replace(slurm(record("IDLE DRAIN", OURS)), unsettled=unread)
    spared = decide(1, [worker(0)], lifted)
    assert spared.undrain == ()
    assert spared.look_again is not None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("DOWN", "slurm-operator: its pod was deleted"),
        ("DOWN", "slurm-node: slurmd has stopped"),
        ("DOWN", "slurm-node: health: disk: / can't be written to : Not responding"),
        ("DOWN DRAIN", f"{OURS} : Not responding"),
        ("DOWN RESERVED MAINTENANCE", "slurm-node: slurmd has stopped"),
        ("DOWN", "Node unexpectedly rebooted"),
        ("DOWN CLOUD", "ResumeTimeout reached"),
    ],
)
def test_a_node_down_by_this_product_or_a_reboot_is_resumed_when_its_pod_is_ready_and_it_responds(
    words: str, reason: str
) -> None:
    result = decide(1, [worker(0)], slurm(record(words, reason)))
    assert (result.resume, result.undrain) == (("slinky-0",), ())
    assert decide(1, [worker(0, ready=False)], slurm(record(words, reason))).resume == ()
    assert decide(1, [worker(0)], slurm(record(f"{words} NOT_RESPONDING", reason))).resume == ()
    assert decide(1, [worker(0, terminating=True)], slurm(record(words, reason))).resume == ()
    assert (
        decide(1, [worker(0, kube_node_cordon=CORDONED)], slurm(record(words, reason))).resume == ()
    )
    assert decide(0, [worker(0)], slurm(record(words, reason))).resume == ()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("DOWN", "bad disk"),
        ("DOWN", ""),
        ("DOWN", "Not responding"),
        ("DOWN", "Node unexpectedly rebooted, see ticket 7"),
        ("DOWN DRAIN", "Node unexpectedly rebooted"),
        ("DOWN FAIL", "Node unexpectedly rebooted"),
        ("DOWN CLOUD POWERED_DOWN", "ResumeTimeout reached"),
        ("DOWN CLOUD", "ResumeTimeout reached, see ticket 7"),
        ("DOWN DRAIN", "slurm-node: health: disk: / can't be written to"),
        ("DOWN FAIL", OURS),
        ("IDLE", OURS),
        ("IDLE DRAIN", OURS),
    ],
)
def test_no_other_node_is_resumed_by_the_operator(words: str, reason: str) -> None:
    assert decide(1, [worker(0)], slurm(record(words, reason))).resume == ()


@pytest.mark.parametrize(
    ("user", "resumed"), [("", True), ("slurm", True), ("root", False), ("alice", False)]
)
def test_a_down_node_is_resumed_after_a_reboot_only_if_slurmctld_has_set_it_down(
    user: str, resumed: bool
) -> None:
    down = replace(record("DOWN", "Node unexpectedly rebooted"), reason_set_by_user=user)
    assert decide(1, [worker(0)], slurm(down)).resume == (("slinky-0",) if resumed else ())
