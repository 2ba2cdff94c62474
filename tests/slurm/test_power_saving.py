"""What a real slurmctld does in power saving, on which the operator relies."""

import dataclasses
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecars.contract.reservations import closed_name
from sidecars.policy.nodeset import needs
from sidecars.policy.nodeset import power as power_policy
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.records import Desired, DesiredPods, Observed, SlurmView
from sidecars.slurm import conf, protocol
from sidecars.slurm import states as states_of
from sidecars.slurm.owners import has_less_than_its_record
from sidecars.slurm.records import Job
from sidecars.workloads import slurm_conf_lines
from tests.contract import requests
from tests.contract.power import POWER, Scenario, fresh, until_pending
from tests.contract.target import Target
from tests.support import builders
from tests.support.real import ports, simulated_nodes
from tests.support.real.simulated_nodes import Slurmctld

OURS = "\n".join(
    [
        *slurm_conf_lines.power_saving(
            conf.parse(simulated_nodes.CONF),
            [builders.nodeset("power", powerSaving={"enabled": True})],
        ),
        "SlurmctldParameters=power_save_interval=1",
        f"PrologSlurmctld=/etc/slurm/{slurm_conf_lines.AWAIT_FILE}",
    ]
)
"""As the operator composes them."""
CONF = f"PartitionName=all Nodes=ALL Default=YES State=UP\nSuspendTimeout=3\n{OURS}\n"
WORKLOADS = Path(__file__).parents[2] / "charts/slurm-operator/workloads"
FILES = {
    slurm_conf_lines.AWAIT_FILE: (WORKLOADS / f"{slurm_conf_lines.AWAIT_SCRIPT}.sh").read_bytes()
}
UNUSABLE = frozenset({"POWERING_UP", "POWERED_DOWN", "NOT_RESPONDING"})


@dataclasses.dataclass(frozen=True)
class SubmittedJobs:
    """Jobs of a slurmctld without slurmd."""

    slurmctld: Slurmctld

    async def start(self, node: str) -> int:
        """As `Jobs.start`."""
        return self.slurmctld.submit(
            {"tasks": 1, "cpus_per_task": 1, "time_limit": 5, "required_nodes": [node]}
        )

    async def submit_pending(
        self, *, exclusive: bool = False, named: str = "", excluded: str = ""
    ) -> int:
        """As `Jobs.submit_pending`."""
        more: dict[str, list[str]] = {"shared": ["none"]} if exclusive else {}
        more |= {"required_nodes": [named]} if named else {}
        more |= {"excluded_nodes": [excluded]} if excluded else {}
        return self.slurmctld.submit({"tasks": 1, "hold": True, **more})

    async def suspend(self, job_id: int) -> None:
        """No job of these nodes ever runs."""
        raise NotImplementedError(job_id)


@pytest.fixture(scope="module")
def slurmctld(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurmctld]:
    """One without nodes."""
    with simulated_nodes.running(
        tmp_path_factory.mktemp("power"), CONF, "", ports.POWER_SAVING, FILES
    ) as found:
        yield found


@pytest.mark.parametrize("scenario", POWER, ids=lambda scenario: scenario.__name__)
async def test_real_slurm_keeps_the_contract_of_power_saving(
    slurmctld: Slurmctld, scenario: Scenario
) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    await scenario(target)


async def test_slurm_asks_for_a_node_soon_after_a_job_got_it(slurmctld: Slurmctld) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    took = []
    for _ in range(5):
        await fresh(target)
        slurmctld.submit({"tasks": 1, "time_limit": 5, "required_nodes": ["power-0"]})
        submitted = time.monotonic()
        await target.until_node("power-0", "powering up", states_of.is_powering_up)
        took.append(time.monotonic() - submitted)
    # With Slurm's own interval of 10 s, half of them take 11 s and more.
    assert statistics.median(took) < 10, took


async def test_a_node_that_slurm_stops_is_given_to_no_job_before_it_is_powered_down(
    slurmctld: Slurmctld,
) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    await fresh(target)
    await target.write(["power-0"], "POWER_UP")
    await target.until_node("power-0", "powering up", states_of.is_powering_up)
    await target.write(["power-0"], "POWER_DOWN_FORCE")
    await target.until_node("power-0", "powering down", lambda words: "POWERING_DOWN" in words)
    job = await target.jobs.start("power-0")
    waited = 0

    async def configuring() -> bool:
        nonlocal waited
        given = "RUNNING" in (await target.call(requests.get_job(job))).states
        stops = "POWERING_DOWN" in (await target.node("power-0")).states
        assert not (given and stops)
        waited += stops
        return given

    await target.until("the job to get the node", configuring)
    assert waited
    await target.until_node("power-0", "powering up", states_of.is_powering_up)
    await target.call(requests.cancel_job(job))


