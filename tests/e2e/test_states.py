"""Workers that are cordoned, lost or removed while jobs run; and an operator that is killed whatever it is doing."""

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.e2e.test_nodesets import KIND, change, marked, uids
from tests.e2e.test_nodesets import pool as pool
from tests.support.real.configuration import controller, patch, until_set
from tests.support.real.harness import NODESET, WILL_COME, CommandError, Slurm, condition, until, until_equal
from tests.support.real.kills import kill_processes, processes

LONG = 400
"""Seconds for a step while the operator is killed all the time, and each new one has to start on a busy host."""
KILLS = 5
"""How often the operator is killed at least."""
CORDONS = 20
"""How often a worker's Kubernetes node is cordoned at most, until the operator has been killed often enough."""
JOBS = 20
"""More jobs than this run meanwhile."""


def slurmctld(slurm: Slurm) -> tuple[str, int]:
    """The uid of slurmctld's pod, and how often its container has been started again."""
    pod = slurm.kubernetes.get("-n", "slurm", "pod", "slurm-controller-0")
    [container] = [it for it in pod["status"]["containerStatuses"] if it["name"] == "slurmctld"]
    return pod["metadata"]["uid"], container["restartCount"]


def until_state(slurm: Slurm, number: int, state: str, seconds: float = WILL_COME) -> None:
    until_equal(f"job {number} to be {state}", lambda: slurm.job(number)["JobState"], state, seconds)


def eviction(slurm: Slurm, pod: str) -> str:
    """Ask for the eviction of a pod as `kubectl drain` does, as a dry run; what the API server says against it."""
    wanted = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "slurm"}}
    wanted["deleteOptions"] = {"dryRun": ["All"]}
    path = f"/api/v1/namespaces/slurm/pods/{pod}/eviction"
    try:
        slurm.kubernetes.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(wanted))
    except CommandError as error:
        return str(error)
    return ""


def test_a_cordoned_machine_drains_its_workers_and_no_job_is_lost(pool: Slurm) -> None:
    number = pool.submit_until_ended("-w", "slinky-1", "--exclusive", "--no-requeue")
    until_state(pool, number, "RUNNING")
    until("the busy worker to be protected", lambda: "disruption budget" in eviction(pool, "slurm-worker-slinky-1"))
    before = uids(pool)
    machine = pool.pods()["slurm-worker-slinky-1"]["spec"]["nodeName"]
    pool.kubernetes.kubectl("cordon", machine)
    try:
        until_equal("slinky-1 to drain", lambda: pool.nodes().get("slinky-1"), "draining")
        reason = pool.login("sinfo", "-h", "-n", "slinky-1", "-o", "%E").strip()
        assert reason.startswith(f"slurm-operator: Node ({machine}) was cordoned")
        pool.end(number)
        until_equal("slinky-1 to be drained", lambda: pool.nodes().get("slinky-1"), "drained")
        until("the worker to be free to go", lambda: not eviction(pool, "slurm-worker-slinky-1"))
    finally:
        pool.kubernetes.kubectl("uncordon", machine)
    pool.until_idle(2)
    assert uids(pool) == before


def ready(slurm: Slurm) -> dict[str, Any]:
    """The condition Ready of the NodeSet."""
    return condition(slurm.kubernetes.get("-n", "slurm", KIND, NODESET), "Ready")


def reason(slurm: Slurm, node: str) -> str:
    return slurm.login("sinfo", "-h", "-N", "-n", node, "-o", "%E").split("\n")[0].strip()


def test_a_node_that_an_administrator_set_down_keeps_its_reason_and_gets_no_job(pool: Slurm) -> None:
    pool.login("scontrol", "update", "nodename=slinky-1", "state=down", "reason=bad disk")
    machines = [pool.pods()[f"slurm-worker-slinky-{number}"]["spec"]["nodeName"] for number in (1, 0)]
    try:
        until("the NodeSet to name the node", lambda: "slinky-1 (bad disk)" in ready(pool).get("message", ""))
        # The other worker shows when the operator has seen both cordons.
        for machine in machines:
            pool.kubernetes.kubectl("cordon", machine)
        until_equal("the other worker to be drained", lambda: pool.nodes()["slinky-0"], "drained")
        assert reason(pool, "slinky-1") == "bad disk"
        for machine in machines:
            pool.kubernetes.kubectl("uncordon", machine)
        until_equal("the other worker to be idle", lambda: pool.nodes()["slinky-0"], "idle")
        until_equal("slinky-1 to be drained no more", lambda: pool.nodes()["slinky-1"], "down")
        assert reason(pool, "slinky-1") == "bad disk"

        before = uids(pool)
        change(pool, slurmd=marked(f"down-{time.time()}"))
        until("both workers to be replaced", lambda: len(uids(pool)) == 2 and before.isdisjoint(uids(pool)))
        until_equal("the other worker to be idle", lambda: pool.nodes().get("slinky-0"), "idle")
        until("both pods to be ready", lambda: "slinky-1 (bad disk)" in ready(pool).get("message", ""))
        state = pool.login("scontrol", "-o", "show", "node", "slinky-1").partition(" State=")[2].split()[0]
        assert {"DOWN", "DRAIN"} <= set(state.split("+"))
        assert reason(pool, "slinky-1") == "bad disk"
    finally:
        for machine in machines:
            pool.kubernetes.kubectl("uncordon", machine)
        pool.login("scontrol", "update", "nodename=slinky-1", "state=resume")
    pool.until_idle(2)
    until_equal("the NodeSet to be ready", lambda: ready(pool).get("status"), "True")


