"""Devices of a DRA driver: Kubernetes gives a pod those that Slurm has given to its job."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from sidecars.bridge.claimed_devices import CLAIMS, CLASSES, SLICES
from sidecars.bridge.core.claims import FINALIZER
from sidecars.kube import PODS, AlreadyExists, ApiError, Client, Manifest, load_credentials
from tests.cluster.commands import run as run_command
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support.bridge import live
from tests.support.bridge_devices import (
    NIC,
    PARSED,
    TEMPLATES,
    claim_spec,
    device,
    device_class,
    nic_class,
    resource_slice,
    template,
    with_gpu,
)
from tests.support.bridge_world import TENANT, World, all_rights

SCHEDULER = ("system:kube-scheduler",)


@pytest.fixture(scope="module")
def controllers(plane: ControlPlane) -> Iterator[None]:
    """Those that create, free and delete ResourceClaims."""
    plane.controller_manager.start()
    yield
    plane.controller_manager.stop()


@pytest_asyncio.fixture
async def gpus(world: World, controllers: None) -> AsyncIterator[World]:
    """Four GPUs on each node, and a template for one."""
    world.settings = dataclasses.replace(world.settings, devices=PARSED)
    with contextlib.suppress(AlreadyExists):
        await world.admin.create(CLASSES, device_class())
    for name in world.nodes:
        await world.admin.create(
            SLICES, resource_slice(name, *(device(f"gpu-{index}") for index in range(4)))
        )
    await world.admin.create(TEMPLATES, template(world.namespace, "gpu", claim_spec()))
    yield world
    for name in world.nodes:
        await world.admin.delete(SLICES, None, f"{name}-gpu")


async def create(world: World, name: str, **values: Any) -> None:
    await world.admin.create(PODS, with_gpu(world.namespace, name, **values))


async def claim(world: World, pod: str) -> Manifest:
    """The claim that was created for the pod; {} without one."""
    found, _ = await world.admin.list(CLAIMS, world.namespace)
    return next((it for it in found if it["metadata"]["ownerReferences"][0]["name"] == pod), {})


async def devices(world: World, pod: str) -> list[str]:
    found = (await claim(world, pod)).get("status", {}).get("allocation", {}).get("devices", {})
    return [it["device"] for it in found.get("results", ())]


async def until_bound(world: World, *names: str) -> None:
    async def look() -> bool:
        return all([await world.place(name) for name in names])

    await world.until(f"the pods {names} to be bound", look)


async def run(world: World, indices: str, node: int = 0, pods: int = 1) -> int:
    """The only job runs there with these devices."""
    job = await world.job()
    count = len(indices.split(","))
    world.slurm.job_run(
        job.job_id,
        {world.nodes[node]: pods},
        {world.nodes[node]: f"gpu:h100:{count}(IDX:{indices})"},
    )
    return job.job_id


async def test_a_pod_gets_the_device_that_slurm_has_given_to_its_job(gpus: World) -> None:
    async with gpus.bridge():
        await gpus.records()
        assert gpus.slurm.nodes[gpus.nodes[1]].gres == "gpu:h100:4"
        await create(gpus, "p")
        job_id = await run(gpus, "2", node=1)
        await until_bound(gpus, "p")
        assert await gpus.place() == gpus.nodes[1]
        assert await devices(gpus, "p") == ["gpu-2"]
        found = await claim(gpus, "p")
        assert FINALIZER in found["metadata"]["finalizers"]
        pod = await gpus.pod()
        assert pod is not None
        assert [it["uid"] for it in found["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
        [config] = found["status"]["allocation"]["devices"]["config"]
        assert (config["source"], config["requests"]) == ("FromClass", ["gpu"])
        gpus.slurm.job_end(job_id)
        await gpus.gone()

        async def look() -> bool:
            return not await claim(gpus, "p")

        await gpus.until("the claim to be gone with its pod", look)


async def test_the_pods_of_a_group_get_different_devices_of_their_job(gpus: World) -> None:
    async with gpus.bridge():
        await gpus.records()
        for name in ("a", "b"):
            await create(gpus, name, group=("g", 2))
        await run(gpus, "1,3", pods=2)
        await until_bound(gpus, "a", "b")
        assert sorted([*await devices(gpus, "a"), *await devices(gpus, "b")]) == ["gpu-1", "gpu-3"]


async def test_a_job_that_ends_before_its_pod_is_released_leaves_no_device_behind(
    gpus: World,
) -> None:
    """A bridge writes the allocation and is killed; the next one deletes the pod, and another pod
    gets the device.
    """
    async with gpus.bridge():
        await gpus.records()
        await create(gpus, "p")
        job_id = await run(gpus, "0")

        async def allocated() -> bool:
            return bool(await devices(gpus, "p"))

        await gpus.until("the allocation", allocated)
    gpus.slurm.job_end(job_id)
    async with gpus.bridge():
        await gpus.gone()
        await create(gpus, "q")
        await run(gpus, "0")
        await until_bound(gpus, "q")
        assert await devices(gpus, "q") == ["gpu-0"]


async def test_a_device_that_another_claim_has_is_given_to_nobody(gpus: World) -> None:
    name = f"other-{gpus.namespace}"
    other = {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"namespace": "default", "name": name},
        "spec": claim_spec(),
    }
    await gpus.admin.create(CLAIMS, other)
    results = [
        {"request": "gpu", "driver": "gpu.example.com", "pool": gpus.nodes[0], "device": "gpu-0"}
    ]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    place = CLAIMS, "default", name
    await gpus.admin.merge_patch(*place, status, subresource="status")
    async with gpus.bridge():
        await gpus.records()
        await create(gpus, "p")
        await run(gpus, "0")

        async def shown() -> bool:
            return "gpu-0" in (await gpus.condition()).get("message", "")

        await gpus.until("the reason", shown)
        assert (await gpus.condition())["reason"] == "NodeNotFree"
        assert not await devices(gpus, "p")
        await gpus.admin.delete(*place)
        await until_bound(gpus, "p")


async def test_kube_scheduler_gives_a_device_that_slurm_does_not_manage_beside_one_that_it_does(
    gpus: World,
) -> None:
    with contextlib.suppress(AlreadyExists):
        await gpus.admin.create(CLASSES, nic_class())
    nics = resource_slice(gpus.nodes[1], {"name": "nic-0"}, driver=NIC)
    await gpus.admin.create(SLICES, nics)
    await gpus.admin.create(TEMPLATES, template(gpus.namespace, "nic", claim_spec(name=NIC)))
    item = with_gpu(gpus.namespace, "p")
    item["spec"]["resourceClaims"].append({"name": "nic", "resourceClaimTemplateName": "nic"})
    item["spec"]["containers"][0]["resources"]["claims"].append({"name": "nic"})
    async with gpus.bridge():
        await gpus.records()
        await gpus.admin.create(PODS, item)
        await run(gpus, "2", node=1)
        await until_bound(gpus, "p")
    found, _ = await gpus.admin.list(CLAIMS, gpus.namespace)
    allocations = [it["status"]["allocation"]["devices"]["results"] for it in found]
    assert sorted(one["device"] for its in allocations for one in its) == ["gpu-2", "nic-0"]
    await gpus.admin.delete(SLICES, None, nics["metadata"]["name"])


async def test_what_slurm_can_not_be_asked_for_is_refused_in_the_condition(gpus: World) -> None:
    selectors = [{"cel": {"expression": 'device.attributes["gpu.example.com"].type == "gpu"'}}]
    await gpus.admin.create(
        TEMPLATES, template(gpus.namespace, "chosen", claim_spec(selectors=selectors))
    )
    item = with_gpu(gpus.namespace, "p")
    item["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "chosen"
    async with gpus.bridge():
        await gpus.records()
        await gpus.admin.create(PODS, item)

        async def shown() -> bool:
            return "selectors" in (await gpus.condition()).get("message", "")

        await gpus.until("the reason", shown)
        assert (await gpus.condition())["reason"] == "Refused"
        assert not live(gpus.slurm)


async def test_nobody_but_the_bridge_allocates_and_no_tenant_frees_a_device(
    gpus: World, plane: ControlPlane
) -> None:
    async with gpus.bridge():
        await gpus.records()
        await create(gpus, "p")
        await run(gpus, "0")
        await until_bound(gpus, "p")
    found = await claim(gpus, "p")
    place = CLAIMS, gpus.namespace, found["metadata"]["name"]
    await all_rights(gpus.admin, gpus.namespace)
    # Otherwise, Kubernetes 1.36 and newer refuses most of it before any policy.
    kubectl = [str(tool("kubectl")), f"--kubeconfig={plane.kubeconfig}", "create"]
    rule = ["--verb=patch", "--resource=resourceclaims.resource.k8s.io/binding"]
    run_command([*kubectl, "clusterrole", "tenant-binds", *rule], seconds=60)
    binding = ["clusterrolebinding", "tenant-binds", "--clusterrole=tenant-binds", "--user=tenant"]
    run_command([*kubectl, *binding], seconds=60)
    async with Client.connect(load_credentials(plane.client("tenant", *TENANT))) as tenant:

        async def may() -> bool:
            try:
                await tenant.merge_patch(*place, {"metadata": {"labels": {"mine": "yes"}}})
            except ApiError:
                return False
            return True

        await gpus.until("the rights of the tenant", may)
        for patch, subresource in (
            ({"metadata": {"finalizers": None}}, None),
            ({"status": {"allocation": None, "reservedFor": None}}, "status"),
            (
                {"status": {"reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}]}},
                "status",
            ),
        ):
            with pytest.raises(ApiError, match="delete the pod"):
                await tenant.merge_patch(*place, patch, subresource=subresource)
    async with Client.connect(
        load_credentials(plane.client("scheduler-again", *SCHEDULER))
    ) as scheduler:
        allocation = found["status"]["allocation"]
        # What the plugin of kube-scheduler does with a claim whose node doesn't fit.
        freed = {"status": {"allocation": None, "reservedFor": None}}
        await scheduler.merge_patch(*place, freed, subresource="status")
        with pytest.raises(ApiError, match="only the Slurm Bridge allocates"):
            await scheduler.merge_patch(
                *place, {"status": {"allocation": allocation}}, subresource="status"
            )
