"""Which change wakes which worker pod."""

from typing import Any

import pytest

from sidecars.operator.runtime.queues import Key
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts

pytestmark = pytest.mark.looptime
FIRST, SECOND = (NAMESPACE, "slinky-0"), (NAMESPACE, "slinky-1")
SPEC: dict[str, Any] = {"controllerRef": {"name": "slurm"}, "replicas": 2}


async def settled() -> Parts:
    """A NodeSet with two pods, all looked at."""
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.custom("NodeSet", "slinky", SPEC)
    parts.pod("slinky-0")
    parts.pod("slinky-1")
    assert (await parts.woken())["pods"] == {FIRST, SECOND}
    return parts


async def woken(parts: Parts) -> set[Key]:
    return (await parts.woken()).get("pods", set())


async def test_a_condition_of_ours_wakes_the_pod_and_what_the_kubelet_reports_does_not() -> None:
    parts = await settled()
    parts.pod("slinky-0", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    assert await woken(parts) == set()
    parts.pod(
        "slinky-0", phase="Running", conditions=[{"type": "SlurmNodeStateIdle", "status": "True"}]
    )
    assert await woken(parts) == {FIRST}


async def test_the_record_of_a_slurm_node_wakes_its_pod_alone() -> None:
    parts = await settled()
    parts.runtime.clusters._changed(CONTROLLER, frozenset({"slinky-1"}), frozenset())
    assert await woken(parts) == {SECOND}
    parts.runtime.clusters._changed(CONTROLLER, frozenset(), frozenset({"slinky-0"}))
    assert await woken(parts) == {FIRST}
    parts.runtime.clusters._changed((NAMESPACE, "another"), frozenset({"slinky-0"}), frozenset())
    assert await woken(parts) == set()


async def test_records_that_can_be_trusted_again_wake_all_pods_of_the_cluster() -> None:
    parts = await settled()
    parts.runtime.clusters._changed((NAMESPACE, "another"), frozenset(), frozenset())
    assert await woken(parts) == set()
    parts.runtime.clusters._changed(CONTROLLER, frozenset(), frozenset())
    assert await woken(parts) == {FIRST, SECOND}


async def test_a_kubernetes_node_wakes_the_pods_that_run_on_it() -> None:
    parts = await settled()
    parts.kube_node("kube-2")
    assert await woken(parts) == set()
    parts.kube_node("kube-1")
    assert await woken(parts) == {FIRST, SECOND}


async def test_of_a_nodeset_only_what_its_pods_show_wakes_them() -> None:
    parts = await settled()
    parts.custom("NodeSet", "slinky", SPEC | {"replicas": 1000}, generation=2)
    assert await woken(parts) == set()
    parts.custom("NodeSet", "slinky", SPEC | {"workloadDisruptionProtection": False}, generation=3)
    assert await woken(parts) == {FIRST, SECOND}


TREE = [{"name": "fabric", "tree": {"labels": ["rack"]}}]


async def test_the_topologies_of_the_controller_wake_its_pods_and_the_rest_does_not() -> None:
    parts = await settled()
    parts.controller(extraConf="MaxJobCount=7")
    assert await woken(parts) == set()
    parts.controller(topologies=TREE)
    assert await woken(parts) == {FIRST, SECOND}


async def test_the_topology_yaml_of_the_running_slurmctld_wakes_all_pods() -> None:
    parts = await settled()
    owner = {"ownerReferences": [{"kind": "Controller", "name": "slurm", "uid": "x"}]}
    parts.config_map("slurm-config", {"topology.yaml": "[]"}, own=True, **owner)
    parts.config_map("slurm-config-accepted", {"slurm.conf": ""}, own=True, **owner)
    assert await woken(parts) == set()
    parts.config_map(
        "slurm-config-accepted", {"slurm.conf": "", "topology.yaml": "[]"}, own=True, **owner
    )
    assert await woken(parts) == {FIRST, SECOND}
