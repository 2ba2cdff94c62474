"""Pods, nodes and tenants for tests of the bridge, and a Slurm in which users submit external
jobs.
"""

from pathlib import Path
from typing import Any

from sidecars.contract import bridge
from sidecars.simulate import SlurmModel
from sidecars.simulate.records import SimJob, SimPartition
from tests.charts.examples import examples

ROOT = Path(__file__).parents[2]

KEY = b"0123456789abcdef0123456789abcdef"


def slurm() -> SlurmModel:
    """A Slurm that believes KEY, with the partition of the bridge and one node, which has a
    slurmd.
    """
    model = SlurmModel()
    model.node_register("worker")
    model.key = KEY
    model.partitions["slurm-bridge"] = SimPartition("slurm-bridge", feature="slurm-bridge")
    return model


def node(name: str, *, cpus: int = 8, **labels: str) -> dict[str, Any]:
    """A Kubernetes node for Slurm."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {bridge.EXTERNAL_NODE: "true", **labels}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": str(cpus), "memory": "16Gi"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    namespace: str, name: str, *, cpu: str = "1", group: tuple[str, int] | None = None
) -> dict[str, Any]:
    """A pod that waits."""
    labels = (
        {}
        if group is None
        else {bridge.GROUP_LABEL: group[0], bridge.GROUP_SIZE_LABEL: str(group[1])}
    )
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": {"cpu": cpu, "memory": "100Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"schedulingGates": [{"name": bridge.GATE}], "containers": [container]},
        "status": {"phase": "Pending"},
    }


def tenants(namespace: str, **entries: str) -> dict[str, Any]:
    """The ConfigMap, in that namespace."""
    metadata = {"namespace": namespace, "name": "slurm-bridge-tenants"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": entries}


def gate_steps(namespace: str) -> list[dict[str, Any]]:
    """The steps of slurm-postrender in docs/bridge-security.md, for this namespace."""
    page = (
        (ROOT / "docs" / "bridge-security.md")
        .read_text(encoding="utf-8")
        .replace("namespace: physics", f"namespace: {namespace}")
    )
    given = examples("docs/bridge-security.md", page)
    [found] = [it for it in given if it.title == "postrender.yaml"]
    steps: list[dict[str, Any]] = found.documents[0]["steps"]
    return steps


def live(model: SlurmModel) -> list[SimJob]:
    """The jobs that have not ended."""
    return [job for job in model.jobs.values() if job.states & {"PENDING", "RUNNING", "SUSPENDED"}]
