"""Power saving of the simulated cluster, in virtual time. tests/contract compares it with real
Slurm.
"""

from sidecars.contract.reasons import RESUME_TIMEOUT
from sidecars.simulate.power import PowerSaving
from tests.unit.simulate.test_cluster import Time

CONF = "NodeName=n[0-1] State=CLOUD CPUs=4 RealMemory=1000 SuspendTime=60"


def cluster() -> tuple[PowerSaving, Time]:
    time = Time()
    it = PowerSaving(time)
    assert it.create_nodes(CONF)
    return it, time


def test_a_job_starts_its_node_and_begins_when_slurmd_has_registered() -> None:
    it, _ = cluster()
    job = it.jobs[it.job_start(["n0"])]
    assert {"ALLOCATED", "POWERING_UP", "NOT_RESPONDING"} & it.states("n0") >= {
        "POWERING_UP",
        "NOT_RESPONDING",
    }
    assert "CONFIGURING" in job.states
    it.node_register("n0", extra="another")
    assert job.states == {"RUNNING"}
    assert "POWERING_UP" not in it.states("n0")
    assert it.nodes["n0"].extra == ""


def test_an_idle_node_is_stopped_after_its_suspend_time_and_a_busy_one_is_not() -> None:
    it, time = cluster()
    job = it.job_start(["n0"])
    it.node_register("n0")
    time.now += 1000
    it.advance()
    assert not it.nodes["n0"].flags & {"POWERING_DOWN", "POWERED_DOWN"}
    it.job_end(job)
    time.now += 61
    it.advance()
    assert "POWERING_DOWN" in it.nodes["n0"].flags
    time.now += 31
    it.advance()
    assert {"IDLE", "CLOUD", "POWERED_DOWN"} <= it.states("n0")


def test_a_node_that_does_not_register_in_time_is_down_and_its_job_is_requeued() -> None:
    it, time = cluster()
    job = it.jobs[it.job_start(["n0"])]
    time.now += it.resume_timeout
    it.advance()
    assert {"DOWN", "POWERED_DOWN"} <= it.states("n0")
    assert it.nodes["n0"].reason == RESUME_TIMEOUT
    assert job.states == {"PENDING"}


def test_a_worker_with_fewer_gpus_than_its_record_is_drained_and_its_job_requeued() -> None:
    it, time = cluster()
    assert it.create_nodes(
        "NodeName=g0 State=CLOUD CPUs=4 RealMemory=1000 Gres=gpu:4 GresConf=name=gpu,count=4"
    )
    job = it.jobs[it.job_start(["g0"])]
    it.node_register("g0", gres="gpu:2")
    assert {"IDLE", "DRAIN", "INVALID_REG"} <= it.states("g0")
    assert it.nodes["g0"].reason == "gres/gpu count reported lower than configured (2 < 4)"
    assert it.nodes["g0"].gres == "gpu:4"
    assert job.states == {"PENDING"}
    it.set_power(it.nodes["g0"], "POWER_DOWN")
    time.now += 1
    it.advance()
    assert {"INVALID_REG", "POWERING_DOWN"} <= it.states("g0")
    assert "DRAIN" not in it.states("g0")
