"""Slurm's node records as the planner takes them: `sidecars.autoscaling.present`."""

from dataclasses import replace

import pytest

from sidecars.autoscaling.present import present, reserved
from sidecars.contract.reasons import POD_LEAVING
from sidecars.slurm.records import Node, Reservation

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
def test_a_worker_on_which_no_job_can_start_against_all_intention_has_a_fault(
    states: str, reason: str
) -> None:
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
def test_a_worker_that_runs_jobs_or_that_somebody_keeps_from_them_has_none(
    states: str, reason: str
) -> None:
    assert fault(states, reason) == ""


def test_a_drain_of_another_program_right_after_slurmd_starts_is_the_result_of_its_check() -> None:
    assert fault("IDLE+DRAIN", "NHC: no GPU", after=20) == "IDLE+DRAIN: NHC: no GPU"
    assert fault("IDLE+DRAIN", "NHC: no GPU", after=300) == ""
    assert fault("IDLE+DRAIN", "set before this slurmd started", after=-1) == ""


def test_a_node_that_the_operator_has_closed_is_reserved_for_nobody() -> None:
    closing = Reservation("SlurmOperatorClosed-cpu", "cpu-[0-1]", start_time=1, end_time=9)
    course = Reservation("course", "cpu-1", start_time=5, end_time=9)
    assert reserved([closing, course], 2.0) == {"cpu-1": 5.0}


def test_gres_that_cannot_be_read_are_a_fault_and_are_quoted_on_one_line() -> None:
    found = present(Node("n0", frozenset({"IDLE"}), gres="gpu:\n:x:y:z"), "cpu")
    assert not found.usable
    assert found.fault == "its GRES 'gpu: :x:y:z' can't be read"


def test_only_cores_and_memory_that_are_not_of_the_system_are_free() -> None:
    node = Node(
        "n0",
        frozenset({"MIXED"}),
        cpus=16,
        sockets=2,
        cores=4,
        threads=2,
        specialized_cores=5,
        alloc_cpus=2,
        real_memory=4000,
        specialized_memory=1000,
        alloc_memory=500,
    )
    found = present(node, "cpu")
    assert (found.shape.all_cores, found.free_cores) == (3, 2)
    assert (found.shape.memory, found.free_memory) == (3000, 2500)
    # Slurm reports all CPUs of a node whose jobs may use those of the system as well.
    assert present(replace(node, alloc_cpus=16), "cpu").free_cores == 0


@pytest.mark.parametrize("states", ["IDLE+CLOUD+POWERED_DOWN", "IDLE+POWERING_UP+NOT_RESPONDING"])
def test_a_node_that_slurm_powers_up_itself_is_room_after_those_that_are_up(states: str) -> None:
    node = Node("n0", frozenset(states.split("+")), cpus=4, cores=4, weight=7)
    saving = present(node, "")
    assert (saving.usable, saving.idle_since, saving.unsettled) == (True, None, True)
    assert saving.weight > present(Node("n1", frozenset({"IDLE"}), weight=1 << 32), "").weight
    assert not present(node, "scaled").usable
    assert not present(replace(node, states=node.states | {"DRAIN"}), "").usable
    assert not present(replace(node, states=frozenset({"IDLE", "POWERING_DOWN"})), "").usable
