"""What Slurm knows, seen on Kubernetes' side, and the other way round."""

from typing import Any

import pytest

from sidecars.custom_resources import NODESETS
from sidecars.kube import CONFIG_MAPS, NODES, PODS
from sidecars.policy.podstate import deadline_text
from tests.integration.operator.fences import woken
from tests.integration.operator.test_references import until_quiet
from tests.support.apiserver import WatchedNamespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)


async def shown(world: WatchedNamespace, pod: str) -> dict[str, str]:
    """The Slurm states that a pod shows, without their common beginning, and their messages."""
    conditions: list[dict[str, Any]] = (
        ((await world.get(PODS, pod)) or {}).get("status", {}).get("conditions", [])
    )
    return {
        it["type"].removeprefix("SlurmNodeState"): it.get("message", "")
        for it in conditions
        if it["type"].startswith("SlurmNodeState")
    }


async def until_shown(world: WatchedNamespace, pod: str, **states: str) -> None:
    async def look() -> bool:
        return await shown(world, pod) == states

    await until(f"{pod} to show {states}", look)


async def label(world: WatchedNamespace, pod: str) -> str | None:
    """The value of the label that the PodDisruptionBudget selects."""
    labels: dict[str, str] = (
        ((await world.get(PODS, pod)) or {}).get("metadata", {}).get("labels", {})
    )
    return labels.get("nodeset.slinky.slurm.net/pod-protect")


async def annotation(world: WatchedNamespace, pod: str, name: str) -> str | None:
    annotations: dict[str, str] = (
        ((await world.get(PODS, pod)) or {}).get("metadata", {}).get("annotations", {})
    )
    return annotations.get(name)


