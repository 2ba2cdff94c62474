"""Which change wakes which NodeSet, and which worker pod."""

from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.operator.nodeset.memories import CachedPod
from sidecars.operator.nodeset.wiring import LONGEST_PATIENCE, patience
from sidecars.policy.nodeset.observation import worker_pod
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
SLINKY = (NAMESPACE, "slinky")
SPEC = {"controllerRef": {"name": "slurm"}}


async def settled(**settings: Any) -> Parts:
    """A NodeSet with one pod, all looked at."""
    parts = Parts(**settings)
    parts.keys()
    parts.controller()
    parts.custom("NodeSet", "slinky", SPEC)
    parts.pod("slinky-0")
    await parts.woken()
    return parts


def test_a_nodeset_of_many_pods_waits_longer_for_more_of_their_events_up_to_a_bound() -> None:
    assert [patience(pods) for pods in (0, 100, 1_000, 10_000)] == [
        0.0,
        0.05,
        0.5,
        LONGEST_PATIENCE,
    ]


async def test_a_change_of_the_spec_is_urgent() -> None:
    parts = await settled()
    memories = parts.operator.nodesets
    assert not memories.of(SLINKY).urgent
    parts.custom("NodeSet", "slinky", SPEC, generation=2)
    assert memories.of(SLINKY).urgent
    assert (await parts.woken())["nodesets"] == {SLINKY}


async def test_a_change_of_replicas_alone_wakes_no_pod_and_one_of_what_pods_show_wakes_them() -> (
    None
):
    parts = await settled()
    pods = {(NAMESPACE, "slinky-0")}
    parts.custom("NodeSet", "slinky", SPEC | {"replicas": 7}, generation=2)
    assert "pods" not in await parts.woken()
    parts.custom("NodeSet", "slinky", SPEC | {"workloadDisruptionProtection": False}, generation=3)
    assert (await parts.woken())["pods"] == pods
    parts.custom(
        "NodeSet",
        "slinky",
        SPEC | {"workloadDisruptionProtection": False, "extraConf": "Topology=t:a"},
        generation=4,
    )
    assert (await parts.woken())["pods"] == pods


async def test_a_pod_that_changes_wakes_its_nodeset_and_is_looked_at_itself() -> None:
    parts = await settled()
    parts.pod("slinky-0", phase="Running")
    assert (await parts.woken())["nodesets"] == {SLINKY}


async def test_a_pod_on_which_only_slurm_s_state_has_changed_is_not_read_again() -> None:
    parts = await settled()
    pod = parts.pod("slinky-0", phase="Running")
    await parts.woken()
    memory = parts.operator.nodesets.of(SLINKY)
    memory.pods[pod.metadata.uid] = CachedPod(pod, None, 0, worker_pod(pod, None, now=parts.now))
    idle = objects.Condition(type="SlurmNodeStateIdle", status="True")
    metadata = msgspec.structs.replace(pod.metadata, resource_version="shown")
    status = msgspec.structs.replace(pod.status, conditions=(*pod.status.conditions, idle))
    shown = msgspec.structs.replace(pod, metadata=metadata, status=status)
    parts.runtime.caches.pods.store.put(shown)
    known = memory.pods[pod.metadata.uid]
    assert known.is_current(shown, None, 0)
    assert known.seen == worker_pod(shown, None, now=parts.now)


async def test_a_pod_that_no_nodeset_controls_wakes_nothing() -> None:
    parts = await settled()
    pod = parts.pod("slinky-1")
    await parts.woken()
    metadata = msgspec.structs.replace(pod.metadata, name="stray", uid="stray", owner_references=())
    parts.runtime.caches.pods.store.put(msgspec.structs.replace(pod, metadata=metadata))
    assert await parts.woken() == {}


async def test_a_pod_that_is_gone_wakes_its_nodeset_alone() -> None:
    parts = await settled()
    store = parts.runtime.caches.pods.store
    store.discard(store.known()[0])
    assert await parts.woken() == {"nodesets": {SLINKY}}


async def test_a_changed_slurm_node_wakes_the_nodesets_of_the_cluster_and_its_pod() -> None:
    parts = await settled()
    parts.runtime.clusters._changed((NAMESPACE, "slurm"), frozenset({"slinky-0"}), frozenset())
    found = await parts.woken()
    assert (found["nodesets"], found["pods"]) == ({SLINKY}, {(NAMESPACE, "slinky-0")})
    assert "kube_nodes" not in found
    parts.runtime.clusters._changed((NAMESPACE, "other"), frozenset({"slinky-0"}), frozenset())
    assert await parts.woken() == {}


async def test_slurm_that_is_trusted_again_wakes_all_pods_and_the_clusters_controller() -> None:
    parts = await settled()
    parts.runtime.clusters._changed((NAMESPACE, "slurm"), frozenset(), frozenset())
    found = await parts.woken()
    assert found["pods"] == {(NAMESPACE, "slinky-0")}
    assert found["controllers"] == {(NAMESPACE, "slurm")}


async def test_slurm_wakes_kubernetes_nodes_only_where_the_settings_ask_for_it() -> None:
    parts = await settled(cordon_drained_nodes=True)
    parts.runtime.clusters._changed((NAMESPACE, "slurm"), frozenset({"slinky-0"}), frozenset())
    assert len((await parts.woken())["kube_nodes"]) == 1