def test_a_worker_that_slurmctld_has_set_down_after_a_reboot_is_used_again(pool: Slurm) -> None:
    def down(node: str) -> tuple[str, ...]:
        return "scontrol", "update", f"nodename={node}", "state=down", "reason=Node unexpectedly rebooted"

    pool.login(*down("slinky-1"))
    try:
        until("the NodeSet to name the node", lambda: "slinky-1 (Node unexp" in ready(pool).get("message", ""))
        # slurmctld itself sets these words as its own user (slurmctld/node_mgr.c, validate_node_specs).
        inside = ("-n", "slurm", "exec", "slurm-controller-0", "-c", "slurmctld", "--")
        pool.kubernetes.kubectl(*inside, *down("slinky-0"))
        until_equal("it to be resumed", lambda: pool.nodes()["slinky-0"], "idle")
        assert reason(pool, "slinky-0") == "none"
        assert pool.nodes()["slinky-1"] == "down"
    finally:
        pool.login("scontrol", "update", "nodename=slinky-1", "state=resume")
    pool.until_idle(2)


def test_a_worker_whose_record_an_administrator_has_deleted_is_replaced(pool: Slurm) -> None:
    before = uids(pool)
    pool.login("scontrol", "delete", "nodename=slinky-1")
    # slurmctld has run since it last listed the node, so that it can't have forgotten a job.
    until("its pod to be replaced", lambda: len(uids(pool)) == 2 and len(before - uids(pool)) == 1)
    pool.until_idle(2)


@contextmanager
def cut_off(slurm: Slurm, pod: str) -> Iterator[None]:
    """No packet of the pod reaches slurmctld; probes of the kubelet are answered."""
    controller = slurm.kubernetes.get("-n", "slurm", "pod", "slurm-controller-0")["status"]["podIP"]
    process = min(processes(slurm.pods()[pod]["metadata"]["uid"]))
    # It may end before the block does.
    with Path(f"/proc/{process}/ns/net").open() as namespace:
        inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace.fileno()}"]
        subprocess.run([*inside, "ip", "route", "add", "blackhole", f"{controller}/32"], check=True)
        try:
            yield
        finally:
            subprocess.run([*inside, "ip", "route", "del", "blackhole", f"{controller}/32"], check=True)


def test_a_worker_that_was_cut_off_for_longer_than_slurmds_timeout_is_used_again(pool: Slurm) -> None:
    before = controller(pool)["spec"].get("extraConf", "")
    patch(pool, extraConf=f"{before}\nSlurmdTimeout=12\n")
    try:
        until_set(pool, "SlurmdTimeout", "12 sec")
        with cut_off(pool, "slurm-worker-slinky-1"):
            until("Slurm to give the worker up", lambda: pool.nodes()["slinky-1"].startswith("down"))
            assert reason(pool, "slinky-1") == "Not responding"
        until_equal("the worker to be used again", lambda: pool.nodes()["slinky-1"], "idle")
        until_equal("the NodeSet to be ready", lambda: ready(pool).get("status"), "True")
    finally:
        patch(pool, extraConf=before)
    until_set(pool, "SlurmdTimeout", "300 sec")


def another_nodeset(slurm: Slurm, name: str) -> None:
    """A pool of one worker NAME-0, with a partition of its name."""
    spec = slurm.kubernetes.get("-n", "slurm", KIND, NODESET)["spec"]
    spec["template"]["spec"]["hostname"] = f"{name}-"
    spec |= {"replicas": 1, "partition": {"enabled": True, "config": "State=UP"}, "oversubscribeNode": True}
    manifest = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "NodeSet",
        "metadata": {"name": name, "namespace": "slurm"},
        "spec": spec,
    }
    slurm.kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    until_equal(f"{name}-0 to be idle", lambda: slurm.nodes().get(f"{name}-0"), "idle")


