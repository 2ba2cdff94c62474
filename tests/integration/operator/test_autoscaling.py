"""NodeSets that follow the queue, on a real API server: what is written, and who else has
written.
"""

from typing import Any

import pytest

from sidecars.autoscaling import applied
from sidecars.custom_resources import NODESETS
from tests.support.apiserver import WatchedNamespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)

QUICK = {
    "max": 3,
    "idleSeconds": 1,
    "coolDownSeconds": 1,
    "stepSeconds": 0,
    "node": "CPUs=4 RealMemory=16000",
}


async def replicas(world: WatchedNamespace) -> int:
    return int((await world.get(NODESETS, "slinky") or {})["spec"]["replicas"])


async def until_replicas(world: WatchedNamespace, count: int) -> None:
    async def look() -> bool:
        return await replicas(world) == count

    await until(f"{count} replicas", look, 60)


async def until_reason(world: WatchedNamespace, reason: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found = await world.condition(NODESETS, "slinky", "Autoscaled")
        return found if found.get("reason") == reason else None

    return await until(f"the reason {reason}", look, 60)


async def test_a_nodeset_grows_for_a_pending_job_and_its_idle_workers_are_removed(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=0, autoscaling=QUICK)
    await until_reason(world, "Satisfied")
    job = world.slurm.job_submit(cpus=8, nodes=2)
    await until_replicas(world, 2)
    await world.until_ready(2)
    world.slurm.job_end(job)
    await until_replicas(world, 0)
    managers = {
        it["manager"]
        for it in (await world.get(NODESETS, "slinky") or {})["metadata"]["managedFields"]
    }
    assert applied.MANAGER in managers


async def test_who_else_sets_the_number_is_named_from_the_managed_fields(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=0, autoscaling=QUICK | {"coolDownSeconds": 3600})
    await until_reason(world, "Satisfied")
    patch = {"spec": {"replicas": 1}}
    await world.client.merge_patch(
        NODESETS, world.namespace, "slinky", patch, subresource="scale", field_manager="kubectl"
    )
    found = await until_reason(world, "OtherOwner")
    assert "'kubectl' has set replicas to 1: autoscaling continues at" in found["message"]
    patch = {"spec": {"replicas": 2}}
    manager = "kube-controller-manager"
    await world.client.merge_patch(
        NODESETS, world.namespace, "slinky", patch, subresource="scale", field_manager=manager
    )

    async def named() -> bool:
        found = await world.condition(NODESETS, "slinky", "Autoscaled")
        return "HorizontalPodAutoscaler" in found.get("message", "")

    await until("the autoscaler to be named", named, 60)
    assert await replicas(world) == 2
