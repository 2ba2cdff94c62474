"""Workers that are cordoned, lost or removed while jobs run; and an operator that is killed
whatever it is doing.
"""

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
from tests.e2e.test_nodesets import own_nodeset as own_nodeset
from tests.support.real.configuration import controller, patch, until_set
from tests.support.real.harness import (
    NODESET,
    WILL_COME,
    CommandError,
    Slurm,
    condition,
    until,
    until_equal,
)
from tests.support.real.kills import kill_processes, processes

LONG = 400
"""Seconds for a step while the operator is killed all the time, and each new one has to start on a
busy host.
"""
KILLS = 5
"""How often the operator is killed at least."""
CORDONS = 20
"""How often a worker's Kubernetes node is cordoned at most, until the operator has been killed
often enough.
"""
JOBS = 20
"""More jobs than this run meanwhile."""


def slurmctld(slurm: Slurm) -> tuple[str, int]:
    """The uid of slurmctld's pod, and how often its container has been started again."""
    pod = slurm.kubernetes.get("-n", "slurm", "pod", "slurm-controller-0")
    [container] = [it for it in pod["status"]["containerStatuses"] if it["name"] == "slurmctld"]
    return pod["metadata"]["uid"], container["restartCount"]


def until_state(slurm: Slurm, number: int, state: str, seconds: float = WILL_COME) -> None:
    until_equal(
        f"job {number} to be {state}", lambda: slurm.job(number)["JobState"], state, seconds
    )


def eviction(slurm: Slurm, pod: str) -> str:
    """Ask for the eviction of a pod as `kubectl drain` does, as a dry run; what the API server
    answers against it.
    """
    wanted = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "slurm"},
    }
    wanted["deleteOptions"] = {"dryRun": ["All"]}
    path = f"/api/v1/namespaces/slurm/pods/{pod}/eviction"
    try:
        slurm.kubernetes.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(wanted))
    except CommandError as error:
        return str(error)
    return ""


def test_a_cordoned_kubernetes_node_drains_its_workers_and_no_job_is_lost(
    own_nodeset: Slurm,
) -> None:
    number = own_nodeset.submit_until_ended("-w", "slinky-1", "--exclusive", "--no-requeue")
    until_state(own_nodeset, number, "RUNNING")
    until(
        "the busy worker to be protected",
        lambda: "disruption budget" in eviction(own_nodeset, "slurm-worker-slinky-1"),
    )
    before = uids(own_nodeset)
    kube_node = own_nodeset.pods()["slurm-worker-slinky-1"]["spec"]["nodeName"]
    own_nodeset.kubernetes.kubectl("cordon", kube_node)
    try:
        until_equal("slinky-1 to drain", lambda: own_nodeset.nodes().get("slinky-1"), "draining")
        reason = own_nodeset.login("sinfo", "-h", "-n", "slinky-1", "-o", "%E").strip()
        assert reason.startswith(f"slurm-operator: Node ({kube_node}) was cordoned")
        own_nodeset.end(number)
        until_equal(
            "slinky-1 to be drained", lambda: own_nodeset.nodes().get("slinky-1"), "drained"
        )
        until(
            "the worker to be free to go",
            lambda: not eviction(own_nodeset, "slurm-worker-slinky-1"),
        )
    finally:
        own_nodeset.kubernetes.kubectl("uncordon", kube_node)
    own_nodeset.until_idle(2)
    assert uids(own_nodeset) == before


def ready(slurm: Slurm) -> dict[str, Any]:
    """The condition Ready of the NodeSet."""
    return condition(slurm.kubernetes.get("-n", "slurm", KIND, NODESET), "Ready")


def reason(slurm: Slurm, node: str) -> str:
    return slurm.login("sinfo", "-h", "-N", "-n", node, "-o", "%E").split("\n")[0].strip()


