"""Slurm's power saving: what a real slurmctld does, and workers that it starts and stops on a real cluster."""

import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sidecars.policy.nodeset import needs
from sidecars.policy.nodeset import power as power_policy
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.records import Desired, DesiredPods, Observed, SlurmView
from sidecars.slurm import protocol
from sidecars.slurm import states as states_of
from sidecars.slurm.owners import has_less_than_its_record
from sidecars.slurm.records import Job
from tests.contract import requests
from tests.contract.power import POWER, Scenario, fresh, until_pending
from tests.contract.target import Target
from tests.support import builders
from tests.support.real import simulated_nodes
from tests.support.real.following import REST, UNTIL_ENDED, end, job_states, kill_each, turns, without
from tests.support.real.harness import NODESET, PodWatch, Slurm, condition, until, until_equal
from tests.support.real.kills import OPERATOR, SLURMCTLD, SLURMRESTD, stop_operator
from tests.support.real.simulated_nodes import Slurmctld

pytestmark = pytest.mark.timeout(600)

KIND = "nodesets.slinky.slurm.net"
SAVING = {"enabled": True, "idleSeconds": 15, "startSeconds": 150, "capacityWaitSeconds": 5, "retrySeconds": 30}
SCRIPT = "#!/bin/sh\nsleep 5\n"
ABSENT = "127.0.0.1:1/absent:26.05"
"""An image of a registry that doesn't answer."""
SUSPENDED = "SuspendExcStates=EXTERNAL,DRAIN,FAIL,MAINTENANCE,PLANNED,RESERVED\n"  # as the operator composes it
CONF = f"PartitionName=all Nodes=ALL Default=YES State=UP\nSuspendTimeout=3\n{SUSPENDED}"
UNUSABLE = frozenset({"POWERING_UP", "POWERED_DOWN", "NOT_RESPONDING"})


@dataclasses.dataclass(frozen=True)
class SubmittedJobs:
    """Jobs of a slurmctld without slurmd."""

    slurmctld: Slurmctld

    async def start(self, node: str) -> int:
        """As `Jobs.start`."""
        return self.slurmctld.submit({"tasks": 1, "cpus_per_task": 1, "time_limit": 5, "required_nodes": [node]})

    async def submit_pending(self, *, exclusive: bool = False) -> int:
        """As `Jobs.submit_pending`."""
        shared = {"shared": ["none"]} if exclusive else {}
        return self.slurmctld.submit({"tasks": 1, "hold": True, **shared})

    async def suspend(self, job_id: int) -> None:
        """No job of these nodes ever runs."""
        raise NotImplementedError(job_id)


@pytest.fixture(scope="module")
def slurmctld(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurmctld]:
    """One without nodes."""
    with simulated_nodes.running(tmp_path_factory.mktemp("power"), CONF, "", 6) as found:
        yield found


@pytest.mark.parametrize("scenario", POWER, ids=lambda scenario: scenario.__name__)
async def test_real_slurm_keeps_the_contract_of_power_saving(slurmctld: Slurmctld, scenario: Scenario) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    await scenario(target)


