"""One pass over all Kubernetes nodes."""

import json

import msgspec
import pytest

from sidecars.kube import records
from sidecars.operator.kube_node.reconcile import ALL, reconcile
from tests.support.operator_parts import Parts, SlurmConnection

pytestmark = pytest.mark.looptime


async def drained(instance_id: str) -> Parts:
    """Kubernetes nodes kube-1 and kube-2, a worker `w-0` on kube-1, whose slurmd reports that it runs on
    `instance_id`, and an administrator who drains it.
    """
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm, cordon_drained_nodes=True)
    for name in ("kube-1", "kube-2"):
        node = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {}}
        parts.runtime.caches.kube_nodes.store.put(msgspec.convert(node, records.Node))
    slurm.model.node_register("w-0", instance_id=instance_id)
    change = json.dumps({"state": ["DRAIN"], "reason": "bad disk"}).encode()
    assert slurm.model.handle("POST", "/slurm/v0.0.45/node/w-0", change).status == 200
    await parts.connect()
    return parts


async def test_the_kubernetes_node_of_a_drained_worker_is_cordoned_once_the_worker_runs() -> None:
    parts = await drained("kube-1")
    parts.pod("w-0", phase="Pending")
    await reconcile(parts.runtime, ALL)
    assert parts.requests.of("patch", "Node") == []
    parts.pod("w-0", phase="Running")
    await reconcile(parts.runtime, ALL)
    [patch] = parts.requests.of("patch", "Node")
    assert patch["spec"] == {"unschedulable": True}
    assert patch["metadata"]["annotations"] == {"nodeset.slinky.slurm.net/cordoned-for": "slurm/slurm: bad disk"}
    assert parts.requests.made[-1] == ("patch", "Node", "kube-1")


async def test_a_kubernetes_node_that_only_slurmd_names_is_not_cordoned() -> None:
    parts = await drained("kube-2")
    parts.pod("w-0", phase="Running")
    await reconcile(parts.runtime, ALL)
    assert parts.requests.of("patch", "Node") == []
