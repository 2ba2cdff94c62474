"""Devices of the bridge with a real slurmctld and kube-scheduler. No kubelet runs: the test ends the pods."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sidecars.bridge.devices import CLAIMS, CLASSES, SLICES
from sidecars.contract import bridge
from sidecars.kube import PODS
from sidecars.policy.bridge import nodes as policy
from sidecars.policy.bridge.devices import by_index
from sidecars.slurm import protocol
from tests.cluster.control_plane import ControlPlane
from tests.contract.target import Target
from tests.e2e.test_external_jobs import answers, daemons
from tests.support.apiserver import until
from tests.support.bridge import slurm as simulated
from tests.support.bridge_devices import (
    PARSED,
    TEMPLATES,
    claim_spec,
    device,
    device_class,
    resource_slice,
    template,
    with_gpu,
)
from tests.support.bridge_world import World, a_world, control_plane, slurm_conf
from tests.support.real import ports

PORT = ports.BRIDGE_DEVICES


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """slurmctld with the lines of docs/bridge.md."""
    with daemons(tmp_path_factory.mktemp("slurm"), PORT, slurm_conf("bf_interval=1") + "GresTypes=gpu\n") as target:
        asyncio.run(answers(target))
        yield target


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes with the chart."""
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest_asyncio.fixture
async def world(slurm: Target, plane: ControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    """A tenant's namespace, and two nodes."""
    # A list of nodes that is empty counts only after a minute.
    other = "NodeName=other NodeAddr=127.0.0.1 CPUs=1 RealMemory=100 State=External Feature=other"
    nodes = await slurm.call(protocol.get_nodes())
    if nodes is None or all(it.name != "other" for it in nodes.nodes):
        await slurm.call(protocol.create_nodes(other))
    key = tmp_path / "jwt.key"
    key.write_bytes(slurm.key)
    async with a_world(plane, slurm.url, key, simulated(), user="mail") as found:
        yield found


PODS_WITH_GPUS = tuple(f"gpu{index}" for index in range(5))


async def given(world: World, name: str) -> tuple[str, str]:
    """The node and the device in the claim of a pod; "" while it has none."""
    found, _ = await world.admin.list(CLAIMS, world.namespace)
    its = next((it for it in found if it["metadata"]["ownerReferences"][0]["name"] == name), {})
    results = its.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return next(((it["pool"], it["device"]) for it in results), ("", ""))


async def by_slurm(slurm: Target, world: World, name: str) -> tuple[str, str]:
    """The node and the device that Slurm has given to the job of a pod."""
    pod = await world.pod(name)
    assert pod is not None
    job = await slurm.call(protocol.get_external_job(int(pod["metadata"]["labels"][bridge.JOB_LABEL])))
    [allocation] = job.allocations
    [gres] = allocation.gres
    [index] = gres.indices or (-1,)
    assert index >= 0
    found = by_index(policy.numbered_of((await slurm.node(allocation.node)).extra), gres.name)[index]
    assert found is not None
    return allocation.node, found.name


async def test_kubernetes_gives_each_pod_the_gpu_that_slurm_has_given_to_its_job(
    slurm: Target, world: World, plane: ControlPlane
) -> None:
    plane.controller_manager.start()
    world.settings = dataclasses.replace(world.settings, devices=PARSED)
    await world.admin.create(CLASSES, device_class())
    await world.admin.create(TEMPLATES, template(world.namespace, "gpu", claim_spec()))
    for node in world.nodes:
        await world.admin.create(SLICES, resource_slice(node, device("gpu-0"), device("gpu-1")))
    async with world.bridge():
        await share_gpus(slurm, world)


async def share_gpus(slurm: Target, world: World) -> None:
    for name in PODS_WITH_GPUS:
        item = with_gpu(world.namespace, name)
        # Slurm compares labels with an Extra that has the devices as well.
        item["spec"]["nodeSelector"] = {bridge.EXTERNAL_NODE: "true"}
        await world.admin.create(PODS, item)

    async def bound() -> set[str]:
        return {name for name in PODS_WITH_GPUS if await world.place(name)}

    async def four() -> bool:
        return len(await bound()) == 4

    await until("four of five pods, which have all GPUs, to be bound", four, 90)
    has = {name: await given(world, name) for name in await bound()}
    assert len(set(has.values())) == 4
    for name, (node, gpu) in has.items():
        assert await by_slurm(slurm, world, name) == (node, gpu)
        assert await world.place(name) == node
    [waiting] = set(PODS_WITH_GPUS) - has.keys()
    ended = min(has)
    pod = await world.pod(ended)
    assert pod is not None
    await slurm.call(protocol.cancel_job(int(pod["metadata"]["labels"][bridge.JOB_LABEL])))

    async def refused() -> bool:
        return (await world.condition(waiting)).get("reason") == "NodeNotFree"

    await until("the next job to have the GPU, and its pod to wait", refused, 60)
    assert await given(world, waiting) == ("", "")
    await world.admin.delete(PODS, world.namespace, ended, grace_period_seconds=0)

    async def followed() -> bool:
        return await world.place(waiting) == has[ended][0]

    await until("the pod that waited to be bound", followed, 60)
    assert await given(world, waiting) == has[ended] == await by_slurm(slurm, world, waiting)
