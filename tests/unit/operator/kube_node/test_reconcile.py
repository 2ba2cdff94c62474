"""One pass over all Kubernetes nodes."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.kube import Forbidden, NotFound
from sidecars.operator.kube_node.reconcile import ALL, reconcile
from sidecars.operator.runtime import bulk
from tests.support.operator_parts import Parts, SlurmConnection

pytestmark = pytest.mark.looptime


async def drained(instance_id: str) -> Parts:
    """Kubernetes nodes kube-1 and kube-2, a worker `w-0` on kube-1, whose slurmd reports that it
    runs on `instance_id`, and an administrator who drains it.
    """
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm, cordon_drained_nodes=True)
    for name in ("kube-1", "kube-2"):
        node = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {}}
        parts.runtime.caches.kube_nodes.store.put(msgspec.convert(node, objects.Node))
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
    assert patch["metadata"]["annotations"] == {
        "nodeset.slinky.slurm.net/cordoned-for": "slurm/slurm: bad disk"
    }
    assert parts.requests.made[-1] == ("patch", "Node", "kube-1")


async def test_a_kubernetes_node_that_only_slurmd_names_is_not_cordoned() -> None:
    parts = await drained("kube-2")
    parts.pod("w-0", phase="Running")
    await reconcile(parts.runtime, ALL)
    assert parts.requests.of("patch", "Node") == []


async def undrained(count: int) -> Parts:
    """That many Kubernetes nodes that are cordoned for workers without a drain."""
    parts = await drained("kube-1")
    marks = {"nodeset.slinky.slurm.net/cordoned-for": "slurm/slurm: bad disk"}
    for number in range(count):
        parts.kube_node(f"cordoned-{number}", spec={"unschedulable": True}, annotations=marks)
    return parts


async def test_only_so_many_kubernetes_nodes_are_patched_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = await undrained(3 * bulk.AT_ONCE)
    patch = parts.requests.merge_patch
    under_way = most = 0

    async def slow(*arguments: Any, **more: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1.0)
        under_way -= 1
        return await patch(*arguments, **more)

    monkeypatch.setattr(parts.requests, "merge_patch", slow)
    await reconcile(parts.runtime, ALL)
    assert most == bulk.AT_ONCE


async def test_a_missing_kubernetes_node_is_no_failure_and_a_refusal_is_one_at_the_end() -> None:
    parts = await undrained(3)
    parts.requests.refusals["patch Node"] = NotFound(404, "NotFound", "nodes")
    await reconcile(parts.runtime, ALL)
    parts.requests.refusals["patch Node"] = Forbidden(403, "Forbidden", "nodes")
    parts.requests.made.clear()
    with pytest.raises(Forbidden):
        await reconcile(parts.runtime, ALL)
    assert len(parts.requests.made) == 3


def pinned(**spec: Any) -> Parts:
    """A NodeSet whose workers are pinned, and two Kubernetes nodes."""
    parts = Parts(label_kube_nodes=True)
    metadata = {"namespace": "slurm", "name": "slinky", "uid": "uid-of-slinky"}
    nodeset = {"metadata": {**metadata, "resourceVersion": "1"}, "spec": {"pinToNode": True} | spec}
    parts.runtime.caches.nodesets.store.put(nodeset)
    for name in ("kube-1", "kube-2"):
        parts.kube_node(name)
    return parts


async def test_the_kubernetes_node_of_a_pinned_worker_has_the_name_of_its_slurm_node() -> None:
    parts = pinned()
    pod = parts.pod("slinky-0", phase="Running")
    await reconcile(parts.runtime, ALL)
    [patch] = parts.requests.of("patch", "Node")
    assert patch["metadata"]["labels"] == {"slinky.slurm.net/slurm-nodename": "slinky-0"}
    assert patch["metadata"]["annotations"] == {
        "nodeset.slinky.slurm.net/labelled-for": "slurm/slinky"
    }
    assert parts.requests.made[-1] == ("patch", "Node", pod.spec.node_name)


async def test_without_its_worker_a_kubernetes_node_loses_the_operators_label() -> None:
    parts = pinned()
    parts.kube_node(
        "kube-3",
        labels={"slinky.slurm.net/slurm-nodename": "slinky-9"},
        annotations={"nodeset.slinky.slurm.net/labelled-for": "slurm/slinky"},
    )
    await reconcile(parts.runtime, ALL)
    [patch] = parts.requests.of("patch", "Node")
    assert patch["metadata"]["labels"] == {"slinky.slurm.net/slurm-nodename": None}
    assert patch["metadata"]["annotations"] == {"nodeset.slinky.slurm.net/labelled-for": None}
    assert parts.requests.made[-1] == ("patch", "Node", "kube-3")


@pytest.mark.parametrize("spec", [{"pinToNode": False}, {"scalingMode": "DaemonSet"}])
async def test_workers_that_are_not_pinned_label_nothing(spec: dict[str, Any]) -> None:
    parts = pinned(**spec)
    parts.pod("slinky-0", phase="Running")
    await reconcile(parts.runtime, ALL)
    assert parts.requests.of("patch", "Node") == []