async def test_a_worker_with_fewer_gpus_than_its_record_is_drained_until_its_record_is_replaced(
    slurmctld: Slurmctld,
) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    gpus = {"tres_per_node": "gres/gpu:h100:2"}
    record = (
        "State=CLOUD CPUs=1 RealMemory=1000 SuspendTime=3600 Gres=gpu:h100:{0} GresConf=name=gpu,type=h100,count={0}"
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
        await target.until_node("power-0", "without a job", lambda words: not states_of.is_busy(words))


async def test_a_node_is_up_before_the_planned_start_of_its_job(slurmctld: Slurmctld) -> None:
    target = Target(slurmctld.url, slurmctld.key, ("power-0", "power-1"), SubmittedJobs(slurmctld))
    record = "State=CLOUD CPUs=1 RealMemory=1000 Features=power SuspendTime=5"
    await fresh(target, conf=record)
    await target.call(protocol.delete_node("power-1"))
    await target.call(protocol.create_nodes(f"NodeName=power-1 Port=6819 {record}"))
    before = slurmctld.submit({"tasks": 1, "time_limit": 1, "required_nodes": ["power-0"]})
    saving = {"enabled": True, "node": "CPUs=1 RealMemory=1000", "idleSeconds": 5, "startAheadSeconds": 50}
    nodeset = builders.nodeset("power", replicas=2, powerSaving=saving)
    lines, _ = power_policy.lines(nodeset)
    await target.until_node("power-0", "powering up", states_of.is_powering_up)
    with simulated_nodes.worker(slurmctld, "power-0", 0):
        await target.until_node("power-0", "up", UNUSABLE.isdisjoint)
        job = slurmctld.submit({"tasks": 2, "minimum_nodes": 2, "maximum_nodes": 2, "time_limit": 1})
        await target.until_node("power-1", "planned for the job", lambda words: "PLANNED" in words)

        def wanted(now: float) -> tuple[str, ...]:
            """The nodes that the operator asks Slurm to power up."""
            jobs = slurmctld.call(protocol.get_jobs())
            assert jobs is not None
            view = SlurmView({node.name: node for node in slurmctld.nodes()}, None)
            pods = DesiredPods("slurm", 2, "", ordinals=frozenset(), slots=2)
            answers: dict[needs.Need, needs.Answer] = {needs.Jobs(): needs.Known(needs.JobList(jobs.jobs, 0.0))}
            observed = Observed((), view, answers=answers)
            return power_policy.plan(Desired(nodeset, pods, record_lines=lines), observed, Memory(), now).start

        planned = (await planned_job(target, job)).start_time
        assert wanted(planned - 60.0) == ()
        assert wanted(planned - 40.0) == ("power-1",)
        await target.write(["power-1"], "POWER_UP")
        await target.until_node("power-1", "powering up", states_of.is_powering_up)
        with simulated_nodes.worker(slurmctld, "power-1", 0):
            await target.until_node("power-1", "up", UNUSABLE.isdisjoint)
            up = time.time()
            assert up < planned

            async def idled() -> bool:
                """Whether it was up for longer than its SuspendTime: a planned node isn't powered down."""
                assert not states_of.is_powered_down((await target.node("power-1")).states)
                return time.time() > up + 15

            await target.until("three times the SuspendTime to pass", idled)
            await target.call(requests.cancel_job(before))
            await target.until("the planned job to start", lambda: has_started(target, job))
            await target.call(requests.cancel_job(job))
            for name in target.nodes:
                await target.until_node(name, "without a job", lambda words: not states_of.is_busy(words))


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


# --- on a real cluster


def create(slurm: Slurm, name: str, saving: dict[str, Any], *, image: str = "", **template: Any) -> None:
    """A NodeSet of two nodes like the chart's, with a partition of its name. Changes one that exists."""
    spec = slurm.kubernetes.get("-n", "slurm", KIND, NODESET)["spec"]
    template = {**spec["template"], "spec": {**spec["template"].get("spec", {}), "hostname": f"{name}-", **template}}
    partition = {"enabled": True, "config": "State=UP"}
    spec |= {"replicas": 2, "template": template, "partition": partition, "powerSaving": SAVING | saving}
    if image:
        spec["slurmd"] = {**spec.get("slurmd", {}), "image": image}
    # Its partition isn't to stay for the minutes for which Slurm keeps ended jobs.
    spec["forceRemoval"] = True
    metadata = {"name": name, "namespace": "slurm"}
    nodeset = {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "metadata": metadata, "spec": spec}
    slurm.kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(nodeset))


def states(slurm: Slurm, name: str) -> list[str]:
    """The states of a NodeSet's nodes, as `sinfo` abbreviates them (`idle~`: powered down)."""
    return slurm.login("sinfo", "-h", "-N", "-p", name, "-o", "%t").split()


