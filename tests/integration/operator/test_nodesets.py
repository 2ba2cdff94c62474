"""Modes, revisions, update strategies and claims of NodeSets, told by what an administrator would see."""

from typing import Any

import pytest

from sidecars.kube import CONTROLLER_REVISIONS, Manifest
from sidecars.operator.caches import NODESETS
from tests.integration.operator.world import World, until

pytestmark = pytest.mark.timeout(60, func_only=True)

HASH = "controller-revision-hash"


async def change(world: World, name: str = "slinky", **spec: Any) -> None:
    """Patch a NodeSet's spec."""
    await world.client.merge_patch(NODESETS, world.namespace, name, {"spec": spec})


async def revisions(world: World) -> dict[str, Manifest]:
    """ControllerRevisions by hash."""
    items, _ = await world.client.list(CONTROLLER_REVISIONS, world.namespace)
    return {item["metadata"]["labels"][HASH]: item for item in items}


async def until_rolled(world: World, image: str, count: int) -> str:
    """Wait until all pods have the image and a successor's uid is ready; the hash of their revision."""

    async def rolled() -> str | None:
        pods = list((await world.pods()).values())
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        hashes = {pod["metadata"]["labels"][HASH] for pod in pods}
        alive = not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
        return hashes.pop() if len(pods) == count and images == {image} and alive else None

    found = await until(f"all pods to have {image}", rolled, seconds=20)
    await world.until_ready(count)
    return found


async def test_revisions_are_stored_rolled_back_to_and_pruned(world: World) -> None:
    await world.nodeset(replicas=1, revisionHistoryLimit=1, slurmd={"image": "slurmd:1"})
    first = await until_rolled(world, "slurmd:1", 1)
    await change(world, slurmd={"image": "slurmd:2"})
    second = await until_rolled(world, "slurmd:2", 1)
    stored = await revisions(world)
    assert {name: item["revision"] for name, item in stored.items()} == {first: 1, second: 2}
    await change(world, slurmd={"image": "slurmd:1"})
    assert await until_rolled(world, "slurmd:1", 1) == first
    assert {name: item["revision"] for name, item in (await revisions(world)).items()} == {first: 3, second: 2}
    await change(world, slurmd={"image": "slurmd:3"})
    third = await until_rolled(world, "slurmd:3", 1)

    async def pruned() -> bool:
        return set(await revisions(world)) == {first, third}

    await until("the oldest revision to be pruned", pruned)


async def test_a_name_that_another_revision_has_is_a_collision_and_another_is_found(world: World) -> None:
    await world.nodeset(replicas=0, slurmd={"image": "slurmd:1"})
    [taken] = await until("the revision", lambda: revisions(world))
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": f"other-{taken}", "namespace": world.namespace},
        "revision": 1,
        "data": {},
    }
    await world.client.create(CONTROLLER_REVISIONS, foreign)
    await world.nodeset("other", replicas=1, slurmd={"image": "slurmd:1"})

    async def collided() -> bool:
        status = ((await world.get(NODESETS, "other")) or {}).get("status") or {}
        return status.get("collisionCount") == 1 and status["nodeSetHash"] != taken

    await until("the collision to be counted", collided)
    await world.until_ready(1, "other")