async def test_a_job_leaves_closed_nodes_for_others_at_once_and_the_closure_ends_in_time(
    slurmctld: Slurmctld,
) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    await fresh(target)
    await target.call(protocol.delete_node("power-1"))
    dear = "State=CLOUD CPUs=2 RealMemory=1000 Features=dear Weight=9 SuspendTime=3600"
    await target.call(protocol.create_nodes(f"NodeName=power-1 {dear}"))
    job = slurmctld.submit({"tasks": 1, "time_limit": 5})
    await target.until_node("power-0", "powering up", states_of.is_powering_up)
    now = int(time.time())
    closing = protocol.close_nodes(
        closed_name("power"), ["power-0"], start_time=now - 60, end_time=now + 20
    )
    await target.call(closing)
    await target.write(["power-0"], "POWER_DOWN_FORCE")
    await target.call(protocol.start_now(job))

    async def on(number: int, node: str) -> bool:
        found = await target.call(requests.get_job(number))
        return found.nodes == node and "RUNNING" in found.states

    await target.until("the job to get the other node", lambda: on(job, "power-1"))
    cheap = slurmctld.submit({"tasks": 1, "time_limit": 5, "constraints": "contract"})
    await target.until("the closure to end", lambda: on(cheap, "power-0"))
    assert time.time() >= now + 20
    for number in (job, cheap):
        await target.call(requests.cancel_job(number))


async def test_a_job_begins_as_soon_as_all_of_its_nodes_have_registered_and_not_before(
    slurmctld: Slurmctld,
) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    record = "State=CLOUD CPUs=1 RealMemory=1000 SuspendTime=3600"
    await fresh(target, conf=record)
    await target.call(protocol.delete_node("power-1"))
    other = f"NodeName=power-1 Port={ports.POWER_SAVING + 6} {record}"
    await target.call(protocol.create_nodes(other))
    job = slurmctld.submit({"tasks": 2, "minimum_nodes": 2, "maximum_nodes": 2, "time_limit": 5})
    for name in target.nodes:
        await target.until_node(name, "powering up", states_of.is_powering_up)
    with simulated_nodes.worker(slurmctld, "power-0", 0):
        # The first node is that of the batch script, for which alone slurmctld waits otherwise.
        await target.until_node("power-0", "up", UNUSABLE.isdisjoint)
        assert not await has_started(target, job)
        with simulated_nodes.worker(slurmctld, "power-1", 0):
            await target.until_node("power-1", "up", UNUSABLE.isdisjoint)
            up = time.monotonic()
            await target.until("the job to begin", lambda: has_started(target, job))
            # slurmctld's own test runs each 30 s.
            assert time.monotonic() - up < 10
            await target.call(requests.cancel_job(job))
            for name in target.nodes:
                await target.until_node(
                    name, "without a job", lambda words: not states_of.is_busy(words)
                )


async def test_a_worker_with_fewer_gpus_than_its_record_is_drained_until_its_record_is_replaced(
    slurmctld: Slurmctld,
) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    gpus = {"tres_per_node": "gres/gpu:h100:2"}
    record = (
        "State=CLOUD CPUs=1 RealMemory=1000 SuspendTime=3600 Gres=gpu:h100:{0} "
        "GresConf=name=gpu,type=h100,count={0}"
    )
    await fresh(target, conf=record.format(4))
    job = slurmctld.submit({"tasks": 1, "time_limit": 5, **gpus})
    await target.until_node("power-0", "powering up for a GPU job", states_of.is_powering_up)
    with simulated_nodes.worker(slurmctld, "power-0", 2):
        small = await target.until_node("power-0", "drained", states_of.is_drained)
        assert has_less_than_its_record(small)
        assert small.reason == "gres/gpu count reported lower than configured (2 < 4)"
        await until_pending(target, job)
        await target.call(requests.cancel_job(job))
        await target.write(["power-0"], "POWER_DOWN")
        stopped = await target.until_node("power-0", "powered down", states_of.is_powered_down)
        assert has_less_than_its_record(stopped)
        assert not states_of.is_drain(stopped.states)
    await target.call(protocol.delete_node("power-0"))
    await target.call(protocol.create_nodes(f"NodeName=power-0 {record.format(2)}"))
    again = slurmctld.submit({"tasks": 1, "time_limit": 5, "required_nodes": ["power-0"], **gpus})
    await target.until_node("power-0", "powering up again", states_of.is_powering_up)
    with simulated_nodes.worker(slurmctld, "power-0", 2):
        await target.until_node("power-0", "up", UNUSABLE.isdisjoint)
        assert not states_of.is_drain((await target.node("power-0")).states)
        await target.call(requests.cancel_job(again))
        # Without slurmd, the node would be completing for long.
        await target.until_node(
            "power-0", "without a job", lambda words: not states_of.is_busy(words)
        )