def test_a_nodeset_is_removed_while_a_job_runs_and_another_waits_there_and_slurmctld_lives_on(pool: Slurm) -> None:
    before = slurmctld(pool)
    another_nodeset(pool, "extra")
    try:
        running = pool.submit_until_ended("-p", "extra", "-w", "extra-0", "--exclusive", "--no-requeue")
        until_state(pool, running, "RUNNING")
        waiting = pool.submit("#!/bin/sh\nsleep 1\n", "-p", "extra", "--exclusive")
        pool.kubernetes.kubectl("-n", "slurm", "delete", KIND, "extra", "--wait=false")

        def ready() -> dict[str, Any]:
            return condition(pool.kubernetes.get("-n", "slurm", KIND, "extra"), "Ready")

        until_equal("the NodeSet to wait for the node", lambda: ready().get("reason"), "Draining")
        pool.end(running)
        said = f"({waiting}) would be lost"
        until("the NodeSet to name the job", lambda: ready()["reason"] == "JobsRefer" and said in ready()["message"])
        assert "extra-0" not in pool.nodes()
        assert pool.job(waiting)["JobState"] == "PENDING"
        assert "State=INACTIVE" in pool.login("scontrol", "show", "partition", "extra")

        # Other jobs run as ever while it waits; and forced, records of jobs that name the partition are left behind.
        works(pool)
    finally:
        patch = '{"spec":{"forceRemoval":true}}'
        pool.kubernetes.kubectl("-n", "slurm", "patch", KIND, "extra", "--type=merge", f"--patch={patch}")
    until("the NodeSet to be gone", lambda: not _exists(pool, "extra"))
    until("the partition to be gone", lambda: "PartitionName=extra" not in pool.login("scontrol", "show", "partition"))
    until("the waiting job to have ended", lambda: pool.job(waiting)["JobState"] not in {"PENDING", "RUNNING"})
    assert pool.job(running)["JobState"] == "COMPLETED"
    works(pool)
    assert slurmctld(pool) == before


def works(slurm: Slurm) -> None:
    """A job elsewhere. Not srun: it speaks to slurmd itself, which may be reading a new configuration just then."""
    until_state(slurm, slurm.submit("#!/bin/sh\ntrue\n", "-p", "slinky", "-N1"), "COMPLETED")


def _exists(slurm: Slurm, name: str) -> bool:
    return name in {item["metadata"]["name"] for item in slurm.kubernetes.items("-n", "slurm", KIND)}


def test_a_pod_that_is_lost_with_a_job_on_it_is_healed(pool: Slurm) -> None:
    number = pool.submit_until_ended("-w", "slinky-1", "--exclusive")
    until_state(pool, number, "RUNNING")
    before = pool.pods()["slurm-worker-slinky-1"]["metadata"]["uid"]
    kill_processes(before)
    pool.kubernetes.kubectl("-n", "slurm", "delete", "pod", "slurm-worker-slinky-1", "--force", "--grace-period=0")

    def back() -> bool:
        pod = pool.pods().get("slurm-worker-slinky-1")
        return pod is not None and pod["metadata"]["uid"] != before and pool.nodes().get("slinky-1") == "idle"

    until("a successor to be idle", back)
    assert pool.login("srun", "-w", "slinky-1", "hostname").strip() == "slinky-1"
    job = pool.job(number)
    assert (job["JobState"], job["Restarts"]) == ("PENDING", "1"), "it is back in the queue"
    pool.login("scancel", str(number))


