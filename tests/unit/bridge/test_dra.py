"""Devices of a DRA driver by the whole role, against doubles of Kubernetes and of Slurm."""

import dataclasses
from typing import Any

import pytest

from sidecars.bridge import claimed_devices as devices
from sidecars.bridge.claimed_devices import CLAIMS, CLASSES, SLICES
from sidecars.contract import bridge
from sidecars.kube import PODS
from tests.support.bridge import live
from tests.support.bridge_devices import (
    DRIVER,
    PARSED,
    claim_spec,
    device,
    device_class,
    resource_slice,
    with_gpu,
)
from tests.unit.bridge.world import World


@pytest.fixture
def gpus(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A node with three GPUs."""
    monkeypatch.setattr(devices, "REPEAT_AFTER", 0.5)
    world.settings = dataclasses.replace(world.settings, devices=PARSED)
    world.kube.put(SLICES, resource_slice("k1", *(device(f"gpu-{index}") for index in range(3))))
    world.kube.put(CLASSES, device_class())
    return world


def claim(world: World, pod: str = "p") -> Any:
    return world.kube.objects(CLAIMS)["team", f"{pod}-gpu"]


def given(world: World, pod: str = "p") -> list[str]:
    allocation = (claim(world, pod).get("status") or {}).get("allocation") or {}
    return [it["device"] for it in allocation.get("devices", {}).get("results", ())]


def create(world: World, name: str = "p", *, claimed: bool = True) -> None:
    """A pod, and its claim as kube-controller-manager creates it."""
    world.kube.put(PODS, with_gpu("team", name))
    if claimed:
        create_claim(world, name)


def create_claim(world: World, name: str = "p") -> None:
    item = world.pod(name)
    owner = {"kind": "Pod", "name": name, "uid": item["metadata"]["uid"], "controller": True}
    metadata = {"namespace": "team", "name": f"{name}-gpu", "ownerReferences": [owner]}
    world.kube.put(CLAIMS, {"metadata": metadata, "spec": claim_spec(), "status": {}})
    item["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    world.kube.put(PODS, item)


async def run(world: World, index: int) -> None:
    job = await world.job()
    world.slurm.job_run(job.job_id, {"k1": 1}, {"k1": f"gpu:h100:1(IDX:{index})"})


async def test_a_pod_gets_no_job_before_its_device_class_exists(gpus: World) -> None:
    gpus.kube.remove(CLASSES, "", DRIVER)
    create(gpus)
    async with gpus.bridge():
        words = f"DeviceClass {DRIVER} doesn't exist"
        await gpus.until("the reason", lambda: words in gpus.condition().get("message", ""))
        assert not live(gpus.slurm)
        gpus.kube.put(CLASSES, device_class())
        await gpus.job()


async def record(world: World) -> None:
    await world.until(
        "the record", lambda: "k1" in world.slurm.nodes and bool(world.slurm.nodes["k1"].extra)
    )


async def test_a_pod_with_a_claim_gets_the_device_of_its_job_and_is_released(gpus: World) -> None:
    async with gpus.bridge():
        await record(gpus)
        assert gpus.slurm.nodes["k1"].gres == "gpu:h100:3"
        create(gpus)
        await run(gpus, 1)
        await gpus.until("the release", gpus.released)
    assert given(gpus) == ["gpu-1"]


async def test_a_pod_waits_for_its_claim_and_has_no_job_before(gpus: World) -> None:
    async with gpus.bridge():
        await record(gpus)
        create(gpus, claimed=False)
        await gpus.until(
            "the reason", lambda: "doesn't exist yet" in gpus.condition().get("message", "")
        )
        assert not live(gpus.slurm)
        create_claim(gpus)
        await gpus.job()


async def test_an_allocation_without_an_answer_is_written_once_and_the_pod_released(
    gpus: World,
) -> None:
    async with gpus.bridge():
        await record(gpus)
        create(gpus)
        await gpus.job()
        await gpus.until("the condition", lambda: bool(gpus.condition()))
        gpus.kube.write_faults.extend(["drop"] * 2)
        await run(gpus, 2)
        await gpus.until("the release", gpus.released)
    assert given(gpus) == ["gpu-2"]


async def test_the_next_bridge_takes_back_the_device_of_a_job_that_has_another_one_now(
    gpus: World,
) -> None:
    create(gpus)
    item = claim(gpus)
    result = {"request": "gpu", "driver": DRIVER, "pool": "k1", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": "p", "uid": gpus.pod()["metadata"]["uid"]}
    item["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    gpus.kube.put(CLAIMS, item)
    async with gpus.bridge():
        await record(gpus)
        await run(gpus, 1)
        await gpus.until("the release", gpus.released)
    assert given(gpus) == ["gpu-1"]


async def test_a_driver_that_publishes_its_devices_later_gets_another_record(gpus: World) -> None:
    gpus.kube.remove(SLICES, "", "k1-gpu")
    async with gpus.bridge():
        await record(gpus)
        assert gpus.slurm.nodes["k1"].gres == ""
        gpus.kube.put(SLICES, resource_slice("k1", device("gpu-0")))
        await gpus.until(
            "the GRES",
            lambda: "k1" in gpus.slurm.nodes and gpus.slurm.nodes["k1"].gres == "gpu:h100:1",
        )


async def test_without_a_rule_no_claim_is_read_and_pods_with_claims_are_refused(
    world: World,
) -> None:
    async with world.bridge():
        create(world)
        await world.until(
            "the reason", lambda: "mapped no DeviceClass" in world.condition().get("message", "")
        )
        assert not any("resource.k8s.io" in call.path for call in world.kube.calls)
        assert bridge.JOB_LABEL not in world.pod()["metadata"]["labels"]