def test_a_node_that_an_administrator_set_down_keeps_its_reason_and_gets_no_job(
    own_nodeset: Slurm,
) -> None:
    own_nodeset.login("scontrol", "update", "nodename=slinky-1", "state=down", "reason=bad disk")
    kube_nodes = [
        own_nodeset.pods()[f"slurm-worker-slinky-{number}"]["spec"]["nodeName"] for number in (1, 0)
    ]
    try:
        until(
            "the NodeSet to name the node",
            lambda: "slinky-1 (bad disk)" in ready(own_nodeset).get("message", ""),
        )
        # The other worker shows when the operator has seen both cordons.
        for kube_node in kube_nodes:
            own_nodeset.kubernetes.kubectl("cordon", kube_node)
        until_equal(
            "the other worker to be drained", lambda: own_nodeset.nodes()["slinky-0"], "drained"
        )
        assert reason(own_nodeset, "slinky-1") == "bad disk"
        for kube_node in kube_nodes:
            own_nodeset.kubernetes.kubectl("uncordon", kube_node)
        until_equal("the other worker to be idle", lambda: own_nodeset.nodes()["slinky-0"], "idle")
        until_equal(
            "slinky-1 to be drained no more", lambda: own_nodeset.nodes()["slinky-1"], "down"
        )
        assert reason(own_nodeset, "slinky-1") == "bad disk"

        before = uids(own_nodeset)
        change(own_nodeset, slurmd=marked(f"down-{time.time()}"))
        until(
            "both workers to be replaced",
            lambda: len(uids(own_nodeset)) == 2 and before.isdisjoint(uids(own_nodeset)),
        )
        until_equal(
            "the other worker to be idle", lambda: own_nodeset.nodes().get("slinky-0"), "idle"
        )
        until(
            "both pods to be ready",
            lambda: "slinky-1 (bad disk)" in ready(own_nodeset).get("message", ""),
        )
        state = (
            own_nodeset.login("scontrol", "-o", "show", "node", "slinky-1")
            .partition(" State=")[2]
            .split()[0]
        )
        assert {"DOWN", "DRAIN"} <= set(state.split("+"))
        assert reason(own_nodeset, "slinky-1") == "bad disk"
    finally:
        for kube_node in kube_nodes:
            own_nodeset.kubernetes.kubectl("uncordon", kube_node)
        own_nodeset.login("scontrol", "update", "nodename=slinky-1", "state=resume")
    own_nodeset.until_idle(2)
    until_equal("the NodeSet to be ready", lambda: ready(own_nodeset).get("status"), "True")


def test_a_worker_that_slurmctld_has_set_down_after_a_reboot_is_used_again(
    own_nodeset: Slurm,
) -> None:
    def down(node: str) -> tuple[str, ...]:
        return (
            "scontrol",
            "update",
            f"nodename={node}",
            "state=down",
            "reason=Node unexpectedly rebooted",
        )

    own_nodeset.login(*down("slinky-1"))
    try:
        until(
            "the NodeSet to name the node",
            lambda: "slinky-1 (Node unexp" in ready(own_nodeset).get("message", ""),
        )
        # slurmctld itself sets these words as its own user (slurmctld/node_mgr.c,
        # validate_node_specs).
        inside = ("-n", "slurm", "exec", "slurm-controller-0", "-c", "slurmctld", "--")
        own_nodeset.kubernetes.kubectl(*inside, *down("slinky-0"))
        until_equal("it to be resumed", lambda: own_nodeset.nodes()["slinky-0"], "idle")
        assert reason(own_nodeset, "slinky-0") == "none"
        assert own_nodeset.nodes()["slinky-1"] == "down"
    finally:
        own_nodeset.login("scontrol", "update", "nodename=slinky-1", "state=resume")
    own_nodeset.until_idle(2)


def test_a_worker_whose_record_an_administrator_has_deleted_is_replaced(own_nodeset: Slurm) -> None:
    before = uids(own_nodeset)
    own_nodeset.login("scontrol", "delete", "nodename=slinky-1")
    # slurmctld has run since it last listed the node, so that it can't have forgotten a job.
    until(
        "its pod to be replaced",
        lambda: len(uids(own_nodeset)) == 2 and len(before - uids(own_nodeset)) == 1,
    )
    own_nodeset.until_idle(2)


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
            subprocess.run(
                [*inside, "ip", "route", "del", "blackhole", f"{controller}/32"], check=True
            )


def test_a_worker_that_was_cut_off_for_longer_than_slurmds_timeout_is_used_again(
    own_nodeset: Slurm,
) -> None:
    before = controller(own_nodeset)["spec"].get("extraConf", "")
    patch(own_nodeset, extraConf=f"{before}\nSlurmdTimeout=12\n")
    try:
        until_set(own_nodeset, "SlurmdTimeout", "12 sec")
        with cut_off(own_nodeset, "slurm-worker-slinky-1"):
            until(
                "Slurm to give the worker up",
                lambda: own_nodeset.nodes()["slinky-1"].startswith("down"),
            )
            assert reason(own_nodeset, "slinky-1") == "Not responding"
        until_equal("the worker to be used again", lambda: own_nodeset.nodes()["slinky-1"], "idle")
        until_equal("the NodeSet to be ready", lambda: ready(own_nodeset).get("status"), "True")
    finally:
        patch(own_nodeset, extraConf=before)
    until_set(own_nodeset, "SlurmdTimeout", "300 sec")


