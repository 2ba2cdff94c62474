"""Scaling modes and update strategies on real Slurm."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.real.harness import NODESET, Slurm, condition, until, until_equal

KIND = "nodesets.slinky.slurm.net"


def change(slurm: Slurm, **spec: Any) -> None:
    """Patch the worker pool's spec; None takes a field away."""
    patch = json.dumps({"spec": spec})
    slurm.kubernetes.kubectl("-n", "slurm", "patch", KIND, NODESET, "--type=merge", f"--patch={patch}")


def marked(value: str) -> dict[str, Any]:
    """A change of the slurmd container that makes a new revision."""
    return {"env": [{"name": "E2E_MARK", "value": value}]}


def has_mark(pod: dict[str, Any]) -> bool:
    """Whether its slurmd has the variable of `marked`."""
    variables = (it for container in pod["spec"]["containers"] for it in container.get("env", ()))
    return any(it["name"] == "E2E_MARK" for it in variables)


def uids(slurm: Slurm) -> set[str]:
    return {pod["metadata"]["uid"] for pod in slurm.pods().values()}


@pytest.fixture
def pool(slurm: Slurm) -> Iterator[Slurm]:
    """The worker pool, put back to what the chart made of it."""
    slurm.until_idle(2)
    until_equal("the pods of other workers to be gone", lambda: len(slurm.pods()), 2)
    before = slurm.kubernetes.get("-n", "slurm", KIND, NODESET)["spec"]
    yield slurm
    # What a test has seen enough of.
    slurm.login("scancel", "--user=root")
    fields = ("scalingMode", "updateStrategy")
    former: dict[str, Any] = {field: before.get(field) for field in fields}
    change(slurm, **former, slurmd={"env": before["slurmd"].get("env")})
    until("no worker to have the mark", lambda: not any(has_mark(pod) for pod in slurm.pods().values()))
    slurm.until_idle(2)


def test_a_rolling_update_fails_no_job(pool: Slurm) -> None:
    change(pool, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
    jobs = {node: pool.submit_until_ended("-w", node, "--exclusive") for node in ("slinky-0", "slinky-1")}
    pool.until_running(*jobs.values())
    before = uids(pool)
    change(pool, slurmd=marked(f"roll-{time.time()}"))

    def draining() -> list[str]:
        return [node for node in jobs if pool.nodes().get(node) == "draining"]

    for _ in range(2):
        [node] = until("a worker to drain", draining)
        pool.end(jobs.pop(node))
    until("both workers to be replaced", lambda: len(uids(pool)) == 2 and before.isdisjoint(uids(pool)))
    pool.until_idle(2)


def test_a_daemon_set_has_a_worker_on_each_node_and_drains_a_cordoned_one(pool: Slurm) -> None:
    machines = {item["metadata"]["name"] for item in pool.kubernetes.items("nodes")}
    change(pool, scalingMode="DaemonSet")
    hosts = {machine.partition(".")[0] for machine in machines}
    until_equal("a worker on each Kubernetes node", pool.nodes, dict.fromkeys(hosts, "idle"))
    until_equal("the pods of the former workers to be gone", lambda: len(pool.pods()), len(machines))
    cordoned = min(machines)
    host = cordoned.partition(".")[0]
    pool.kubernetes.kubectl("cordon", cordoned)
    try:
        until_equal(f"{host} to be drained", lambda: pool.nodes().get(host), "drained")
        reason = pool.login("sinfo", "-h", "-n", host, "-o", "%E").strip()
        assert reason.startswith(f"slurm-operator: Node ({cordoned}) was cordoned")
        assert len(pool.pods()) == len(machines)
    finally:
        pool.kubernetes.kubectl("uncordon", cordoned)
    until_equal(f"{host} to be idle", lambda: pool.nodes().get(host), "idle")


def test_a_scheduled_update_happens_in_its_reservation_and_not_before(pool: Slurm) -> None:
    start = int(time.time()) + 25
    text = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = uids(pool)
    strategy = {"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": text, "duration": "10m"}}
    change(pool, updateStrategy=strategy, slurmd=marked(f"scheduled-{start}"))

    def reserved() -> bool:
        nodeset = pool.kubernetes.get("-n", "slurm", KIND, NODESET)
        return condition(nodeset, "ReservationCreated").get("status") == "True"

    until("the reservation", reserved)
    shown = pool.login("scontrol", "show", "reservation", f"SlurmOperatorMaint-{NODESET}")
    assert "slinky-[0-1]" in shown
    assert "MAINT" in shown
    while time.time() < start - 1:
        assert uids(pool) == before
        time.sleep(1)
    until("both workers to be replaced", lambda: len(uids(pool)) == 2 and before.isdisjoint(uids(pool)))
    # Their records are reserved, so that they were set DOWN and not deleted.
    until_equal("both workers to be used again", pool.nodes, {"slinky-0": "maint", "slinky-1": "maint"})
    change(pool, updateStrategy={"type": "RollingUpdate", "scheduledUpdate": None})
    until(
        "the reservation to be deleted",
        lambda: "No reservations" in pool.login("scontrol", "show", "reservation"),
    )
