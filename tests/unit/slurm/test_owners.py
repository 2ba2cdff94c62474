"""Whose a node record and its state are: `sidecars.slurm.owners`."""

from dataclasses import replace

import pytest

from sidecars.contract.extra import PodFacts, encode
from sidecars.contract.reasons import POD_GONE, POD_LEAVING, Owner
from sidecars.slurm.owners import (
    belongs_to,
    is_departing,
    must_be_drained,
    own_words,
    owner_of,
    pod_of,
    reason_to_write,
    why_retained,
)
from sidecars.slurm.records import Node

OURS = "slurm-operator: Node (m) was cordoned"


def node(*words: str, reason: str = "", reservation: str = "", pod_uid: str = "") -> Node:
    extra = encode(PodFacts(pod_uid)) if pod_uid else ""
    return Node("n0", states=frozenset(words), reason=reason, reservation=reservation, extra=extra)


@pytest.mark.parametrize(
    ("words", "reason", "want"),
    [
        ("IDLE", "", Owner.NOBODY),
        ("IDLE", "watch this node", Owner.FOREIGN),
        ("IDLE DRAIN", "", Owner.FOREIGN),
        ("DOWN", "", Owner.FOREIGN),
        ("IDLE FAIL", "", Owner.FOREIGN),
        ("IDLE FAIL", OURS, Owner.FOREIGN),
        ("IDLE DRAIN", OURS, Owner.OPERATOR),
        ("DOWN", OURS, Owner.OPERATOR),
        ("DOWN", "slurm-node: slurmd has stopped", Owner.POD),
        ("DOWN", "Not responding", Owner.SLURMCTLD),
        ("DOWN DRAIN", f"{OURS} : Not responding", Owner.OPERATOR),
        ("DOWN DRAIN", "bad disk : Not responding", Owner.FOREIGN),
    ],
)
def test_a_state_without_a_reason_and_every_fail_belong_to_someone_else(
    words: str, reason: str, want: Owner
) -> None:
    assert owner_of(Node("n0", states=frozenset(words.split()), reason=reason)) is want


def test_only_reasons_of_nobody_and_of_this_product_are_replaced() -> None:
    def written(*words: str, reason: str = "") -> str | None:
        return reason_to_write(Node("n0", states=frozenset(words), reason=reason), OURS)

    assert written("IDLE") == OURS
    assert written("DOWN", reason="slurm-node: slurmd has stopped") == OURS
    assert written("IDLE", reason="watch this node") is None
    assert written("DOWN", reason="Not responding") is None
    assert written("IDLE", "DRAIN") is None


def test_what_slurmctld_appends_is_not_part_of_the_reason() -> None:
    assert own_words(f"{OURS} : Not responding") == OURS
    assert own_words("Not responding") == "Not responding"


def test_a_record_belongs_to_the_pod_whose_uid_is_in_its_extra() -> None:
    assert belongs_to(node(pod_uid="uid-1"), "uid-1")
    assert not belongs_to(node(pod_uid="uid-0"), "uid-1")
    assert not belongs_to(node(), "uid-1")


@pytest.mark.parametrize("reason", [POD_LEAVING, POD_GONE])
def test_a_node_that_is_drained_for_its_pods_end_is_departing(reason: str) -> None:
    assert is_departing(node("IDLE", "DRAIN", reason=reason))
    assert not is_departing(node("IDLE", reason=reason)), "the node is not drained"
    assert not is_departing(node("IDLE", "DRAIN", "UNDRAIN", reason=reason)), (
        "the drain is being lifted"
    )


@pytest.mark.parametrize(
    "reason", ["admin: bad memory", "slurm-operator: scale-in", "slurm-node: health: GPU 0"]
)
def test_a_node_that_is_drained_for_another_reason_is_not_departing(reason: str) -> None:
    assert not is_departing(node("IDLE", "DRAIN", reason=reason))


def test_a_record_is_retained_for_a_foreign_reason_and_for_a_reservation() -> None:
    assert why_retained(node(reason="slurm-operator: scale-in")) == ""
    assert "'admin: bad memory'" in why_retained(node(reason="admin: bad memory"))
    assert "maintenance" in why_retained(node(reservation="maintenance"))
    assert why_retained(node(reservation="SlurmOperatorClosed-n")) == ""
    both = why_retained(node(reservation="SlurmOperatorClosed-n,maintenance"))
    assert both == "it is in reservation maintenance"


def test_a_record_that_slurmctld_drained_because_slurmd_had_less_is_not_retained() -> None:
    low = "gres/gpu count reported lower than configured (7 < 8)"
    small = node("IDLE", "DRAIN", "INVALID_REG", reason=low)
    assert why_retained(small) == ""
    assert "maintenance" in why_retained(replace(small, reservation="maintenance"))
    assert why_retained(replace(small, reason_set_by_user="alice")) != "", (
        "another repeated slurmctld's words"
    )
    assert why_retained(replace(small, states=small.states | {"FAIL"})) != ""
    assert why_retained(node("IDLE", "DRAIN", reason=low)) != ""


def test_a_foreign_state_that_outlives_its_pod_must_be_drained_and_a_reservation_need_not() -> None:
    assert must_be_drained(node("DOWN", reason="admin: bad memory"))
    assert not must_be_drained(node("DOWN", "DRAIN", reason="admin: bad memory"))
    assert not must_be_drained(node("DOWN", reason=OURS))
    assert not must_be_drained(node("IDLE", reservation="maintenance"))


COMMENT = (
    '{"namespace":"slurm","podName":"slinky-0","node":"kube-1","nodeSetName":"slinky",'
    '"nodeSetUID":"set"}'
)
"""As SchedMD's operator 1.2 writes it."""


def test_a_record_names_the_pod_of_its_extra_else_that_of_the_comment_of_schedmds_operator() -> (
    None
):
    facts = PodFacts("uid", "other-0", "slurm", "other")
    assert pod_of(Node("n0", comment=COMMENT)) == PodFacts("", "slinky-0", "slurm", "set")
    assert pod_of(Node("n0", comment=COMMENT, extra='{"rack": "a"}')) == PodFacts(
        "", "slinky-0", "slurm", "set"
    )
    assert pod_of(Node("n0", comment=COMMENT, extra=encode(facts))) == facts


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "bad disk",
        "{",
        "[]",
        '{"podName":' * 100_000,
        # SchedMD's operator 1.0 and 1.1
        '{"namespace":"slurm","podName":"slinky-0","node":"kube-1"}',
        '{"namespace":"slurm","podName":"","nodeSetUID":"set"}',
        '{"namespace":"slurm","podName":["slinky-0"],"nodeSetUID":"set"}',
        '{"podName":"slinky-0","nodeSetUID":"set"}',
        '{"namespace":"../x","podName":"slinky-0","nodeSetUID":"set"}',
        '{"namespace":"slurm","podName":"a/b","nodeSetUID":"set"}',
        '{"namespace":' * 100_000,
    ],
)
def test_a_comment_without_pod_namespace_and_uid_of_its_nodeset_names_no_pod(comment: str) -> None:
    assert pod_of(Node("n0", comment=comment)) is None
