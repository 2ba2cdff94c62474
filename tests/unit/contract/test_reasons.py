"""Reasons of Slurm nodes and their owners: `sidecars.contract.reasons`."""

from pathlib import Path

import pytest

from sidecars.contract import reasons
from sidecars.contract.reasons import Owner

WORKLOADS = Path(__file__).parents[3] / "charts/slurm-operator/workloads"


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("", Owner.NOBODY),
        ("slurm-operator: Pod (slurm/w-0) was cordoned", Owner.OPERATOR),
        ("slurm-node: the pod is terminating", Owner.POD),
        ("slurm-node: health: disk: / can't be written to", Owner.POD),
        ("slurm-node: 7 of 8 expected GPUs found by nvidia-smi", Owner.POD),
        ("Not responding", Owner.SLURMCTLD),
        ("Node unexpectedly rebooted", Owner.SLURMCTLD),
        ("none", Owner.FOREIGN),
        ("bad disk", Owner.FOREIGN),
        ("Not responding to my mails", Owner.FOREIGN),
        ("nonexistent fan", Owner.FOREIGN),
        ("slurm-operator", Owner.FOREIGN),
        (" slurm-node: the pod is terminating", Owner.FOREIGN),
        ("Kill task failed", Owner.FOREIGN),
    ],
)
def test_each_reason_has_one_owner(reason: str, want: Owner) -> None:
    assert reasons.owner(reason) is want
    assert reasons.is_foreign(reason) is (want is Owner.FOREIGN)


def test_the_reasons_that_each_process_writes_are_its_own() -> None:
    assert {reasons.owner(it) for it in (reasons.RECORD_ORPHANED, reasons.of_operator("x"))} == {
        Owner.OPERATOR
    }
    pods = (reasons.POD_LEAVING, reasons.POD_GONE, reasons.HEALTH_PREFIX + "x", reasons.of_pod("x"))
    assert {reasons.owner(it) for it in pods} == {Owner.POD}


def test_only_a_drain_of_a_pod_that_was_stopped_is_a_departure() -> None:
    assert reasons.is_departure(reasons.POD_LEAVING)
    assert reasons.is_departure(
        f"{reasons.POD_GONE}, gres/gpu count reported lower than configured (7 < 8)"
    )
    assert not reasons.is_departure("slurm-node: health: disk: / can't be written to")
    assert not reasons.is_departure("the pod is terminating")


def test_only_the_health_checks_of_a_worker_pod_are_health_checks() -> None:
    assert reasons.is_health_check("slurm-node: health: disk: / can't be written to")
    assert not reasons.is_health_check("slurm-node: 7 of 8 expected GPUs found")
    assert not reasons.is_health_check("health: disk")


def test_a_reason_to_register_with_is_cut_off_and_absent_without_a_text() -> None:
    assert reasons.of_pod("") == ""
    assert reasons.of_pod("2 of 8 GPUs") == "slurm-node: 2 of 8 GPUs"
    assert len(reasons.of_pod("x" * 500)) == reasons.MAX_LENGTH


def test_the_health_check_program_writes_the_same_prefix() -> None:
    program = (WORKLOADS / "health-run.sh").read_text().splitlines()
    assert f"own='{reasons.HEALTH_PREFIX}'" in program
