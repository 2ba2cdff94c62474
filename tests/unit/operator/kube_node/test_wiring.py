"""What wakes the pass over all Kubernetes nodes."""

import msgspec
import pytest

from sidecars import objects
from sidecars.operator.kube_node.reconcile import ALL
from tests.support.operator_parts import CONTROLLER, Parts

pytestmark = pytest.mark.looptime


def kube_node(parts: Parts, version: str, **spec: bool) -> None:
    node = {"metadata": {"name": "kube-1", "uid": "n", "resourceVersion": version}, "spec": spec}
    parts.runtime.caches.kube_nodes.store.put(msgspec.convert(node, objects.Node))


@pytest.mark.parametrize("asked", [True, False])
async def test_only_where_the_settings_ask_for_it_a_node_or_slurm_wakes_it(asked: bool) -> None:
    parts = Parts(cordon_drained_nodes=asked)
    want = {ALL} if asked else set()
    kube_node(parts, "1")
    assert (await parts.woken()).get("kube_nodes", set()) == want
    parts.runtime.clusters._changed(CONTROLLER, frozenset({"n1"}), frozenset())
    assert (await parts.woken()).get("kube_nodes", set()) == want


async def test_a_heartbeat_of_the_kubelet_wakes_nothing_and_a_cordon_does() -> None:
    parts = Parts(cordon_drained_nodes=True)
    kube_node(parts, "1")
    await parts.woken()
    kube_node(parts, "2")
    assert await parts.woken() == {}
    kube_node(parts, "3", unschedulable=True)
    assert (await parts.woken())["kube_nodes"] == {ALL}


async def test_a_controller_that_was_deleted_wakes_it_for_the_cordons_that_it_left() -> None:
    parts = Parts(cordon_drained_nodes=True)
    parts.controller()
    await parts.woken()
    store = parts.runtime.caches.controllers.store
    store.discard(store.known()[0])
    assert (await parts.woken())["kube_nodes"] == {ALL}


async def test_a_worker_that_begins_to_run_wakes_it_as_drains_count_from_then_on() -> None:
    parts = Parts(cordon_drained_nodes=True)
    parts.pod("w-0", phase="Pending")
    assert "kube_nodes" not in await parts.woken()
    parts.pod("w-0", phase="Running")
    assert (await parts.woken())["kube_nodes"] == {ALL}
    parts.pod("w-0", phase="Running", reason="x")
    assert "kube_nodes" not in await parts.woken()