def pods(slurm: Slurm, name: str) -> list[str]:
    """The worker pods of a NodeSet."""
    return [pod for pod in slurm.pods() if pod.startswith(f"{name}-")]


def until_powered_down(slurm: Slurm, name: str) -> None:
    """Wait until Slurm has both nodes, and no pod runs."""
    until_equal(
        f"two powered-down nodes of {name} and no pod",
        lambda: (states(slurm, name), pods(slurm, name)),
        (["idle~", "idle~"], []),
        240,
    )


def until_completed(slurm: Slurm, job: int) -> dict[str, str]:
    """Wait until the job has ended; it must have completed."""
    ended = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}
    until(f"job {job} to end", lambda: slurm.job(job)["JobState"] in ended, 240)
    found = slurm.job(job)
    assert found["JobState"] == "COMPLETED", found
    return found


@pytest.fixture(scope="module")
def power(slurm: Slurm) -> Iterator[Slurm]:
    """With a NodeSet `power` whose workers are powered down. Nobody has declared what they offer."""
    create(slurm, "power", {"price": 5})
    try:
        until_powered_down(slurm, "power")
        yield slurm
    finally:
        slurm.kubernetes.kubectl("-n", "slurm", "delete", KIND, "power", "--timeout=180s", timeout=200)
        slurm.until_idle(2)


def test_slurm_starts_workers_for_jobs_and_stops_them_and_the_nodes_stay(power: Slurm) -> None:

    def reason() -> str:
        return str(condition(power.kubernetes.get("-n", "slurm", KIND, "power"), "PowerSaving").get("reason"))

    until_equal("the NodeSet to follow Slurm", reason, "Following", 60)
    with power.watching_pods() as watch:
        jobs = [power.submit(SCRIPT, "-p", "power", "--exclusive") for _ in range(2)]
        for job in jobs:
            assert until_completed(power, job)["Restarts"] == "0"
    started = {pod["metadata"]["name"] for pod in watch.history}
    assert {"power-0", "power-1"} <= started
    until_powered_down(power, "power")
    # And once more, by the same records.
    assert until_completed(power, power.submit(SCRIPT, "-p", "power"))["Restarts"] == "0"
    until_powered_down(power, "power")


def test_a_request_of_slurms_is_fulfilled_when_the_operator_is_back(power: Slurm) -> None:
    try:
        stop_operator(power.kubernetes)
        job = power.submit(SCRIPT, "-p", "power")
        until("Slurm to start a node", lambda: any(it.endswith("#") for it in states(power, "power")), 90)
        assert pods(power, "power") == []
    finally:
        power.kubernetes.kubectl("-n", "slinky", "scale", "deployment", "slurm-operator", "--replicas=1")
    assert until_completed(power, job)["Restarts"] == "0"
    until_powered_down(power, "power")


def test_nodesets_whose_pods_cant_start_give_way_within_a_minute_each_the_cheapest_first(power: Slurm) -> None:
    declared = {"node": "CPUs=1 RealMemory=500", "retrySeconds": 60}
    create(power, "full", declared, nodeSelector={"e2e": "nowhere"})
    create(power, "absent", {**declared, "price": 2}, image=ABSENT)

    def gives_way(name: str) -> str:
        found = condition(power.kubernetes.get("-n", "slurm", KIND, name), "PowerSaving")
        return str(found["message"]) if found["reason"] == "NoCapacity" else ""

    try:
        off = ["idle~", "idle~"]
        until_equal("the nodes of both", lambda: [states(power, it) for it in ("full", "absent")], [off, off], 90)
        with power.watching_pods() as watch:
            job = power.submit(SCRIPT, "-p", "all", "--constraint=full|absent|power")
            until("Slurm to try the cheapest NodeSet", lambda: bool(pods(power, "full")), 60)
            until("Slurm to try the next one", lambda: bool(pods(power, "absent")), 60)
            assert "nodes are available" in until("the first to be reported", lambda: gives_way("full"), 60)
            until("Slurm to try the last one", lambda: power.job(job).get("NodeList", "").startswith("power-"), 60)
            assert f"{ABSENT} can't be pulled" in until("the second to be reported", lambda: gives_way("absent"), 60)
            until_completed(power, job)
        # By the watch, because the next NodeSet may begin between two looks.
        tried = dict.fromkeys(pod["metadata"]["name"].rpartition("-")[0] for pod in watch.history)
        assert [it for it in tried if it in {"full", "absent", "power"}] == ["full", "absent", "power"]
        until_equal("the NodeSet to be tried again", lambda: set(states(power, "full")), {"idle~"}, 180)
        until("no pod to be left", lambda: not pods(power, "full") and not pods(power, "absent"), 60)
    finally:
        power.kubernetes.kubectl("-n", "slurm", "delete", KIND, "full", "absent", "--timeout=180s", timeout=200)


