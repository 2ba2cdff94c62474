"""Slurm's power saving: workers that a real Slurm starts and stops on a real cluster."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.real.following import REST, kill_each, turns, without
from tests.support.real.harness import NODESET, PodWatch, Slurm, condition, until, until_equal
from tests.support.real.kills import OPERATOR, SLURMCTLD, SLURMRESTD, stop_operator

KIND = "nodesets.slinky.slurm.net"
SAVING = {
    "enabled": True,
    "idleSeconds": 15,
    "startSeconds": 150,
    "capacityWaitSeconds": 5,
    "retrySeconds": 30,
}
SCRIPT = "#!/bin/sh\nsleep 5\n"
ABSENT = "127.0.0.1:1/absent:26.05"
"""An image of a registry that doesn't answer."""


def create(
    slurm: Slurm, name: str, saving: dict[str, Any], *, image: str = "", **template: Any
) -> None:
    """A NodeSet of two nodes like the chart's, with a partition of its name. Changes one that
    exists.
    """
    spec = slurm.kubernetes.get("-n", "slurm", KIND, NODESET)["spec"]
    template = {
        **spec["template"],
        "spec": {**spec["template"].get("spec", {}), "hostname": f"{name}-", **template},
    }
    partition = {"enabled": True, "config": "State=UP"}
    spec |= {
        "replicas": 2,
        "template": template,
        "partition": partition,
        "powerSaving": SAVING | saving,
    }
    if image:
        spec["slurmd"] = {**spec.get("slurmd", {}), "image": image}
    # Its partition isn't to stay for the minutes for which Slurm keeps ended jobs.
    spec["forceRemoval"] = True
    metadata = {"name": name, "namespace": "slurm"}
    nodeset = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "NodeSet",
        "metadata": metadata,
        "spec": spec,
    }
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
    )


def until_completed(slurm: Slurm, job: int) -> dict[str, str]:
    """Wait until the job has ended; it must have completed."""
    ended = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}
    until(f"job {job} to end", lambda: slurm.job(job)["JobState"] in ended)
    found = slurm.job(job)
    assert found["JobState"] == "COMPLETED", found
    return found


@pytest.fixture(scope="module")
def power(slurm: Slurm) -> Iterator[Slurm]:
    """With a NodeSet `power` whose workers are powered down. Nobody has declared what they
    offer.
    """
    create(slurm, "power", {"price": 5})
    try:
        until_powered_down(slurm, "power")
        yield slurm
    finally:
        slurm.kubernetes.kubectl(
            "-n", "slurm", "delete", KIND, "power", "--timeout=180s", timeout=200
        )
        slurm.until_idle(2)


def test_slurm_starts_workers_for_jobs_and_stops_them_and_the_nodes_stay(power: Slurm) -> None:

    def reason() -> str:
        return str(
            condition(power.kubernetes.get("-n", "slurm", KIND, "power"), "PowerSaving").get(
                "reason"
            )
        )

    until_equal("the NodeSet to follow Slurm", reason, "Following")
    with power.watching_pods() as watch:
        jobs = [power.submit(SCRIPT, "-p", "power", "--exclusive") for _ in range(2)]
        for job in jobs:
            assert until_completed(power, job)["Restarts"] == "0"
    started = {pod["metadata"]["name"] for pod in watch.history}
    assert {"power-0", "power-1"} <= started
    until_powered_down(power, "power")


def test_a_request_of_slurms_is_fulfilled_when_the_operator_is_back(power: Slurm) -> None:
    try:
        stop_operator(power.kubernetes)
        job = power.submit(SCRIPT, "-p", "power")
        until(
            "Slurm to start a node", lambda: any(it.endswith("#") for it in states(power, "power"))
        )
        assert pods(power, "power") == []
    finally:
        power.kubernetes.kubectl(
            "-n", "slinky", "scale", "deployment", "slurm-operator", "--replicas=1"
        )
    assert until_completed(power, job)["Restarts"] == "0"
    until_powered_down(power, "power")


