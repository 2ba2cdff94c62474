"""A live cluster as kubectl shows it: objects, pods, nodes and jobs."""

from typing import Any

from sidecars.contract.extra import PodFacts, encode
from sidecars.slurm.records import Job, Node
from sidecars.workloads import names
from sidecars.workloads.resources import Manifest

NOW = 1_800_000_000.0
SINCE = "2026-01-01T00:00:00Z"


def pod(ordinal: int, revision: str = "former", **status: Any) -> Manifest:
    """A running worker pod of NodeSet `slurm-worker-slinky`."""
    name = f"slurm-worker-slinky-{ordinal}"
    labels = {
        names.APP_NAME: "slurmd",
        names.APP_INSTANCE: "slurm-worker-slinky",
        names.REVISION_HASH: revision,
        names.SCALING_MODE: "StatefulSet",
    }
    running = {"name": "slurmd", "state": {"running": {"startedAt": SINCE}}, "restartCount": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "slurm",
            "uid": f"uid-{ordinal}",
            "labels": labels,
            "creationTimestamp": SINCE,
        },
        "spec": {"hostname": f"slinky-{ordinal}", "nodeName": f"kube-{ordinal}"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": SINCE}],
            "containerStatuses": [running],
            **status,
        },
    }


def kube_node(ordinal: int, **spec: Any) -> Manifest:
    """A Kubernetes node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"kube-{ordinal}", "uid": "x"},
        "spec": spec,
    }


def node(ordinal: int, *states: str) -> Node:
    """The Slurm node of a pod."""
    facts = PodFacts(f"uid-{ordinal}", f"slurm-worker-slinky-{ordinal}", "slurm")
    return Node(f"slinky-{ordinal}", frozenset(states or {"IDLE"}), extra=encode(facts))


def job(number: int, nodes: str, limit: int | None = 60, *states: str) -> Job:
    """A job that began at NOW. `limit` in minutes."""
    return Job(
        number,
        frozenset(states or {"RUNNING"}),
        user_name="ada",
        nodes=nodes,
        start_time=int(NOW),
        time_limit=limit,
    )
