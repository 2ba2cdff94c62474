"""Slurm's node records as the planner takes them: `sidecars.policy.autoscaling.present`."""

import pytest

from sidecars.contract.reasons import POD_LEAVING
from sidecars.policy.autoscaling.present import present
from sidecars.slurm.records import Node

STARTED = 10_000


def fault(states: str, reason: str = "", after: int = 86_400) -> str:
    """Of a node whose reason was set so many seconds after its slurmd started."""
    node = Node(
        "n0",
        frozenset(states.split("+")),
        reason=reason,
        reason_changed_at=STARTED + after,
        slurmd_start_time=STARTED,
        cpus=4,
    )
    return present(node, "cpu").fault


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ("IDLE+DRAIN+INVALID_REG", "Low RealMemory (reported:100 < 100.00% of configured:200)"),
        ("DOWN+NOT_RESPONDING", "Not responding"),
        ("IDLE+NOT_RESPONDING", ""),
        ("DOWN", ""),
        ("IDLE+DRAIN", "slurm-node: health: gpu-count: 3 of 4 GPUs"),
        ("IDLE+DRAIN", "slurm-node: 0 of 4 expected GPUs found by NVML"),
        ("UNKNOWN", ""),
        ("IDLE+RESERVED+INVALID_REG", ""),
    ],
)
def test_a_worker_on_which_no_job_can_start_against_all_intention_has_a_fault(states: str, reason: str) -> None:
    shown = states.replace("RESERVED+", "")
    assert fault(states, reason) == (f"{shown}: {reason}" if reason else shown)


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ("IDLE", ""),
        ("MIXED+DRAIN+UNDRAIN", "slurm-node: health: disk: full"),
        ("IDLE+DRAIN", "kernel update"),
        ("DOWN+NOT_RESPONDING", "new power supply"),
        ("IDLE+FAIL", "new fan"),
        ("IDLE+RESERVED", ""),
        ("IDLE+MAINTENANCE+DRAIN+INVALID_REG", "Low RealMemory"),
        ("DOWN+REBOOT_ISSUED", "reboot ASAP"),
        ("IDLE+POWERED_DOWN", ""),
        ("IDLE+DRAIN", "slurm-operator: Node (m) was cordoned, Pod (a/b) must be cordoned"),
        ("IDLE+DRAIN+INVALID_REG", "slurm-operator: Pod (a/b) was cordoned"),
        ("IDLE+DRAIN", POD_LEAVING),
    ],
)
def test_a_worker_that_runs_jobs_or_that_somebody_keeps_from_them_has_none(states: str, reason: str) -> None:
    assert fault(states, reason) == ""


def test_a_drain_of_another_program_right_after_the_start_of_slurmd_is_the_result_of_its_check() -> None:
    assert fault("IDLE+DRAIN", "NHC: no GPU", after=20) == "IDLE+DRAIN: NHC: no GPU"
    assert fault("IDLE+DRAIN", "NHC: no GPU", after=300) == ""
    assert fault("IDLE+DRAIN", "set before this slurmd started", after=-1) == ""


def test_gres_that_cannot_be_read_are_a_fault_and_are_quoted_on_one_line() -> None:
    found = present(Node("n0", frozenset({"IDLE"}), gres="gpu:\n:x:y:z"), "cpu")
    assert not found.usable
    assert found.fault == "its GRES 'gpu: :x:y:z' can't be read"