def test_nodesets_whose_pods_cant_start_give_way_within_a_minute_each_the_cheapest_first(
    power: Slurm,
) -> None:
    declared = {"node": "CPUs=1 RealMemory=500", "retrySeconds": 60}
    create(power, "full", declared, nodeSelector={"e2e": "nowhere"})
    create(power, "absent", {**declared, "price": 2}, image=ABSENT)

    def gives_way(name: str) -> str:
        found = condition(power.kubernetes.get("-n", "slurm", KIND, name), "PowerSaving")
        return str(found["message"]) if found["reason"] == "NoCapacity" else ""

    try:
        off = ["idle~", "idle~"]
        until_equal(
            "the nodes of both",
            lambda: [states(power, it) for it in ("full", "absent")],
            [off, off],
        )
        with power.watching_pods() as watch:
            job = power.submit(SCRIPT, "-p", "all", "--constraint=full|absent|power")
            until("Slurm to try the cheapest NodeSet", lambda: bool(pods(power, "full")))
            until("Slurm to try the next one", lambda: bool(pods(power, "absent")))
            assert "nodes are available" in until(
                "the first to be reported", lambda: gives_way("full")
            )
            until(
                "Slurm to try the last one",
                lambda: power.job(job).get("NodeList", "").startswith("power-"),
            )
            assert f"{ABSENT} can't be pulled" in until(
                "the second to be reported", lambda: gives_way("absent")
            )
            until_completed(power, job)
        # By the watch, because the next NodeSet may begin between two looks.
        tried = dict.fromkeys(pod["metadata"]["name"].rpartition("-")[0] for pod in watch.history)
        assert [it for it in tried if it in {"full", "absent", "power"}] == [
            "full",
            "absent",
            "power",
        ]
        until_equal("the NodeSet to be tried again", lambda: set(states(power, "full")), {"idle~"})
        until("no pod to be left", lambda: not pods(power, "full") and not pods(power, "absent"))
    finally:
        power.kubernetes.kubectl(
            "-n", "slurm", "delete", KIND, "full", "absent", "--timeout=180s", timeout=200
        )


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


def test_jobs_run_to_their_end_and_workers_stay_without_data_whatever_is_killed(
    power: Slurm,
) -> None:
    kubernetes, idle_seconds = power.kubernetes, 10
    both = ["power-0", "power-1"]

    def following(reason: str) -> bool:
        return bool(
            condition(kubernetes.get("-n", "slurm", KIND, "power"), "PowerSaving").get("reason")
            == reason
        )

    def until_states(what: str, *wanted: set[str]) -> None:
        def look() -> bool:
            found = states(power, "power")
            return len(found) == len(wanted) and all(
                it in some for it, some in zip(found, wanted, strict=True)
            )

        until(what, look)

    until_powered_down(power, "power")
    create(power, "power", {"price": 5, "idleSeconds": idle_seconds, "min": 1})
    until_states("the worker that always runs", {"idle"}, {"idle~"})
    with power.watching_pods() as watch:
        wide = power.submit_until_ended("-p", "power", "-N2", "--exclusive", "--no-requeue")
        until_equal("the job to run", lambda: power.states(wide), ["RUNNING"])
        narrow = power.submit_until_ended(
            "-p", "power", "-w", "power-1", "--exclusive", "--no-requeue"
        )
        array = power.submit("#!/bin/sh\nsleep 1\n", "-p", "power", "--array=1-4")
        kill_each(power, [SLURMCTLD], wide)
        power.end(wide)
        until_equal("the next job to run", lambda: power.states(narrow), ["RUNNING"])
        until_equal("the array to complete", lambda: power.states(array), ["COMPLETED"] * 4)
        idle = time.monotonic()
        kill_each(power, [SLURMRESTD, OPERATOR], narrow)
        until(
            "a worker to be idle for longer than others are",
            lambda: time.monotonic() - idle > 2 * idle_seconds,
        )
        assert states(power, "power")[0] == "idle"

        with without(kubernetes, REST, lambda: following("NoAnswer")):
            power.end(narrow)
            until_states("the other node to be idle", {"idle"}, {"idle"})
            assert sorted(pods(power, "power")) == both
        until_equal("its worker to be removed", lambda: pods(power, "power"), ["power-0"])
    assert states(power, "power")[0] == "idle"
    sizes = staying(watch)
    assert turns(sizes) <= 1, sizes
    assert set(sizes) == {1, 2}

    create(power, "power", {"price": 5})
    until("it to be stopped", lambda: not pods(power, "power"))