async def test_a_pod_shows_its_slurm_node_and_is_protected_while_busy(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    await until_shown(world, "slinky-0", Idle="")
    job = world.slurm.job_start("slinky-0")
    await until_shown(world, "slinky-0", Mixed="")
    await until("the label", lambda: label(world, "slinky-0"))
    assert await label(world, "slinky-1") is None
    ready = [
        it
        for it in (await world.pods())["slinky-0"]["status"]["conditions"]
        if it["type"] == "Ready"
    ]
    assert ready[0]["status"] == "True", "the kubelet's conditions stay"

    world.slurm.job_end(job)
    await until_shown(world, "slinky-0", Idle="")

    async def unprotected() -> bool:
        return await label(world, "slinky-0") is None

    await until("the label to go", unprotected)


async def test_no_pod_is_protected_if_its_nodeset_disables_that(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=1, workloadDisruptionProtection=False)
    await world.until_ready(1)
    world.slurm.job_start("slinky-0")
    await until_shown(world, "slinky-0", Mixed="")
    assert await label(world, "slinky-0") is None
    on = {"spec": {"workloadDisruptionProtection": True}}
    await world.client.merge_patch(NODESETS, world.namespace, "slinky", on)
    await until("the label", lambda: label(world, "slinky-0"))


async def test_a_draining_pod_shows_why_and_until_when_and_nothing_is_written_afterwards(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    world.slurm.job_start("slinky-1", time_limit=45)
    started = world.slurm.jobs[max(world.slurm.jobs)].start_time
    world.slurm.job_start("slinky-0", time_limit=60)
    await world.scale(1)
    message = (
        f"slurm-operator: Pod ({world.namespace}/slinky-1) is pending termination for scale-in"
    )
    await until_shown(world, "slinky-1", Mixed=message, Drain=message)
    deadline = await until(
        "a deadline", lambda: annotation(world, "slinky-1", "nodeset.slinky.slurm.net/pod-deadline")
    )
    assert deadline == deadline_text(started + 45 * 60)
    assert await annotation(world, "slinky-0", "nodeset.slinky.slurm.net/pod-deadline") is None
    await until_quiet()
    before = await world.versions()
    await woken(world, "NodeSet")
    await until_quiet()
    assert await world.versions() == before


async def on_kube_node(world: WatchedNamespace, **annotations: str | None) -> None:
    """Annotate the Kubernetes node `machine`: `topology` and `features`."""
    names = {f"{name}.slinky.slurm.net/spec": value for name, value in annotations.items()}
    await world.client.merge_patch(
        NODES, None, "default-node", {"metadata": {"annotations": names}}
    )


async def test_topology_and_features_of_the_kubernetes_node_reach_the_pod_and_its_slurm_node(
    world: WatchedNamespace,
) -> None:
    await on_kube_node(world, topology="topo-switch:s2,topo-block:b2", features="fast,zone-a")
    try:
        await world.nodeset(replicas=1)
        await world.until_ready(1)

        async def stamped(value: str) -> bool:
            return await annotation(world, "slinky-0", "topology.slinky.slurm.net/spec") == value

        async def in_slurm(topology: str, *features: str) -> bool:
            node = world.slurm.nodes["slinky-0"]
            return node.topology == topology and tuple(node.active_features) == features == tuple(
                node.features
            )

        await until("the stamp", lambda: stamped("topo-switch:s2,topo-block:b2"))
        # The simulated register doesn't read the stamp; a real one would have passed the topology
        # itself.
        await until(
            "Slurm to know",
            lambda: in_slurm("topo-switch:s2,topo-block:b2", "k8s/fast", "k8s/zone-a"),
        )
        uid = (await world.pods())["slinky-0"]["metadata"]["uid"]
        await on_kube_node(world, topology="topo-switch:s1", features="zone-b")
        await until("Slurm to know the change", lambda: in_slurm("topo-switch:s1", "k8s/zone-b"))
        await until("the new stamp", lambda: stamped("topo-switch:s1"))
        assert (await world.pods())["slinky-0"]["metadata"]["uid"] == uid
    finally:
        await on_kube_node(world, topology=None, features=None)


async def test_pods_are_created_with_an_empty_topology_if_no_kubernetes_node_has_one(
    world: WatchedNamespace,
) -> None:
    world.kubelet_works = False
    await world.nodeset(replicas=1)
    await world.until_pods("slinky-0")
    assert await annotation(world, "slinky-0", "topology.slinky.slurm.net/spec") == ""


async def conf(world: WatchedNamespace) -> list[str]:
    """Lines of slurm.conf about partitions."""
    config = await world.get(CONFIG_MAPS, "slurm-config")
    text: str = (config or {}).get("data", {}).get("slurm.conf", "")
    return [line for line in text.splitlines() if line.startswith("PartitionName=")]


async def test_a_nodeset_is_not_deleted_while_jobs_ask_for_its_partition_unless_that_is_forced(
    world: WatchedNamespace,
) -> None:
    partition = {"enabled": True, "config": "State=UP"}
    for name in ("one", "two"):
        await world.nodeset(name, replicas=1, oversubscribeNode=True, partition=partition)
    await world.until_ready(1, "one")
    await world.until_ready(1, "two")
    jobs = {name: world.slurm.jobs[world.slurm.job_submit()] for name in ("one", "two")}
    for name, job in jobs.items():
        job.partition = name
        await world.client.delete(NODESETS, world.namespace, name)

    async def waiting(name: str) -> bool:
        ready = await world.condition(NODESETS, name)
        return (
            ready.get("reason") == "JobsRefer"
            and f"({jobs[name].job_id}) would be lost" in ready["message"]
        )

    async def gone(name: str) -> bool:
        return await world.get(NODESETS, name) is None

    await until("one to say what it waits for", lambda: waiting("one"))
    await until("two to say what it waits for", lambda: waiting("two"))
    assert await world.pods() == {}
    closed = [f"PartitionName={name} Nodes={name} State=INACTIVE" for name in ("one", "two")]

    async def are_closed() -> bool:
        return await conf(world) == closed

    await until("the partitions to be closed", are_closed)
    await world.client.merge_patch(
        NODESETS, world.namespace, "two", {"spec": {"forceRemoval": True}}
    )
    await until("two to go", lambda: gone("two"))
    assert not await gone("one")
    world.slurm.job_end(jobs["one"].job_id, state="CANCELLED")
    await until("one to go", lambda: gone("one"))

    async def no_lines() -> bool:
        return await conf(world) == []

    await until("the lines to go", no_lines)


async def test_a_disabled_partition_is_closed_until_no_job_asks_for_it(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1, partition={"enabled": True, "config": "State=UP"})
    await world.until_ready(1)
    job = world.slurm.jobs[world.slurm.job_submit()]
    job.partition = "slinky"
    off = {"spec": {"partition": {"enabled": False}}}
    await world.client.merge_patch(NODESETS, world.namespace, "slinky", off)

    async def message() -> bool:
        return "would be lost" in (
            await world.condition(NODESETS, "slinky", "PartitionsReleased")
        ).get("message", "")

    async def lines(*wanted: str) -> bool:
        return await conf(world) == list(wanted)

    await until("the condition", message)
    await until(
        "the partition to be closed",
        lambda: lines("PartitionName=slinky Nodes=slinky State=INACTIVE"),
    )
    world.slurm.job_end(job.job_id, state="CANCELLED")
    await until("the line to go", lines)
    assert await world.condition(NODESETS, "slinky", "PartitionsReleased") == {}
