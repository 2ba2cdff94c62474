"""A pod whose host has come back with less than its record has."""

from dataclasses import replace

import pytest

from sidecars.contract.reasons import POD_GONE, kept
from sidecars.contract.shape import Shape
from sidecars.node.machine import begin
from sidecars.node.oversized import shortage
from sidecars.node.records import Claim, Delete, Down, Names, Phase, Read
from sidecars.slurm.records import Node
from tests.unit.node.simulation import Pod, Slurm, node

FULL = Shape(8, 16000, "gpu:h100:8")
LOW = "Low RealMemory (reported:15000 < 100.00% of configured:16000)"


def record(*states: str, reason: str = "", reservation: str = "") -> Node:
    """The record of the pod that had all of it."""
    found = node(*states, reason=reason, reservation=reservation)
    return replace(found, cpus=8, real_memory=16000, gres="gpu:h100:8(S:0-1)")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (FULL, ""),
        (Shape(), ""),
        (replace(FULL, memory=15999), "15999 of 16000 MiB"),
        (replace(FULL, memory=17000), ""),
        (replace(FULL, cpus=6), "6 of 8 CPUs"),
        (replace(FULL, gres="gpu:h100:7"), "7 of 8 gpu, 7 of 8 gpu:h100"),
        (replace(FULL, gres="gpu:h100:9"), ""),
        (replace(FULL, gres="gpu:l4:8"), "0 of 8 gpu:h100"),
        (replace(FULL, gres=""), "0 of 8 gpu, 0 of 8 gpu:h100"),
    ],
)
def test_a_record_is_compared_with_what_slurmd_will_register(shape: Shape, words: str) -> None:
    assert shortage(record(), shape) == words


def test_a_record_whose_gres_cannot_be_read_is_not_too_large() -> None:
    assert shortage(replace(record(), gres="?:?:?"), replace(FULL, gres="")) == ""


@pytest.mark.parametrize(
    "less", [replace(FULL, memory=15000), replace(FULL, gres="gpu:h100:7"), replace(FULL, cpus=4)]
)
def test_the_record_is_replaced_when_the_host_has_come_back_with_less(less: Shape) -> None:
    pod = Pod(Slurm(record("DOWN", "NOT_RESPONDING", reason="Not responding")), shape=less)
    pod.run(0.1)
    assert pod.slurm.calls == [Read(), Names(), Delete()]
    assert pod.record == "this pod's, deleted"
    assert any("more than slurmd will register" in line for line in pod.log)


def test_a_record_that_slurmctld_has_drained_for_that_is_replaced_when_the_pod_starts_again() -> (
    None
):
    pod = Pod(
        Slurm(record("IDLE", "DRAIN", "INVALID_REG", reason=LOW)), shape=replace(FULL, memory=15000)
    )
    pod.run(0.1)
    assert pod.slurm.record is None


def test_jobs_that_ended_with_the_host_go_back_to_the_queue() -> None:
    pod = Pod(Slurm(record("MIXED")), shape=replace(FULL, memory=15000))
    pod.run(0.1)
    assert pod.slurm.calls == [Read(), Down(POD_GONE), Names(), Delete()]


def test_a_record_that_suits_the_host_is_kept() -> None:
    pod = Pod(Slurm(record()), shape=FULL)
    pod.run(0.1)
    assert pod.slurm.calls == [Read()]
    assert (pod.record, pod.phase) == ("this pod's", Phase.WATCH)


@pytest.mark.parametrize(
    "retained",
    [
        record("IDLE", "DRAIN", reason="admin: bad memory"),
        record("IDLE", reservation="maintenance"),
        record("IDLE", "CLOUD"),
        record("DOWN", reason=kept(POD_GONE, "job 17")),
        record("IDLE", "DRAIN", "FAIL", "INVALID_REG", reason=LOW),
    ],
    ids=[
        "a drain of an administrator",
        "a reservation",
        "power saving",
        "a job that names it",
        "an administrator's FAIL",
    ],
)
def test_a_record_that_somebody_retains_is_kept(retained: Node) -> None:
    pod = Pod(Slurm(retained), shape=replace(FULL, memory=15000))
    pod.run(0.1)
    assert pod.slurm.calls == [Read()]
    assert pod.record == "this pod's"


def test_a_record_that_a_job_names_is_kept() -> None:
    pod = Pod(Slurm(record(), named="job 17"), shape=replace(FULL, memory=15000))
    pod.run(5)
    assert pod.slurm.calls == [Read(), Names(), Claim()]
    assert pod.record == "this pod's, taken over"


def test_nothing_is_deleted_while_slurmd_may_run() -> None:
    pod = Pod(Slurm(record()), shape=replace(FULL, memory=15000), slurmd_may_run=True)
    pod.run(5)
    assert pod.slurm.calls == [Read()]


def test_nothing_is_deleted_while_slurmd_answers() -> None:
    pod = Pod(
        Slurm(record("MIXED"), listening=frozenset({"127.0.0.1"})),
        shape=replace(FULL, memory=15000),
    )
    pod.run(5)
    assert pod.slurm.busy


def test_the_record_waits_for_what_register_finds() -> None:
    pod = Pod(Slurm(record()), shape=None)
    pod.run(1)
    assert pod.record == "", "slurmd waits"
    pod.shape = replace(FULL, memory=15000)
    pod.run(1)
    assert pod.record == "this pod's, deleted"


def test_a_register_that_writes_nothing_does_not_keep_slurmd_from_starting() -> None:
    pod = Pod(Slurm(record()), shape=None)
    assert pod.run(10, until=lambda: bool(pod.record)) <= 3.5
    assert pod.record == "this pod's"
    assert len(pod.slurm.calls) <= 8


def test_a_restart_of_node_alone_keeps_the_record() -> None:
    pod = Pod(Slurm(record("MIXED")), shape=replace(FULL, memory=15000), slurmd_may_run=True)
    pod.state = begin(pod.now)
    pod.run(1)
    assert pod.slurm.busy
