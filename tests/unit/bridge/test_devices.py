"""What was sent to ResourceClaims, on a double of Kubernetes whose watch shows nothing unasked."""

import copy
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest

from sidecars.bridge.claimed_devices import CLAIMS, REPEAT_AFTER, Devices, Stores
from sidecars.bridge.core import records
from sidecars.bridge.core.claim_manifests import DeviceClass, ResourceClaim
from sidecars.bridge.core.devices import Claim
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import Deallocate, GroupKey
from sidecars.kube import Client, Invalid, Manifest, Store, Unreachable
from sidecars.kube.store import Key
from tests.support.bridge_devices import DRIVER, PARSED, claim_spec, device_class, with_gpu
from tests.support.kube_double import KubeDouble

POD = records.Pod("u", "team", "p", GroupKey("team", "p"), gated=True)


@dataclass
class Scene:
    """A pod whose claim has a device."""

    kube: KubeDouble
    devices: Devices
    claims: Store[ResourceClaim]
    pod: Pod
    classes: Store[DeviceClass]
    now: float = 0.0

    def stored(self) -> Manifest:
        return copy.deepcopy(self.kube.objects(CLAIMS)["team", "p-gpu"])

    def show(self) -> None:
        """The watch has shown what is stored."""
        self.claims.put(msgspec.convert(self.stored(), ResourceClaim))

    def claim(self) -> Claim:
        [found] = self.devices.of(self.pod).claims or ()
        return found

    async def deallocate(self) -> None:
        await self.devices.deallocate(self.pod, Deallocate(POD, self.claim()))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """As the watch has shown it."""
    async with KubeDouble() as kube, Client.connect(kube.credentials) as client:
        item = with_gpu("team", "p")
        item["metadata"]["uid"] = "u"
        item["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
        stores = Stores(Store(), Store(), Store())
        devices = Devices(PARSED, stores, client, lambda: found.now)
        found = Scene(kube, devices, stores.claims, msgspec.convert(item, Pod), stores.classes)
        stores.classes.put(msgspec.convert(device_class(), DeviceClass))
        owner = {"kind": "Pod", "name": "p", "uid": "u", "controller": True}
        metadata = {"namespace": "team", "name": "p-gpu", "ownerReferences": [owner]}
        result = {"request": "gpu", "driver": DRIVER, "pool": "k1", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": "u"}]}
        kube.put(CLAIMS, {"metadata": metadata, "spec": claim_spec(), "status": status})
        found.show()
        yield found


async def test_a_claim_has_no_devices_from_when_they_are_taken_back_until_it_shows_something_else(
    scene: Scene,
) -> None:
    assert not scene.claim().returned
    await scene.deallocate()
    assert "allocation" not in scene.stored()["status"]
    assert scene.claim().granted
    assert scene.claim().returned
    scene.devices.forget()
    assert scene.claim().returned
    scene.show()
    scene.devices.forget()
    assert not scene.devices._returned
    assert scene.claim() == Claim(scene.claim().uid, "p-gpu", scene.claim().wishes)


async def test_a_claim_of_another_namespace_is_none_of_the_pods(scene: Scene) -> None:
    """Whoever creates it writes any name and any owner."""
    its, forged = scene.claim(), scene.stored()
    forged["metadata"] |= {"namespace": "other", "uid": "forged"}
    scene.claims.put(msgspec.convert(forged, ResourceClaim))
    assert scene.claim() == its
    await scene.devices.deallocate(
        scene.pod, Deallocate(POD, dataclasses.replace(its, uid="forged"))
    )
    assert "allocation" in scene.stored()["status"]


async def test_devices_are_taken_back_once_and_again_when_that_is_not_seen_for_a_while(
    scene: Scene,
) -> None:
    await scene.deallocate()
    # Another request would be refused, as the claim has changed.
    await scene.deallocate()
    scene.now += REPEAT_AFTER
    with pytest.raises(Invalid):
        await scene.deallocate()


async def test_devices_whose_return_had_no_answer_are_not_used_before_it_is_repeated(
    scene: Scene,
) -> None:
    scene.kube.write_faults.append("drop")
    with pytest.raises(Unreachable):
        await scene.deallocate()
    assert scene.claim().returned
    scene.now += REPEAT_AFTER
    await scene.deallocate()
    assert "allocation" not in scene.stored()["status"]


@pytest.mark.parametrize("level", ["requests", "limits"])
async def test_a_pod_with_the_extended_resource_of_a_class_is_refused_while_the_class_has_it(
    scene: Scene, level: str
) -> None:
    """kube-scheduler would allocate its devices, which an admission policy refuses."""
    item = with_gpu("team", "q")
    item["metadata"]["uid"] = "q"
    item["spec"].pop("resourceClaims")
    item["spec"]["containers"][0]["resources"] = {level: {"example.com/gpu": "1"}}
    wanting = msgspec.convert(item, Pod)
    assert not scene.devices.of(wanting).problem
    named = device_class("fast")
    named["spec"]["extendedResourceName"] = "example.com/gpu"
    scene.classes.put(msgspec.convert(named, DeviceClass))
    problem = scene.devices.of(wanting).problem
    assert "example.com/gpu is of DeviceClass fast" in problem
    assert "ResourceClaimTemplate" in problem
    named["spec"]["extendedResourceName"] = "example.com/other"
    scene.classes.put(msgspec.convert(named, DeviceClass))
    assert not scene.devices.of(wanting).problem
    named["spec"]["extendedResourceName"] = "example.com/gpu"
    scene.classes.put(msgspec.convert(named, DeviceClass))
    scene.classes.discard(Key("", "fast"))
    assert not scene.devices.of(wanting).problem
