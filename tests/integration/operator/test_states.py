"""What Slurm knows, seen on Kubernetes' side, and the other way round."""

import asyncio
from typing import Any

import pytest

from sidecars.kube import PODS
from sidecars.operator.caches import NODESETS
from sidecars.policy.podstate import deadline_text
from tests.integration.operator.world import World, until

pytestmark = pytest.mark.timeout(60, func_only=True)


async def shown(world: World, pod: str) -> dict[str, str]:
    """The Slurm states that a pod shows, without their common beginning, and their messages."""
    conditions: list[dict[str, Any]] = ((await world.get(PODS, pod)) or {}).get("status", {}).get("conditions", [])
    return {
        it["type"].removeprefix("SlurmNodeState"): it.get("message", "")
        for it in conditions
        if it["type"].startswith("SlurmNodeState")
    }


async def until_shown(world: World, pod: str, **states: str) -> None:
    async def look() -> bool:
        return await shown(world, pod) == states

    await until(f"{pod} to show {states}", look)


async def label(world: World, pod: str) -> str | None:
    """The value of the label that the PodDisruptionBudget selects."""
    labels: dict[str, str] = ((await world.get(PODS, pod)) or {}).get("metadata", {}).get("labels", {})
    return labels.get("nodeset.slinky.slurm.net/pod-protect")


async def annotation(world: World, pod: str, name: str) -> str | None:
    annotations: dict[str, str] = ((await world.get(PODS, pod)) or {}).get("metadata", {}).get("annotations", {})
    return annotations.get(name)


async def test_a_pod_shows_its_slurm_node_and_is_protected_while_busy(world: World) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    await until_shown(world, "slinky-0", Idle="")
    job = world.slurm.job_start("slinky-0")
    await until_shown(world, "slinky-0", Mixed="")
    await until("the label", lambda: label(world, "slinky-0"))
    assert await label(world, "slinky-1") is None
    ready = [it for it in (await world.pods())["slinky-0"]["status"]["conditions"] if it["type"] == "Ready"]
    assert ready[0]["status"] == "True", "the kubelet's conditions stay"

    world.slurm.job_end(job)
    await until_shown(world, "slinky-0", Idle="")

    async def unprotected() -> bool:
        return await label(world, "slinky-0") is None

    await until("the label to go", unprotected)


async def test_no_pod_is_protected_where_the_nodeset_says_so(world: World) -> None:
    await world.nodeset(replicas=1, workloadDisruptionProtection=False)
    await world.until_ready(1)
    world.slurm.job_start("slinky-0")
    await until_shown(world, "slinky-0", Mixed="")
    assert await label(world, "slinky-0") is None
    on = {"spec": {"workloadDisruptionProtection": True}}
    await world.client.merge_patch(NODESETS, world.namespace, "slinky", on)
    await until("the label", lambda: label(world, "slinky-0"))


async def test_a_draining_pod_shows_why_and_until_when_and_nothing_is_written_afterwards(world: World) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    world.slurm.job_start("slinky-1", time_limit=45)
    started = world.slurm.jobs[max(world.slurm.jobs)].start_time
    world.slurm.job_start("slinky-0", time_limit=60)
    await world.scale(1)
    said = f"slurm-operator: Pod ({world.namespace}/slinky-1) is pending termination for scale-in"
    await until_shown(world, "slinky-1", Mixed=said, Drain=said)
    deadline = await until("a deadline", lambda: annotation(world, "slinky-1", "nodeset.slinky.slurm.net/pod-deadline"))
    assert deadline == deadline_text(started + 45 * 60)
    assert await annotation(world, "slinky-0", "nodeset.slinky.slurm.net/pod-deadline") is None
    await asyncio.sleep(1)
    before = await world.versions()
    await asyncio.sleep(2)
    assert await world.versions() == before