async def test_a_node_is_up_before_the_planned_start_of_its_job(slurmctld: Slurmctld) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    record = "State=CLOUD CPUs=1 RealMemory=1000 Features=power"
    await fresh(target, conf=record)
    await target.call(protocol.delete_node("power-1"))
    await target.call(
        protocol.create_nodes(f"NodeName=power-1 Port={ports.POWER_SAVING + 6} {record}")
    )
    # So late is the planned start of the other one.
    before = slurmctld.submit({"tasks": 1, "time_limit": 5, "required_nodes": ["power-0"]})
    saving = {
        "enabled": True,
        "node": "CPUs=1 RealMemory=1000",
        "idleSeconds": 5,
        "startAheadSeconds": 50,
    }
    nodeset = builders.nodeset("power", replicas=2, powerSaving=saving)
    line, _ = power_policy.line(nodeset)
    await target.until_node("power-0", "powering up", states_of.is_powering_up)
    with simulated_nodes.worker(slurmctld, "power-0", 0):
        await target.until_node("power-0", "up", UNUSABLE.isdisjoint)
        job = slurmctld.submit(
            {"tasks": 2, "minimum_nodes": 2, "maximum_nodes": 2, "time_limit": 1}
        )
        await target.until_node("power-1", "planned for the job", lambda words: "PLANNED" in words)

        def wanted(now: float) -> tuple[str, ...]:
            """The nodes that the operator asks Slurm to power up."""
            jobs = slurmctld.call(protocol.get_jobs())
            assert jobs is not None
            view = SlurmView({node.name: node for node in slurmctld.nodes()}, None)
            pods = DesiredPods("slurm", 2, "", ordinals=frozenset(), slots=2)
            answers: dict[needs.Need, needs.Answer] = {
                needs.Jobs(): needs.Known(needs.JobList(jobs.jobs, 0.0))
            }
            observed = Observed((), view, answers=answers)
            return power_policy.plan(
                Desired(nodeset, pods, record_line=line), observed, Memory(), now
            ).start

        planned = (await planned_job(target, job)).start_time
        assert wanted(planned - 60.0) == ()
        assert wanted(planned - 40.0) == ("power-1",)
        await target.write(["power-1"], "POWER_UP")
        await target.until_node("power-1", "powering up", states_of.is_powering_up)
        with simulated_nodes.worker(slurmctld, "power-1", 0):
            await target.until_node("power-1", "up", UNUSABLE.isdisjoint)
            assert time.time() < planned
            # By that, the operator keeps an idle node up.
            await target.until_node("power-1", "planned for", lambda words: "PLANNED" in words)
            await target.call(requests.cancel_job(before))
            await target.until("the planned job to start", lambda: has_started(target, job))
            await target.call(requests.cancel_job(job))
            for name in target.nodes:
                await target.until_node(
                    name, "without a job", lambda words: not states_of.is_busy(words)
                )


async def planned_job(slurm: Target, number: int) -> Job:
    """The job, with the planned start that Slurm shows."""
    jobs = await slurm.call(protocol.get_jobs())
    assert jobs is not None
    [found] = [job for job in jobs.jobs if job.job_id == number]
    assert found.planned_names() == ["power-0", "power-1"]
    return found


async def has_started(slurm: Target, number: int) -> bool:
    """Whether a job runs, and waits for no node."""
    found = (await slurm.call(requests.get_job(number))).states
    return "RUNNING" in found and "CONFIGURING" not in found