def another_nodeset(slurm: Slurm, name: str) -> None:
    """A NodeSet of one worker NAME-0, with a partition of its name."""
    spec = slurm.kubernetes.get("-n", "slurm", KIND, NODESET)["spec"]
    spec["template"]["spec"]["hostname"] = f"{name}-"
    spec |= {
        "replicas": 1,
        "partition": {"enabled": True, "config": "State=UP"},
        "oversubscribeNode": True,
    }
    manifest = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "NodeSet",
        "metadata": {"name": name, "namespace": "slurm"},
        "spec": spec,
    }
    slurm.kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    until_equal(f"{name}-0 to be idle", lambda: slurm.nodes().get(f"{name}-0"), "idle")


def test_a_nodeset_is_removed_while_a_job_runs_and_another_waits_there_and_slurmctld_lives_on(
    own_nodeset: Slurm,
) -> None:
    before = slurmctld(own_nodeset)
    another_nodeset(own_nodeset, "extra")
    try:
        running = own_nodeset.submit_until_ended(
            "-p", "extra", "-w", "extra-0", "--exclusive", "--no-requeue"
        )
        until_state(own_nodeset, running, "RUNNING")
        waiting = own_nodeset.submit("#!/bin/sh\nsleep 1\n", "-p", "extra", "--exclusive")
        own_nodeset.kubernetes.kubectl("-n", "slurm", "delete", KIND, "extra", "--wait=false")

        def ready() -> dict[str, Any]:
            return condition(own_nodeset.kubernetes.get("-n", "slurm", KIND, "extra"), "Ready")

        until_equal("the NodeSet to wait for the node", lambda: ready().get("reason"), "Draining")
        own_nodeset.end(running)
        message = f"({waiting}) would be lost"
        until(
            "the NodeSet to name the job",
            lambda: ready()["reason"] == "JobsRefer" and message in ready()["message"],
        )
        assert "extra-0" not in own_nodeset.nodes()
        assert own_nodeset.job(waiting)["JobState"] == "PENDING"
        assert "State=INACTIVE" in own_nodeset.login("scontrol", "show", "partition", "extra")

        # Other jobs run as ever while it waits; and forced, records of jobs that name the partition
        # are left behind.
        works(own_nodeset)
    finally:
        patch = '{"spec":{"forceRemoval":true}}'
        own_nodeset.kubernetes.kubectl(
            "-n", "slurm", "patch", KIND, "extra", "--type=merge", f"--patch={patch}"
        )
    until("the NodeSet to be gone", lambda: not _exists(own_nodeset, "extra"))
    until(
        "the partition to be gone",
        lambda: "PartitionName=extra" not in own_nodeset.login("scontrol", "show", "partition"),
    )
    until(
        "the waiting job to have ended",
        lambda: own_nodeset.job(waiting)["JobState"] not in {"PENDING", "RUNNING"},
    )
    assert own_nodeset.job(running)["JobState"] == "COMPLETED"
    works(own_nodeset)
    assert slurmctld(own_nodeset) == before


def works(slurm: Slurm) -> None:
    """A job elsewhere. Not srun: it speaks to slurmd itself, which may be reading a new
    configuration just then.
    """
    until_state(slurm, slurm.submit("#!/bin/sh\ntrue\n", "-p", "slinky", "-N1"), "COMPLETED")


def _exists(slurm: Slurm, name: str) -> bool:
    return name in {
        item["metadata"]["name"] for item in slurm.kubernetes.items("-n", "slurm", KIND)
    }


def test_a_pod_that_is_lost_with_a_job_on_it_is_healed(own_nodeset: Slurm) -> None:
    number = own_nodeset.submit_until_ended("-w", "slinky-1", "--exclusive")
    until_state(own_nodeset, number, "RUNNING")
    before = own_nodeset.pods()["slurm-worker-slinky-1"]["metadata"]["uid"]
    kill_processes(before)
    own_nodeset.kubernetes.kubectl(
        "-n", "slurm", "delete", "pod", "slurm-worker-slinky-1", "--force", "--grace-period=0"
    )

    def back() -> bool:
        pod = own_nodeset.pods().get("slurm-worker-slinky-1")
        return (
            pod is not None
            and pod["metadata"]["uid"] != before
            and own_nodeset.nodes().get("slinky-1") == "idle"
        )

    until("a successor to be idle", back)
    assert own_nodeset.login("srun", "-w", "slinky-1", "hostname").strip() == "slinky-1"
    job = own_nodeset.job(number)
    assert (job["JobState"], job["Restarts"]) == ("PENDING", "1"), "it is back in the queue"
    own_nodeset.login("scancel", str(number))


