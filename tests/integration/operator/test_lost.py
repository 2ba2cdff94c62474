"""Lost Kubernetes nodes, pods that Slurm doesn't know, records without a slurmd, and drains that
cordon their Kubernetes node.
"""

import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sidecars.custom_resources import CONTROLLERS, NODESETS, RESTAPIS
from sidecars.kube import NODES, PODS, Client, NotFound, load_credentials
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.simulate import SlurmModel, serve
from tests.integration.operator.fences import passed
from tests.integration.operator.test_nodesets import kube_node, kube_nodes, until_hosts
from tests.support.apiserver import WatchedNamespace, namespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)

CORDONED_FOR = "nodeset.slinky.slurm.net/cordoned-for"


async def uid(world: WatchedNamespace, pod: str) -> str | None:
    """Of the pod of that name, also while it is terminating."""
    found = await world.get(PODS, pod)
    return None if found is None else str(found["metadata"]["uid"])


async def on_a_kube_node_of_its_own(
    world: WatchedNamespace, host: str, **spec: Any
) -> tuple[str, str]:
    """A NodeSet with one worker, on Kubernetes node `host`; the worker's pod and its uid."""
    await world.nodeset(**spec)
    await world.until_ready(1)
    [(name, pod)] = (await world.pods()).items()
    assert pod["spec"]["nodeName"] == f"{host}.{world.namespace}"
    return name, pod["metadata"]["uid"]


