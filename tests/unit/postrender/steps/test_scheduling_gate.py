"""The scheduling gate of the Slurm Bridge, by the steps that docs/bridge-security.md describes."""

from typing import Any

import pytest

from sidecars.contract import bridge
from tests.support.bridge import gate_steps
from tests.support.streams import applied, objects, stream

GATE = {"name": bridge.GATE}
OTHER = {"name": "example.com/quota"}
CONTAINERS = [{"name": "c", "image": "registry.example/c"}]


def workload(kind: str, namespace: str, *gates: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": CONTAINERS} | (
        {"schedulingGates": list(gates)} if gates else {}
    )
    if kind != "Pod":
        spec = {"template": {"spec": spec}}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"kind": kind, "metadata": {"name": "x", "namespace": namespace}, "spec": spec}


def gated(*given: dict[str, Any]) -> list[dict[str, Any]]:
    return objects(applied(stream(*given), *gate_steps("team")))


@pytest.mark.parametrize(
    "kind", ["CronJob", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"]
)
def test_the_pods_of_a_workload_get_the_gate_once_beside_their_own(kind: str) -> None:
    assert gated(workload(kind, "team")) == [workload(kind, "team", GATE)]
    assert gated(workload(kind, "team", GATE)) == [workload(kind, "team", GATE)]
    assert gated(workload(kind, "team", OTHER)) == [workload(kind, "team", GATE, OTHER)]


@pytest.mark.parametrize(
    ("kind", "namespace"), [("Deployment", "other"), ("DaemonSet", "team"), ("NodeSet", "team")]
)
def test_other_objects_stay_as_they_are(kind: str, namespace: str) -> None:
    assert gated(workload(kind, namespace)) == [workload(kind, namespace)]