def operator_leads(slurm: Slurm) -> str | None:
    """The operator's pod, once it holds the lease."""
    holders = [it["spec"].get("holderIdentity", "") for it in slurm.kubernetes.items("-n", "slinky", "lease")]
    pods = slurm.kubernetes.items("-n", "slinky", "pods", "-l", "app.kubernetes.io/name=slurm-operator")
    alive = [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return next((name for name in alive if any(holder.startswith(f"{name}_") for holder in holders)), None)


def kill_operator(slurm: Slurm, name: str) -> None:
    """End that pod's processes without a warning, and have another one take over."""
    k8s = slurm.kubernetes
    kill_processes(k8s.get("-n", "slinky", "pod", name)["metadata"]["uid"])
    # Another pod, because a kubelet waits longer before each start of the same; and without waiting for the lease of
    # one that is known to be dead.
    k8s.kubectl("-n", "slinky", "delete", "pod", name, "--force", "--grace-period=0")
    k8s.kubectl("-n", "slinky", "delete", "lease", "slurm-operator", "--ignore-not-found")


@contextmanager
def killing_the_operator(slurm: Slurm, rng: random.Random) -> Iterator[list[float]]:
    """Kill it each time it has led for a random while, as long as the block runs; when it was killed."""
    over: list[bool] = []
    killed: list[float] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not over:
                name = until("the operator to lead", lambda: operator_leads(slurm))
                due = time.monotonic() + rng.uniform(0.2, 12)
                while time.monotonic() < due and not over:
                    time.sleep(0.1)
                if not over:
                    kill_operator(slurm, name)
                    killed.append(time.time())
        except (AssertionError, OSError) as error:
            failures.append(error)

    thread = Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.append(True)
        thread.join()
    assert not failures, failures


@contextmanager
def jobs_all_the_time(slurm: Slurm) -> Iterator[Callable[[], dict[int, dict[str, str]]]]:
    """Short jobs that must not be started twice, submitted without end; gives what became of them.

    Several share a node: without a request, each would get all of its memory.
    """
    stop, name = "/tmp/e2e-enough", f"all-the-time-{time.time_ns()}"  # noqa: S108 - in the login pod
    loop = (
        f"rm -f {stop}; while [ ! -e {stop} ]; do "
        f"sbatch -Q -J {name} --mem=1 --no-requeue -o /dev/null --wrap 'sleep 4'; sleep 2; done"
    )
    thread = Thread(target=lambda: slurm.login("sh", "-c", loop, timeout=1450))
    thread.start()

    def found() -> dict[int, dict[str, str]]:
        lines = slurm.login("scontrol", "-o", "show", "jobs").splitlines()
        fields = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
        return {int(it["JobId"]): it for it in fields if it.get("JobName") == name}

    try:
        yield found
    finally:
        slurm.login("touch", stop)
        thread.join()


def cordon_and_uncordon(slurm: Slurm) -> None:
    """The Kubernetes node of slinky-0, until Slurm has drained it, and back."""
    [worker] = [pod for pod in slurm.pods().values() if pod["metadata"]["name"].endswith("-0")]
    machine = worker["spec"]["nodeName"]
    slurm.kubernetes.kubectl("cordon", machine)
    try:
        until("slinky-0 to be drained", lambda: slurm.nodes().get("slinky-0") in {"draining", "drained"}, LONG)
    finally:
        slurm.kubernetes.kubectl("uncordon", machine)
    until("slinky-0 to be back", lambda: "drain" not in slurm.nodes().get("slinky-0", "drain"), LONG)


@pytest.mark.timeout(1500)
def test_no_job_fails_while_the_operator_is_killed_at_random_whatever_it_is_doing(
    pool: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, said = time.monotonic(), []

    def phase(name: str) -> None:
        said.append(f"{time.monotonic() - begun:.0f} s {name}")

    seed = int(os.environ.get("SEED", "6"))
    started = slurmctld(pool)
    with jobs_all_the_time(pool) as jobs:
        with killing_the_operator(pool, random.Random(seed)) as killed:  # noqa: S311 - guards nothing
            phase("rolling update")
            before = uids(pool)
            change(pool, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
            change(pool, slurmd=marked(f"killed-{time.time()}"))
            until("both workers to be replaced", lambda: len(uids(pool)) == 2 and before.isdisjoint(uids(pool)), LONG)
            phase("scale-in")
            pool.scale(1)
            until_equal("one worker to be left", lambda: len(pool.pods()), 1, LONG)
            pool.scale(2)
            until_equal("two workers in Slurm", lambda: len(pool.nodes()), 2, LONG)
            for number in range(CORDONS):
                if number == 0 or len(killed) < KILLS:
                    phase("a cordon")
                    cordon_and_uncordon(pool)
        assert len(killed) >= KILLS
        until(f"more than {JOBS} jobs", lambda: len(jobs()) > JOBS)
    ended = {"COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "REQUEUED"}
    until("every job to have ended", lambda: {it["JobState"] for it in jobs().values()} <= ended, LONG)
    done = jobs()
    assert {number: it for number, it in done.items() if it["JobState"] != "COMPLETED"} == {}
    assert len(done) > JOBS
    assert {it["Restarts"] for it in done.values()} == {"0"}
    assert slurmctld(pool) == started
    pool.until_idle(2, LONG)
    with capsys.disabled():
        took = time.monotonic() - begun
        print(
            f"\nseed {seed}: {len(done)} jobs, operator killed {len(killed)} times in {took:.0f} s; {', '.join(said)}"
        )
