"""Whose a node record and its drain are."""

import pytest

from sidecars.contract.reasons import POD_GONE, POD_LEAVING
from sidecars.node.ownership import is_own, is_own_drain, why_retained
from tests.unit.node.simulation import UID, node


def test_a_record_is_the_pods_whose_uid_is_in_its_extra() -> None:
    assert is_own(node(uid=UID), UID)
    assert not is_own(node(uid="uid-0"), UID)
    assert not is_own(node(uid=""), UID)


@pytest.mark.parametrize("reason", [POD_LEAVING, POD_GONE])
def test_a_drain_for_the_pods_end_is_its_own(reason: str) -> None:
    assert is_own_drain(node("IDLE", "DRAIN", reason=reason))
    assert not is_own_drain(node("IDLE", reason=reason)), "the node is not drained"
    assert not is_own_drain(node("IDLE", "DRAIN", "UNDRAIN", reason=reason)), "the drain is being lifted"


@pytest.mark.parametrize("reason", ["admin: bad memory", "slurm-operator: scale-in", "slurm-node: health: GPU 0"])
def test_no_other_drain_is_the_pods_own(reason: str) -> None:
    assert not is_own_drain(node("IDLE", "DRAIN", reason=reason))


def test_a_record_is_retained_for_a_foreign_reason_and_for_a_reservation() -> None:
    assert why_retained(node(reason="slurm-operator: scale-in")) == ""
    assert "'admin: bad memory'" in why_retained(node(reason="admin: bad memory"))
    assert "maintenance" in why_retained(node(reservation="maintenance"))