def staying(watch: PodWatch) -> list[int]:
    """How many pods of the NodeSet `power` weren't asked to go, after each change of one."""
    pods: dict[str, bool] = {}
    found = []
    for pod in watch.history:
        metadata = pod["metadata"]
        if metadata["name"].startswith("power-"):
            pods[metadata["uid"]] = "deletionTimestamp" not in metadata
            found.append(sum(pods.values()))
    return found


def test_jobs_run_to_their_end_and_workers_stay_without_data_whatever_is_killed(power: Slurm) -> None:
    kubernetes, idle_seconds = power.kubernetes, 10
    both = ["power-0", "power-1"]

    def following(reason: str) -> bool:
        return bool(condition(kubernetes.get("-n", "slurm", KIND, "power"), "PowerSaving").get("reason") == reason)

    def until_states(what: str, *wanted: set[str]) -> None:
        def look() -> bool:
            found = states(power, "power")
            return len(found) == len(wanted) and all(it in some for it, some in zip(found, wanted, strict=True))

        until(what, look, 180)

    # A running worker keeps its record, by which Slurm would stop it.
    until_powered_down(power, "power")
    create(power, "power", {"price": 5, "idleSeconds": idle_seconds, "min": 1})
    until_states("the worker that always runs", {"idle"}, {"idle~"})
    with power.watching_pods() as watch:
        wide = power.submit(UNTIL_ENDED, "-p", "power", "-N2", "--exclusive", "--no-requeue")
        until_equal("the job to run", lambda: job_states(power, wide), ["RUNNING"], 180)
        narrow = power.submit(UNTIL_ENDED, "-p", "power", "-w", "power-1", "--exclusive", "--no-requeue")
        array = power.submit("#!/bin/sh\nsleep 1\n", "-p", "power", "--array=1-4")
        kill_each(power, [SLURMCTLD], wide)
        end(power, wide)
        until_equal("the next job to run", lambda: job_states(power, narrow), ["RUNNING"], 60)
        until_equal("the array to complete", lambda: job_states(power, array), ["COMPLETED"] * 4, 60)
        idle = time.monotonic()
        kill_each(power, [SLURMRESTD, OPERATOR], narrow)
        until("a worker to be idle for longer than others are", lambda: time.monotonic() - idle > 2 * idle_seconds, 60)
        assert states(power, "power")[0] == "idle"

        with without(kubernetes, REST, lambda: following("NoAnswer")):
            end(power, narrow)
            until_states("Slurm to stop the other node", {"idle"}, {"idle%", "idle~"})
            assert sorted(pods(power, "power")) == both
        until_equal("its worker to be removed", lambda: pods(power, "power"), ["power-0"], 150)
    assert states(power, "power")[0] == "idle"
    sizes = staying(watch)
    assert turns(sizes) <= 1, sizes
    assert set(sizes) == {1, 2}

    # Slurm never stops the worker that always ran.
    create(power, "power", {"price": 5})
    until("it to be stopped", lambda: not pods(power, "power"), 120)