async def test_a_pod_on_a_lost_kubernetes_node_is_deleted_by_force_only_when_it_is_out_of_service(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1") as daemon_set:
        name, before = await on_a_kube_node_of_its_own(world, "n1", **daemon_set)
        lost = f"n1.{world.namespace}"
        world.dead.add(lost)
        world.slurm.job_start("n1")
        world.slurm.node_vanish("n1")
        unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        await kube_node(world, "n1", {"spec": {"taints": [unreachable]}})
        await world.client.delete(PODS, world.namespace, name, grace_period_seconds=1)

        async def message() -> bool:
            ready = await world.condition(NODESETS, "slinky")
            return (
                ready.get("reason") == "KubeNodeLost"
                and f"kubectl taint nodes {lost}" in ready["message"]
            )

        await until("the condition to say what to do", message)

        async def over() -> bool:
            pod = await world.get(PODS, name)
            assert pod is not None
            ends = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
            return datetime.now(UTC) > ends + timedelta(seconds=1)

        await until("its grace to be over", over)
        await passed(world)
        assert await uid(world, name) == before, (
            "its grace is over, but the Kubernetes node may be alive"
        )

        off = {
            "key": "node.kubernetes.io/out-of-service",
            "value": "nodeshutdown",
            "effect": "NoExecute",
        }
        await kube_node(world, "n1", {"spec": {"taints": [unreachable, off]}})

        async def gone() -> bool:
            return await uid(world, name) != before

        await until("the pod to be forced", gone)


async def test_a_pod_whose_kubernetes_node_is_gone_is_deleted_by_force_if_slurmd_is_silent_too(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1") as daemon_set:
        name, before = await on_a_kube_node_of_its_own(world, "n1", **daemon_set)
        world.dead.add(f"n1.{world.namespace}")
        await world.client.delete(PODS, world.namespace, name)
        await world.client.delete(NODES, None, f"n1.{world.namespace}")
        # Whoever has seen the node that comes has seen the other one go.
        async with kube_nodes(world, "n2"):
            await until_hosts(world, "n2")
            await passed(world)
            assert await uid(world, name) == before, "slurmctld still hears its slurmd"
        world.slurm.node_vanish("n1")

        async def gone() -> bool:
            return await uid(world, name) is None

        await until("the pod to be forced", gone)

        async def pruned() -> bool:
            return "n1" not in world.slurm.nodes

        await until("its record to be pruned", pruned)


async def test_a_node_record_stuck_completing_is_repaired_while_the_next_pod_waits_to_be_scheduled(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    world.slurm.job_end(world.slurm.job_start("slinky-0"), completing=True)
    # Deleted by force, and nowhere to go: nothing of the successor will ever settle the record.
    world.kubelet_works = False
    await world.client.delete(PODS, world.namespace, "slinky-0", grace_period_seconds=0)
    await world.until_pods("slinky-0")

    async def healed() -> bool:
        return "slinky-0" not in world.slurm.nodes

    await until("the record to be deleted", healed)


class Later:
    """A wall clock that can be put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return RealWorld().wall_clock() + self.ahead


@pytest_asyncio.fixture
async def watching(kubeconfig: Path) -> AsyncIterator[tuple[WatchedNamespace, Later]]:
    """A world whose operator cordons Kubernetes nodes, and whose time can be put forward."""
    slurm, later = SlurmModel(), Later()
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, f"lost-{datetime.now(UTC).strftime('%H%M%S%f')}") as name,
        serve(slurm) as url,
    ):
        world = WatchedNamespace(client, name, slurm, url)
        await world.cluster()
        async with world.operator(RealWorld(wall_clock=later), cordon_drained_nodes=True):
            yield world, later


async def test_a_pod_that_slurm_does_not_know_is_replaced_after_a_minute(
    watching: tuple[WatchedNamespace, Later],
) -> None:
    world, later = watching
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    await world.slurmctld()
    before = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
    # As after `scontrol delete`: slurmd runs on and stays unknown.
    assert world.slurm.handle("DELETE", "/slurm/v0.0.45/node/slinky-1", None).status == 200

    async def noticed() -> bool:
        status = ((await world.get(NODESETS, "slinky")) or {}).get("status") or {}
        return bool(status.get("slurmIdle") == 1)

    await until("the operator to notice", noticed)
    assert await uid(world, "slinky-1") == before["slinky-1"]

    async def put_forward(seconds: float) -> None:
        later.ahead = seconds
        look = {"metadata": {"annotations": {"look": str(seconds)}}}
        await world.client.merge_patch(NODESETS, world.namespace, "slinky", look)

    async def message() -> bool:
        return (await world.condition(NODESETS, "slinky")).get("reason") == "NotRegistered"

    await put_forward(11)
    await until("the condition", message)
    await put_forward(61)

    async def replaced() -> bool:
        found = await uid(world, "slinky-1")
        return found not in (None, before["slinky-1"])

    await until("the pod to be replaced", replaced)
    await world.until_ready(2)
    assert await uid(world, "slinky-0") == before["slinky-0"]
    await world.until_event("SlurmNodeNotRegistered")


async def test_a_pod_that_never_registers_is_replaced_after_a_longer_wait_each_time(
    watching: tuple[WatchedNamespace, Later],
) -> None:
    world, later = watching
    world.mute.add("slinky-1")
    await world.nodeset(replicas=2)

    async def put_forward(seconds: float) -> None:
        later.ahead += seconds
        look = {"metadata": {"annotations": {"look": str(later.ahead)}}}
        await world.client.merge_patch(NODESETS, world.namespace, "slinky", look)

    async def runs() -> bool:
        status = ((await world.get(NODESETS, "slinky")) or {}).get("status") or {}
        return (status.get("readyReplicas"), status.get("slurmIdle")) == (2, 1)

    async def message() -> bool:
        return (await world.condition(NODESETS, "slinky")).get("reason") == "NotRegistered"

    await until("both to run and one to be known", runs)
    await world.slurmctld()
    for wait in (1, 2):
        await until("both to run and one to be known", runs)
        await put_forward(11)
        await until("the condition", message)
        before, since = await uid(world, "slinky-1"), time.monotonic()
        await put_forward(50)

        async def replaced(before: str | None = before) -> bool:
            return await uid(world, "slinky-1") not in (None, before)

        await until("the pod to be replaced", replaced)
        assert time.monotonic() - since >= wait


async def test_a_drain_in_slurm_cordons_its_kubernetes_node_and_its_end_uncordons_it_without_a_loop(
    watching: tuple[WatchedNamespace, Later],
) -> None:
    world, _ = watching
    async with kube_nodes(world, "n1") as daemon_set, contextlib.AsyncExitStack() as fences:
        await world.nodeset(**daemon_set)
        await world.until_ready(1)

        async def post(**change: Any) -> None:
            await world.post("n1", **change)

        async def seen() -> tuple[bool, str]:
            node = await world.client.get(NODES, None, f"n1.{world.namespace}")
            marks = node["metadata"].get("annotations") or {}
            return bool(node["spec"].get("unschedulable")), marks.get(CORDONED_FOR, "")

        async def until_seen(cordoned: bool, mark: str) -> None:
            async def look() -> bool:
                return await seen() == (cordoned, mark)

            await until(f"{cordoned=} {mark=}", look)

        present = ["n1"]

        async def behind(host: str) -> None:
            """Wait until a Kubernetes node that comes now has its worker: all earlier changes of
            nodes are seen.
            """
            present.append(host)
            await fences.enter_async_context(kube_nodes(world, host))
            await until_hosts(world, *present)
            await passed(world)

        mark = f"{world.namespace}/slurm: bad disk"
        await post(state=["DRAIN"], reason="bad disk")
        await until_seen(cordoned=True, mark=mark)
        assert world.slurm.nodes["n1"].reason == "bad disk"
        await post(state=["UNDRAIN"])
        await until_seen(cordoned=False, mark="")
        await behind("n2")
        assert "DRAIN" not in world.slurm.states("n1"), "the cordon was no cause of a drain"

        await post(state=["DRAIN"], reason="bad disk")
        await until_seen(cordoned=True, mark=mark)
        await kube_node(world, "n1", {"spec": {"unschedulable": None}})
        await behind("n3")
        assert await seen() == (False, mark), "who uncordons it is not contradicted"
        await post(state=["UNDRAIN"])
        await until_seen(cordoned=False, mark="")

        await kube_node(world, "n1", {"spec": {"unschedulable": True}})

        async def drained() -> bool:
            return "DRAIN" in world.slurm.states("n1")

        await until("a user's cordon to drain", drained)
        await behind("n4")
        assert await seen() == (True, ""), "the operator's own drain is no cause of a cordon"


async def test_deletion_of_a_cluster_does_not_wait_for_a_pod_on_a_lost_kubernetes_node(
    watching: tuple[WatchedNamespace, Later],
) -> None:
    world, later = watching
    async with kube_nodes(world, "n1") as daemon_set:
        name, before = await on_a_kube_node_of_its_own(
            world, "n1", deletionTimeout="1s", **daemon_set
        )
        world.dead.add(f"n1.{world.namespace}")
        for resource, kind in ((CONTROLLERS, "slurm"), (RESTAPIS, "slurm"), (NODESETS, "slinky")):
            await world.client.delete(resource, world.namespace, kind)

        async def asked_to_go() -> bool:
            return bool(
                ((await world.get(PODS, name)) or {}).get("metadata", {}).get("deletionTimestamp")
            )

        await until("the pod to be asked to go", asked_to_go)
        assert await world.get(NODESETS, "slinky") is not None
        later.ahead = 3600
        with contextlib.suppress(NotFound):  # something else may have had it looked at first
            await world.client.merge_patch(
                NODESETS, world.namespace, "slinky", {"metadata": {"annotations": {"look": "now"}}}
            )

        async def gone() -> bool:
            return (
                await world.get(NODESETS, "slinky") is None
                and await world.get(CONTROLLERS, "slurm") is None
            )

        await until("the NodeSet and its Controller to be gone", gone)
        assert await uid(world, name) == before
        await world.client.delete(PODS, world.namespace, name, grace_period_seconds=0)