def operator_leads(slurm: Slurm) -> str | None:
    """The operator's pod, once it holds the lease."""
    holders = [
        it["spec"].get("holderIdentity", "")
        for it in slurm.kubernetes.items("-n", "slinky", "lease")
    ]
    pods = slurm.kubernetes.items(
        "-n", "slinky", "pods", "-l", "app.kubernetes.io/name=slurm-operator"
    )
    alive = [
        pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")
    ]
    return next(
        (name for name in alive if any(holder.startswith(f"{name}_") for holder in holders)), None
    )


def kill_operator(slurm: Slurm, name: str) -> None:
    """End that pod's processes without a warning, and have another one take over."""
    k8s = slurm.kubernetes
    kill_processes(k8s.get("-n", "slinky", "pod", name)["metadata"]["uid"])
    # Another pod, because a kubelet waits longer before each start of the same; and without waiting
    # for the lease of one that is known to be dead.
    k8s.kubectl("-n", "slinky", "delete", "pod", name, "--force", "--grace-period=0")
    k8s.kubectl("-n", "slinky", "delete", "lease", "slurm-operator", "--ignore-not-found")


@contextmanager
def killing_the_operator(slurm: Slurm, rng: random.Random) -> Iterator[list[float]]:
    """Kill it each time it has led for a random while, as long as the block runs; when it was
    killed.
    """
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
        fields = [
            dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines
        ]
        return {int(it["JobId"]): it for it in fields if it.get("JobName") == name}

    try:
        yield found
    finally:
        slurm.login("touch", stop)
        thread.join()


def cordon_and_uncordon(slurm: Slurm) -> None:
    """The Kubernetes node of slinky-0, until Slurm has drained it, and back."""
    [worker] = [pod for pod in slurm.pods().values() if pod["metadata"]["name"].endswith("-0")]
    kube_node = worker["spec"]["nodeName"]
    slurm.kubernetes.kubectl("cordon", kube_node)
    try:
        until(
            "slinky-0 to be drained",
            lambda: slurm.nodes().get("slinky-0") in {"draining", "drained"},
            LONG,
        )
    finally:
        slurm.kubernetes.kubectl("uncordon", kube_node)
    until(
        "slinky-0 to be back", lambda: "drain" not in slurm.nodes().get("slinky-0", "drain"), LONG
    )


@pytest.mark.timeout(1500)
def test_no_job_fails_while_the_operator_is_killed_at_random_whatever_it_is_doing(
    own_nodeset: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, message = time.monotonic(), []

    def phase(name: str) -> None:
        message.append(f"{time.monotonic() - begun:.0f} s {name}")

    seed = int(os.environ.get("SEED", "6"))
    started = slurmctld(own_nodeset)
    with jobs_all_the_time(own_nodeset) as jobs:
        with killing_the_operator(own_nodeset, random.Random(seed)) as killed:  # noqa: S311 - guards nothing
            phase("rolling update")
            before = uids(own_nodeset)
            change(
                own_nodeset,
                updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            )
            change(own_nodeset, slurmd=marked(f"killed-{time.time()}"))
            until(
                "both workers to be replaced",
                lambda: len(uids(own_nodeset)) == 2 and before.isdisjoint(uids(own_nodeset)),
                LONG,
            )
            phase("scale-in")
            own_nodeset.scale(1)
            until_equal("one worker to be left", lambda: len(own_nodeset.pods()), 1, LONG)
            own_nodeset.scale(2)
            until_equal("two workers in Slurm", lambda: len(own_nodeset.nodes()), 2, LONG)
            for number in range(CORDONS):
                if number == 0 or len(killed) < KILLS:
                    phase("a cordon")
                    cordon_and_uncordon(own_nodeset)
        assert len(killed) >= KILLS
        until(f"more than {JOBS} jobs", lambda: len(jobs()) > JOBS)
    ended = {"COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "REQUEUED"}
    until(
        "every job to have ended", lambda: {it["JobState"] for it in jobs().values()} <= ended, LONG
    )
    done = jobs()
    assert {number: it for number, it in done.items() if it["JobState"] != "COMPLETED"} == {}
    assert len(done) > JOBS
    assert {it["Restarts"] for it in done.values()} == {"0"}
    assert slurmctld(own_nodeset) == started
    own_nodeset.until_idle(2, LONG)
    with capsys.disabled():
        took = time.monotonic() - begun
        print(
            f"\nseed {seed}: {len(done)} jobs, operator killed {len(killed)} times in {took:.0f} "
            f"s; {', '.join(message)}"
        )
