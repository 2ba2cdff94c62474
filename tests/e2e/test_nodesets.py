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
    """Patch the worker NodeSet's spec; None takes a field away."""
    patch = json.dumps({"spec": spec})
    slurm.kubernetes.kubectl(
        "-n", "slurm", "patch", KIND, NODESET, "--type=merge", f"--patch={patch}"
    )


def marked(value: str) -> dict[str, Any]:
    """A change of the slurmd container that needs a new revision."""
    return {"env": [{"name": "E2E_MARK", "value": value}]}


def has_mark(pod: dict[str, Any]) -> bool:
    """Whether its slurmd has the variable of `marked`."""
    variables = (it for container in pod["spec"]["containers"] for it in container.get("env", ()))
    return any(it["name"] == "E2E_MARK" for it in variables)


def uids(slurm: Slurm) -> set[str]:
    return {pod["metadata"]["uid"] for pod in slurm.pods().values()}


@pytest.fixture
def own_nodeset(slurm: Slurm) -> Iterator[Slurm]:
    """The worker NodeSet, put back to what the chart created."""
    slurm.until_idle(2)
    until_equal("the pods of other workers to be gone", lambda: len(slurm.pods()), 2)
    before = slurm.kubernetes.get("-n", "slurm", KIND, NODESET)["spec"]
    yield slurm
    # What a test has seen enough of.
    slurm.login("scancel", "--user=root")
    fields = ("scalingMode", "updateStrategy")
    former: dict[str, Any] = {field: before.get(field) for field in fields}
    change(slurm, **former, slurmd={"env": before["slurmd"].get("env")})
    until(
        "no worker to have the mark",
        lambda: not any(has_mark(pod) for pod in slurm.pods().values()),
    )
    slurm.until_idle(2)


def test_a_rolling_update_fails_no_job(own_nodeset: Slurm) -> None:
    change(
        own_nodeset,
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    )
    jobs = {
        node: own_nodeset.submit_until_ended("-w", node, "--exclusive")
        for node in ("slinky-0", "slinky-1")
    }
    own_nodeset.until_running(*jobs.values())
    before = uids(own_nodeset)
    change(own_nodeset, slurmd=marked(f"roll-{time.time()}"))

    def draining() -> list[str]:
        return [node for node in jobs if own_nodeset.nodes().get(node) == "draining"]

    for _ in range(2):
        [node] = until("a worker to drain", draining)
        own_nodeset.end(jobs.pop(node))
    until(
        "both workers to be replaced",
        lambda: len(uids(own_nodeset)) == 2 and before.isdisjoint(uids(own_nodeset)),
    )
    own_nodeset.until_idle(2)


def test_a_daemon_set_has_a_worker_on_each_node_and_drains_a_cordoned_one(
    own_nodeset: Slurm,
) -> None:
    kube_nodes = {item["metadata"]["name"] for item in own_nodeset.kubernetes.items("nodes")}
    change(own_nodeset, scalingMode="DaemonSet")
    hosts = {kube_node.partition(".")[0] for kube_node in kube_nodes}
    until_equal("a worker on each Kubernetes node", own_nodeset.nodes, dict.fromkeys(hosts, "idle"))
    until_equal(
        "the pods of the former workers to be gone",
        lambda: len(own_nodeset.pods()),
        len(kube_nodes),
    )
    cordoned = min(kube_nodes)
    host = cordoned.partition(".")[0]
    own_nodeset.kubernetes.kubectl("cordon", cordoned)
    try:
        until_equal(f"{host} to be drained", lambda: own_nodeset.nodes().get(host), "drained")
        reason = own_nodeset.login("sinfo", "-h", "-n", host, "-o", "%E").strip()
        assert reason.startswith(f"slurm-operator: Node ({cordoned}) was cordoned")
        assert len(own_nodeset.pods()) == len(kube_nodes)
    finally:
        own_nodeset.kubernetes.kubectl("uncordon", cordoned)
    until_equal(f"{host} to be idle", lambda: own_nodeset.nodes().get(host), "idle")


def test_a_scheduled_update_happens_in_its_reservation_and_not_before(own_nodeset: Slurm) -> None:
    start = int(time.time()) + 25
    text = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = uids(own_nodeset)
    strategy = {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": text, "duration": "10m"},
    }
    change(own_nodeset, updateStrategy=strategy, slurmd=marked(f"scheduled-{start}"))

    def reserved() -> bool:
        nodeset = own_nodeset.kubernetes.get("-n", "slurm", KIND, NODESET)
        return condition(nodeset, "ReservationCreated").get("status") == "True"

    until("the reservation", reserved)
    shown = own_nodeset.login("scontrol", "show", "reservation", f"SlurmOperatorMaint-{NODESET}")
    assert "slinky-[0-1]" in shown
    assert "MAINT" in shown
    while True:
        found = uids(own_nodeset)
        # A look takes seconds on a busy host: one that ends before the start shows what was before.
        if time.time() >= start:
            break
        assert found == before
        time.sleep(1)
    until(
        "both workers to be replaced",
        lambda: len(uids(own_nodeset)) == 2 and before.isdisjoint(uids(own_nodeset)),
    )
    # Their records are reserved, so that they were set DOWN and not deleted.
    until_equal(
        "both workers to be used again",
        own_nodeset.nodes,
        {"slinky-0": "maint", "slinky-1": "maint"},
    )
    change(own_nodeset, updateStrategy={"type": "RollingUpdate", "scheduledUpdate": None})
    until(
        "the reservation to be deleted",
        lambda: "No reservations" in own_nodeset.login("scontrol", "show", "reservation"),
    )
