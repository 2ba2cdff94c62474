"""Node records without a pod: `sidecars.policy.nodeset.node_records`."""

import pytest

from sidecars.policy.nodeset.node_records import ORPHANED_SECONDS, condition, orphaned_records
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.records import Job
from tests.unit.policy.nodeset.builders import NOW, node


def test_a_record_is_deleted_only_after_its_pod_has_been_gone_for_a_while() -> None:
    record = node(0, "DOWN", "NOT_RESPONDING", reason="Not responding")
    early = orphaned_records([record], {"slinky-0": NOW - ORPHANED_SECONDS + 2}, NOW, {})
    assert (early.delete, early.look_again) == ((), 2.0)
    assert orphaned_records([record], {"slinky-0": NOW - ORPHANED_SECONDS}, NOW, {}).delete == (
        "slinky-0",
    )


def test_a_record_with_a_foreign_reason_or_a_reservation_is_set_down_and_left() -> None:
    gone = {"slinky-0": NOW - 60, "slinky-1": NOW - 60}
    records = [
        node(0, "IDLE", "DRAIN", reason="bad disk"),
        node(1, "IDLE", reservation="maintenance"),
    ]
    result = orphaned_records(records, gone, NOW, {})
    ours = "slurm-operator: its pod was deleted"
    assert (result.delete, result.down) == ((), {None: ("slinky-0",), ours: ("slinky-1",)})


def test_a_busy_record_without_a_pod_is_set_down_before_it_is_deleted() -> None:
    gone = {"slinky-0": NOW - 60}
    result = orphaned_records([node(0, "ALLOCATED")], gone, NOW, {})
    assert (result.delete, list(result.down.values()), result.look_again) == (
        (),
        [("slinky-0",)],
        1.0,
    )
    down = node(0, "DOWN", reason="slurm-operator: its pod was deleted")
    assert orphaned_records([down], gone, NOW, {}).delete == ("slinky-0",)


def test_a_record_with_a_foreign_reason_is_drained_so_that_no_successor_returns_it_to_service() -> (
    None
):
    gone = {"slinky-0": NOW - 60}
    down = orphaned_records([node(0, "DOWN", reason="bad disk")], gone, NOW, {})
    assert (down.delete, down.down) == ((), {None: ("slinky-0",)})
    for words in (("DOWN", "DRAIN"), ("DOWN", "FAIL")):
        assert orphaned_records([node(0, *words, reason="bad disk")], gone, NOW, {}).down == {}


def test_a_record_with_a_drain_of_the_slurm_bridge_stays_until_the_bridge_ends_the_drain() -> None:
    """UNDRAIN keeps the reason on a node that is DOWN, and the operator sets each record DOWN that
    it keeps.
    """
    gone, reason = (
        {"slinky-0": NOW - 60},
        "slurm-bridge: pod team/p runs here, and slurmd doesn't answer",
    )
    stands = orphaned_records([node(0, "DOWN", "DRAIN", reason=reason)], gone, NOW, {})
    assert (stands.delete, stands.down) == ((), {})
    ended = orphaned_records([node(0, "DOWN", reason=f"{reason} : Not responding")], gone, NOW, {})
    assert (ended.delete, ended.down) == (("slinky-0",), {})


@pytest.mark.parametrize("words", [("IDLE", "DRAIN"), ("IDLE", "FAIL")])
def test_a_record_that_somebody_made_unavailable_without_a_reason_is_left(
    words: tuple[str, ...],
) -> None:
    result = orphaned_records([node(0, *words)], {"slinky-0": NOW - 60}, NOW, {})
    assert (result.delete, result.down) == ((), {None: ("slinky-0",)})


def test_slurmctlds_own_reason_of_a_record_without_a_pod_is_not_overwritten() -> None:
    gone = {"slinky-0": NOW - 60}
    record = node(0, "MIXED", "NOT_RESPONDING", reason="Not responding")
    assert orphaned_records([record], gone, NOW, {}).down == {None: ("slinky-0",)}


def test_no_record_is_deleted_while_it_is_unknown_who_names_it() -> None:
    result = orphaned_records([node(0, "IDLE")], {"slinky-0": NOW - 60}, NOW, None)
    assert (result.delete, result.look_again) == ((), 1.0)


def test_a_record_that_a_job_names_is_set_down_once_with_a_reason_that_names_it() -> None:
    gone, named = {"slinky-0": NOW - 60}, {"slinky-0": "job 17"}
    reason = "slurm-operator: its pod was deleted; kept for job 17"
    first = orphaned_records([node(0, "IDLE")], gone, NOW, named)
    assert (first.delete, first.down, first.kept) == ((), {reason: ("slinky-0",)}, named)
    for kept in (reason, f"{reason} : Not responding"):
        result = orphaned_records([node(0, "DOWN", reason=kept)], gone, NOW, named)
        assert (result.down, result.kept, result.look_again) == ({}, named, None)
    other = orphaned_records([node(0, "DOWN", reason=reason)], gone, NOW, {"slinky-0": "job 18"})
    assert other.down == {reason.replace("17", "18"): ("slinky-0",)}


def test_a_record_is_kept_for_a_job_whose_list_of_nodes_can_not_be_read() -> None:
    named = named_nodes([Job(17, frozenset({"PENDING"}), required_nodes="w-[1")], ())
    result = orphaned_records([node(0, "IDLE")], {"slinky-0": NOW - 60}, NOW, named)
    assert (result.delete, result.kept) == ((), {"slinky-0": "job 17"})


def test_the_condition_names_the_first_of_many_kept_records() -> None:
    found = condition({f"slinky-{number}": f"job {number}" for number in range(9)})
    assert found is not None
    assert "slinky-0 (job 0), slinky-1 (job 1)" in found.message
    assert "and 4 more" in found.message
    assert condition({}) is None
