"""Devices of the bridge with a real slurmctld and kube-scheduler. No kubelet runs: the test ends
the pods.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from sidecars.bridge.claimed_devices import CLAIMS, CLASSES, SLICES
from sidecars.bridge.core import nodes as policy
from sidecars.bridge.core.devices import by_index, parse
from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import NODES, PODS, AlreadyExists, Manifest
from sidecars.slurm import protocol
from sidecars.slurm.job_states import has_ended
from tests.cluster.control_plane import ControlPlane
from tests.contract.target import Target
from tests.support.apiserver import until
from tests.support.bridge import pod
from tests.support.bridge import slurm as simulated
from tests.support.bridge_devices import (
    DRIVER,
    PARSED,
    RULES,
    TEMPLATES,
    claim_spec,
    claiming,
    device,
    device_class,
    resource_slice,
    template,
    with_gpu,
)
from tests.support.bridge_world import OTHER, World, a_world, slurm_conf
from tests.support.real import ports
from tests.support.real.daemons import Daemons
from tests.support.real.external_slurm import running, target

PORT = ports.BRIDGE_DEVICES


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """slurmctld with the lines of docs/bridge-install.md."""
    lines = slurm_conf("bf_interval=1") + "GresTypes=gpu,gpushare\n"
    with running(tmp_path_factory.mktemp("slurm"), PORT, lines) as found:
        asyncio.run(target(found).call(protocol.create_nodes(OTHER)))
        yield found


@pytest_asyncio.fixture
async def world(slurm: Target, plane: ControlPlane, settings: Settings) -> AsyncIterator[World]:
    """A tenant's namespace, and two nodes."""
    async with a_world(plane, settings, simulated(), user="mail") as found:
        yield found
        for job_id, states in (await slurm.call(protocol.get_job_states())).items():
            if not has_ended(states):
                await slurm.call(protocol.cancel_job(job_id))


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
    job = await slurm.call(
        protocol.get_external_job(int(pod["metadata"]["labels"][bridge.JOB_LABEL]))
    )
    [allocation] = job.allocations
    [gres] = allocation.gres
    [index] = gres.indices or (-1,)
    assert index >= 0
    found = by_index(policy.numbered_of((await slurm.node(allocation.node)).extra), gres.name)[
        index
    ]
    assert found is not None
    return allocation.node, found.name


async def test_kubernetes_gives_each_pod_the_gpu_that_slurm_has_given_to_its_job(
    slurm: Target, world: World
) -> None:
    world.settings = dataclasses.replace(world.settings, devices=PARSED)
    await create_class(world, device_class())
    await world.admin.create(TEMPLATES, template(world.namespace, "gpu", claim_spec()))
    for node in world.nodes:
        await world.admin.create(SLICES, resource_slice(node, device("gpu-0"), device("gpu-1")))
    async with world.bridge():
        await share_gpus(slurm, world)


async def create_class(world: World, item: Manifest) -> None:
    """Unless it exists."""
    with contextlib.suppress(AlreadyExists):
        await world.admin.create(CLASSES, item)


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

    await until("four of five pods, which have all GPUs, to be bound", four)
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

    await until("the next job to have the GPU, and its pod to wait", refused)
    assert await given(world, waiting) == ("", "")
    await world.admin.delete(PODS, world.namespace, ended, grace_period_seconds=0)

    async def followed() -> bool:
        return await world.place(waiting) == has[ended][0]

    await until("the pod that waited to be bound", followed)
    assert await given(world, waiting) == has[ended] == await by_slurm(slurm, world, waiting)


SHARES = "nvidia.com/gpu.shared"
MIG = "mig.example.com"
KINDS = {"whole": 1, "mig": 2, "shared": 2}
"""How many of three pods of each kind fit on the node."""


async def test_whole_gpus_mig_devices_and_shares_of_gpus_are_given_to_as_many_pods_as_the_node_has(
    slurm: Target, world: World
) -> None:
    rules = [*RULES[:2], {"gres": "gpushare", "extendedResource": SHARES}]
    world.settings = dataclasses.replace(world.settings, devices=parse(json.dumps(rules)))
    place, unused = world.nodes
    await world.admin.merge_patch(
        NODES, None, unused, {"metadata": {"labels": {bridge.EXTERNAL_NODE: None}}}
    )
    shares = {"allocatable": {SHARES: "4"}, "capacity": {SHARES: "4"}}
    await world.admin.merge_patch(NODES, None, place, {"status": shares}, subresource="status")
    parts = [device(f"mig-{index}", profile="1g.5gb") for index in range(2)]
    await world.admin.create(SLICES, resource_slice(place, device("gpu-0"), *parts))
    for name, kind, wanted in (("whole", "gpu", DRIVER), ("mig", "mig", MIG)):
        await create_class(world, device_class(wanted, kind))
        await world.admin.create(
            TEMPLATES, template(world.namespace, name, claim_spec(name=wanted))
        )
    async with world.bridge():
        for kind in KINDS:
            for index in range(3):
                item = pod(world.namespace, f"{kind}-{index}")
                if kind == "shared":
                    item["spec"]["containers"][0]["resources"]["limits"] = {SHARES: "2"}
                else:
                    item = claiming(item, kind)
                await world.admin.create(PODS, item)

        async def bound() -> Counter[str]:
            return Counter(name[:-2] for name in await names(world))

        async def waiting() -> int:
            reasons = [await world.condition(it["metadata"]["name"]) for it in await world.pods()]
            return sum(
                "Slurm job" in it.get("message", "") and it["status"] == "True" for it in reasons
            )

        async def all_tried() -> bool:
            return await bound() == KINDS and await waiting() == 4

        await until("as many pods as fit to be bound, and the others to wait for Slurm", all_tried)
        claims = {
            name: await given(world, name)
            for name in await names(world)
            if not name.startswith("shared")
        }
        for name, (nodeset, found) in claims.items():
            assert (nodeset, found) == await by_slurm(slurm, world, name)
        assert sorted(claims.values()) == [(place, "gpu-0"), (place, "mig-0"), (place, "mig-1")]


async def names(world: World) -> list[str]:
    """The pods that are bound."""
    return [it["metadata"]["name"] for it in await world.pods() if it["spec"].get("nodeName")]
