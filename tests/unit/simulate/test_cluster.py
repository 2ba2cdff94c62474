"""A simulated cluster: what happens to its records."""

import pytest

from sidecars.simulate.cluster import Cluster


class Time:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def cluster(*nodes: str) -> Cluster:
    it = Cluster(Time())
    for name in nodes:
        it.node_register(name)
    return it


def test_a_node_is_idle_mixed_or_allocated_by_the_cpus_of_its_jobs() -> None:
    it = cluster("n0", "n1", "n2")
    it.job_start("n[1-2]", cpus=1)
    it.job_start(["n2"], cpus=3)
    assert [it.states(name) & {"IDLE", "MIXED", "ALLOCATED"} for name in ("n0", "n1", "n2")] == [
        {"IDLE"},
        {"MIXED"},
        {"ALLOCATED"},
    ]


def test_a_job_on_an_unknown_node_is_refused() -> None:
    with pytest.raises(KeyError, match="n9"):
        cluster("n0").job_start(["n9"])


def test_a_completing_job_keeps_its_node_busy_until_it_has_ended() -> None:
    it = cluster("n0")
    job = it.job_start("n0")
    it.job_end(job, completing=True)
    assert "COMPLETING" in it.states("n0")
    it.job_end(job)
    assert "COMPLETING" not in it.states("n0")


def test_a_node_that_vanishes_is_down_with_slurms_reason_and_its_job_is_requeued() -> None:
    it = cluster("n0")
    job = it.job_start("n0")
    it.node_vanish("n0")
    assert "DOWN" in it.states("n0")
    assert it.nodes["n0"].reason == "Not responding"
    assert it.jobs[job].states == {"PENDING"}


def test_a_drain_outlives_a_new_registration() -> None:
    it = cluster("n0")
    it.nodes["n0"].flags.add("DRAIN")
    it.nodes["n0"].reason = "bad disk"
    it.node_vanish("n0")
    it.node_register("n0")
    assert {"IDLE", "DRAIN"} <= it.states("n0")
    assert it.nodes["n0"].reason == "bad disk"


def test_a_restart_without_state_forgets_everything() -> None:
    it = cluster("n0")
    it.job_start("n0")
    it.restart()
    assert set(it.nodes) == {"n0"}
    it.restart(lost_state=True)
    assert not it.nodes
    assert not it.jobs


def test_a_reservation_is_deleted_when_it_is_over_unless_it_recurs() -> None:
    time = Time()
    it = Cluster(time)
    it.node_register("n0")
    start = int(time.now)
    it.reserve("once", "n0", start=start, minutes=10)
    it.reserve("daily", "n0", start=start, minutes=10, flags=("MAINT", "DAILY"))
    assert {"RESERVED", "MAINTENANCE"} <= it.states("n0")
    time.now += 601
    assert set(it.reservations) == {"daily"}
    assert it.reservations["daily"].start_time == start + 86_400
    assert "RESERVED" not in it.states("n0")
