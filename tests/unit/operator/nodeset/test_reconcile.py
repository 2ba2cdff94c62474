"""One pass over one NodeSet: `sidecars.operator.nodeset.reconcile`."""

from typing import Any

import pytest

from sidecars.custom_resources import WORKERS_TERMINATE_FIRST
from sidecars.kube import DEPLOYMENTS, STATEFUL_SETS, Forbidden
from sidecars.operator.nodeset.reconcile import reconcile
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts, SlurmConnection
from tests.unit.operator.nodeset.builders import KEY, SPEC

pytestmark = pytest.mark.looptime
RUNNING: dict[str, Any] = {
    "phase": "Running",
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z"}
    ],
    "containerStatuses": [
        {"name": "slurmd", "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}}
    ],
}


async def cluster(*workers: str) -> Parts:
    """A Slurm cluster that is up to date, with these workers running."""
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    for name in workers:
        slurm.model.node_register(name)
        parts.pod(name, **RUNNING)
    await parts.connect()
    parts.kube_node("kube-1")
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    parts.workload(DEPLOYMENTS, "slurm-restapi", "slurmrestd", "slurmrestd:26.05")
    return parts


async def one_pass(parts: Parts, **spec: Any) -> float | None:
    """A pass over the NodeSet, after Slurm's nodes were read."""
    parts.custom("NodeSet", "slinky", SPEC | spec, finalizers=[WORKERS_TERMINATE_FIRST])
    connected = parts.runtime.clusters.get(CONTROLLER)
    assert connected is not None
    await connected.poller.poll()
    return await reconcile(parts.runtime, parts.operator.nodesets, KEY)


def made(parts: Parts, verb: str) -> list[str]:
    """The pods that such a request was sent for."""
    return [name for sent, kind, name in parts.requests.made if (sent, kind) == (verb, "Pod")]


async def test_replicas_that_are_missing_are_created_and_the_status_is_reported() -> None:
    parts = await cluster()
    await one_pass(parts, replicas=3)
    assert made(parts, "create") == ["slinky-0", "slinky-1", "slinky-2"]
    assert parts.condition("NodeSet")["status"] == "False"
    assert parts.requests.of("patch status", "NodeSet")[-1]["status"]["desired"] == 3


async def test_fewer_replicas_are_drained_in_one_pass_and_deleted_in_a_later_one() -> None:
    parts = await cluster("slinky-0", "slinky-1")
    fewer = {"replicas": 1, "updateStrategy": {"type": "OnDelete"}}
    await one_pass(parts, **fewer)
    connected = parts.runtime.clusters.get(CONTROLLER)
    assert connected is not None
    assert made(parts, "delete") == []
    await one_pass(parts, **fewer)
    assert "DRAIN" in connected.poller.nodes["slinky-1"].states
    assert "DRAIN" not in connected.poller.nodes["slinky-0"].states
    assert made(parts, "delete") == ["slinky-1"]


async def test_a_pod_that_is_refused_is_reported_before_the_pass_fails() -> None:
    parts = await cluster()
    parts.requests.refusals["create Pod"] = Forbidden(403, "Forbidden", "exceeded quota")
    with pytest.raises(Forbidden):
        await one_pass(parts)
    ready = parts.condition("NodeSet")
    assert ready["reason"] == "Refused"
    assert "exceeded quota" in ready["message"]


async def test_a_nodeset_gets_its_finalizer_before_anything_is_created() -> None:
    parts = await cluster()
    parts.custom("NodeSet", "slinky", SPEC)
    await reconcile(parts.runtime, parts.operator.nodesets, KEY)
    writes = [
        (verb, kind)
        for verb, kind, _ in parts.requests.made
        if verb in {"patch", "create", "apply"}
    ]
    assert writes[0] == ("patch", "NodeSet")
    assert parts.requests.of("patch", "NodeSet")[0]["metadata"]["finalizers"] == [
        WORKERS_TERMINATE_FIRST
    ]
    assert ("create", "Pod") in writes


async def test_a_nodeset_that_can_not_be_read_is_reported_and_its_deferred_pods_are_woken() -> None:
    parts = await cluster()
    memory = parts.operator.nodesets.of(KEY)
    memory.deferral.creating = True
    assert parts.operator.nodesets.defer(KEY, (NAMESPACE, "slinky-0"))
    parts.custom("NodeSet", "slinky", SPEC | {"replicas": "three"})
    assert await reconcile(parts.runtime, parts.operator.nodesets, KEY) is None
    assert parts.condition("NodeSet")["reason"] == "Invalid"
    assert (NAMESPACE, "slinky-0") in (await parts.woken(0.0))["pods"]


async def test_nothing_is_remembered_of_a_nodeset_that_was_deleted() -> None:
    parts = Parts()
    parts.operator.nodesets.of(KEY)
    assert await reconcile(parts.runtime, parts.operator.nodesets, KEY) is None
    assert parts.operator.nodesets.get(KEY) is None
    assert parts.requests.made == []
