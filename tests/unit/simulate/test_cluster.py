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


@pytest.mark.parametrize(
    ("setting", "reason", "rebooted", "expected"),
    [
        (0, "Not responding", False, ("DOWN", "Not responding")),
        (0, "bad disk", False, ("DOWN", "bad disk")),
        (1, "Not responding", False, ("IDLE", "")),
        (1, "bad disk", False, ("DOWN", "bad disk")),
        (1, "Not responding", True, ("DOWN", "Node unexpectedly rebooted")),
        (2, "bad disk", False, ("IDLE", "")),
        (2, "Not responding", True, ("IDLE", "")),
    ],
)
def test_return_to_service_decides_which_down_node_is_up_again_when_it_registers(
    setting: int, reason: str, rebooted: bool, expected: tuple[str, str]
) -> None:
    it = cluster("n0")
    it.return_to_service = setting
    it.node_vanish("n0")
    it.nodes["n0"].reason = reason
    it.node_register("n0", rebooted=rebooted)
    assert (it.nodes["n0"].base, it.nodes["n0"].reason) == expected


@pytest.mark.parametrize(("setting", "base"), [(0, "DOWN"), (1, "IDLE"), (2, "IDLE")])
def test_a_silent_node_that_answers_a_ping_is_up_again_as_return_to_service_sets(
    setting: int, base: str
) -> None:
    it = cluster("n0")
    it.return_to_service = setting
    it.node_vanish("n0")
    it.node_responds("n0")
    assert it.nodes["n0"].base == base
    assert "NOT_RESPONDING" not in it.states("n0")


def test_a_node_whose_host_has_booted_unexpectedly_is_down_unless_return_to_service_is_2() -> None:
    it = cluster("n0", "n1")
    it.return_to_service = 0
    it.nodes["n1"].flags.add("DRAIN")
    it.node_register("n0", rebooted=True)
    it.node_register("n1", rebooted=True)
    assert (it.nodes["n0"].base, it.nodes["n0"].reason) == ("DOWN", "Node unexpectedly rebooted")
    assert (it.nodes["n1"].base, it.nodes["n1"].reason) == ("IDLE", "")


def test_a_job_that_need_not_be_killed_goes_on_without_the_node_that_fails() -> None:
    it = cluster("n0", "n1")
    robust = it.job_start("n[0-1]", kill_on_node_fail=False)
    other = it.job_start("n[0-1]", requeue=False)
    it.node_vanish("n0")
    assert (it.jobs[robust].states, it.jobs[robust].nodes) == ({"RUNNING"}, ["n1"])
    assert it.jobs[other].states == {"NODE_FAIL"}
    it.node_vanish("n1")
    assert it.jobs[robust].states == {"PENDING"}
