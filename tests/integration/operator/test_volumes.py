"""The volume of slurmctld's state gets another size, on a real API server with Kubernetes'
StatefulSet controller.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import pytest
import pytest_asyncio

from postrender.preview.volumes import Volumes
from sidecars.contract.status import Status, encode
from sidecars.custom_resources import CONTROLLERS
from sidecars.kube import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    AlreadyExists,
    Client,
    Manifest,
    Resource,
    load_credentials,
)
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.simulate import SlurmModel, serve
from tests.cluster.control_plane import ControlPlane
from tests.integration.operator.test_permissions import ACCOUNT, grant, until_granted
from tests.integration.operator.test_preview import previewed, stream
from tests.support.apiserver import RUNNING, WatchedNamespace, control_plane, namespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)

STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False
)
NUMBERS = itertools.count()
POD, CLAIM, STATEFUL_SET = "slurm-controller-0", "statesave-slurm-controller-0", "slurm-controller"
CONDITIONS = ("ConfigurationAccepted", "ConfigurationRunning", "SlurmKey")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One with the controllers that create, adopt and orphan pods."""
    with control_plane(tmp_path_factory.mktemp("volumes")) as found:
        found.manager_options = [
            "--controllers=statefulset-controller,garbage-collector-controller"
        ]
        found.controller_manager.start()
        yield found


class World(WatchedNamespace):
    """A Controller whose slurmctld runs, on a claim of a StorageClass `grows` or `fixed`."""

    async def fetch_status(self, *_: str) -> Mapping[str, Any]:
        """Of a `reconfigure` that takes what is published."""
        found = (await self.get(CONFIG_MAPS, "slurm-config")) or {}
        sha256 = json.loads(found["data"]["manifest.json"])["sha256"]
        return encode(Status(sha256, accepted=sha256, running=sha256))

    async def change(self, storage: str, **spec: Any) -> None:
        """Ask for a volume of this size."""
        persistence = {"resources": {"requests": {"storage": storage}}}
        await self.client.merge_patch(
            CONTROLLERS, self.namespace, "slurm", {"spec": {"persistence": persistence, **spec}}
        )

    async def live(self, resource: Resource, name: str) -> Manifest:
        """An object that exists."""

        async def found() -> Manifest | None:
            return await self.get(resource, name)

        return await until(f"{resource.kind} {name} to exist", found)

    async def until_grown(self, storage: str, other_than: str) -> Manifest:
        """Wait for another StatefulSet with this size, and for its pod to be adopted; the pod."""

        async def adopted() -> Manifest | None:
            stateful_set = await self.get(STATEFUL_SETS, STATEFUL_SET) or {
                "metadata": {"uid": other_than}
            }
            pod = await self.get(PODS, POD) or {"metadata": {}}
            uid = stateful_set["metadata"]["uid"]
            owners = [it["uid"] for it in pod["metadata"].get("ownerReferences") or ()]
            return (
                pod
                if uid != other_than and size(stateful_set) == storage and owners == [uid]
                else None
            )

        return await until(f"a StatefulSet with {storage}, and its pod", adopted)

    async def until_reported(self, reason: str) -> str:
        """Wait until the Controller is Ready with this reason, and all of CONDITIONS are True; the
        message.
        """

        async def reported() -> str | None:
            generation = (await self.live(CONTROLLERS, "slurm"))["metadata"]["generation"]
            found = [
                await self.condition(CONTROLLERS, "slurm", kind) for kind in ("Ready", *CONDITIONS)
            ]
            true = all(
                (it.get("status"), it.get("observedGeneration")) == ("True", generation)
                for it in found
            )
            return str(found[0]["message"]) if true and found[0]["reason"] == reason else None

        return await until(f"the Controller to be Ready with {reason}", reported)

    async def kubelet(self) -> None:
        """slurmctld's pod runs as soon as it exists, and its claim is bound."""
        while True:
            claim, pod = await self.get(PERSISTENT_VOLUME_CLAIMS, CLAIM), await self.get(PODS, POD)
            if claim is not None and claim["status"].get("phase") != "Bound":
                capacity = {"storage": claim["spec"]["resources"]["requests"]["storage"]}
                await self._status(
                    PERSISTENT_VOLUME_CLAIMS, CLAIM, {"phase": "Bound", "capacity": capacity}
                )
            if pod is not None and pod["status"].get("phase") != "Running":
                names = {
                    kind: [
                        {"name": it["name"], "image": "", "imageID": "", **RUNNING}
                        for it in pod["spec"][kind]
                    ]
                    for kind in ("initContainers", "containers")
                }
                ready = {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                status = {"phase": "Running", "conditions": [ready], "podIP": "10.0.0.1"}
                status |= {"podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": names["containers"]}
                await self._status(
                    PODS, POD, {**status, "initContainerStatuses": names["initContainers"]}
                )
            await asyncio.sleep(0.05)

    async def _status(self, resource: Resource, name: str, status: Manifest) -> None:
        await self.client.merge_patch(
            resource, self.namespace, name, {"status": status}, subresource="status"
        )


def size(stateful_set: Manifest) -> str | None:
    """What new claims of it request."""
    templates = (stateful_set.get("spec") or {}).get("volumeClaimTemplates") or [{"spec": {}}]
    return ((templates[0]["spec"].get("resources") or {}).get("requests") or {}).get("storage")


@pytest.fixture
def storage_class() -> str:
    """That of the claim."""
    return "grows"


@pytest_asyncio.fixture
async def world(plane: ControlPlane, storage_class: str) -> AsyncIterator[World]:
    """A cluster that runs, without an operator."""
    slurm = SlurmModel()
    async with (
        Client.connect(load_credentials(plane.kubeconfig)) as client,
        namespace(client, f"volumes-{next(NUMBERS)}") as name,
        serve(slurm) as url,
    ):
        for kind, grows in (("grows", True), ("fixed", False)):
            made = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": kind},
            }
            with contextlib.suppress(AlreadyExists):
                await client.create(
                    STORAGE_CLASSES, {**made, "provisioner": "none", "allowVolumeExpansion": grows}
                )
        found = World(client, name, slurm, url)
        await found.cluster()
        await found.client.merge_patch(
            CONTROLLERS,
            name,
            "slurm",
            {"spec": {"persistence": {"storageClassName": storage_class}}},
        )
        kubelet = asyncio.create_task(found.kubelet())
        try:
            yield found
        finally:
            kubelet.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await kubelet


async def previewed_volumes(world: World, plane: ControlPlane, storage: str) -> Sequence[Volumes]:
    """What the preview reports of this size."""
    after = await stream(world)
    for it in after:
        if it["kind"] == "Controller":
            it["spec"]["persistence"]["resources"] = {"requests": {"storage": storage}}
    return (await asyncio.to_thread(previewed, world, plane.kubeconfig, after)).volumes


@contextlib.asynccontextmanager
async def running(world: World, plane: ControlPlane) -> AsyncIterator[None]:
    """An operator with the rights that the chart grants it for this namespace, once all is
    Ready.
    """
    async with Client.connect(load_credentials(plane.client("operator", ACCOUNT))) as client:
        await grant(world.client, world.namespace)
        await until_granted(client, world.namespace)
        restricted = dataclasses.replace(world, client=client)
        async with restricted.operator(around=RealWorld(fetch_status=world.fetch_status)):
            await world.until_reported("Ready")
            yield


async def test_a_larger_volume_grows_the_claim_and_slurmctlds_pod_keeps_running(
    world: World, plane: ControlPlane
) -> None:
    async with running(world, plane):
        before, pod = await world.live(STATEFUL_SETS, STATEFUL_SET), await world.live(PODS, POD)
        [volume] = await previewed_volumes(world, plane, "8Gi")
        assert volume.outcome == "it is created again without its pods, which keep running"
        assert volume.details == (f"claim {CLAIM} grows from 4Gi to 8Gi",)
        await world.change("8Gi", extraConf="KillWait=7\n")
        after = await world.until_grown("8Gi", before["metadata"]["uid"])
        assert after["metadata"]["uid"] == pod["metadata"]["uid"]
        assert "deletionTimestamp" not in after["metadata"]
        claim = await world.live(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        assert claim["spec"]["resources"]["requests"]["storage"] == "8Gi"
        await world.until_reported("Ready")
        await world.until_event("VolumeResized", "Controller", f"claim {CLAIM}: 4Gi → 8Gi")
        # Its pod is as its template asks for, so it isn't replaced later either.
        created = await world.live(STATEFUL_SETS, STATEFUL_SET)
        assert (
            created["status"]["updateRevision"]
            == after["metadata"]["labels"]["controller-revision-hash"]
        )
        assert (await world.live(PODS, POD))["metadata"]["uid"] == pod["metadata"]["uid"]


@pytest.mark.parametrize("ends", ["after the claim", "after the deletion"])
async def test_what_an_operator_that_was_killed_has_begun_the_next_one_completes(
    world: World, plane: ControlPlane, ends: str
) -> None:
    async with running(world, plane):
        before, pod = await world.live(STATEFUL_SETS, STATEFUL_SET), await world.live(PODS, POD)
    await world.change("8Gi")
    if ends == "after the claim":
        grown = {"spec": {"resources": {"requests": {"storage": "8Gi"}}}}
        await world.client.merge_patch(PERSISTENT_VOLUME_CLAIMS, world.namespace, CLAIM, grown)
    else:
        await world.client.delete(
            STATEFUL_SETS, world.namespace, STATEFUL_SET, propagation_policy="Orphan"
        )
    async with running(world, plane):
        after = await world.until_grown("8Gi", before["metadata"]["uid"])
        assert after["metadata"]["uid"] == pod["metadata"]["uid"]
        claim = await world.live(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        assert claim["spec"]["resources"]["requests"]["storage"] == "8Gi"


@pytest.mark.parametrize(
    ("storage_class", "storage", "named"),
    [
        (
            "fixed",
            "8Gi",
            (
                "4Gi → 8Gi is not applied: the API server refuses it for claim "
                "statesave-slurm-controller-0: "
            ),
        ),
        ("grows", "2Gi", "4Gi → 2Gi is not applied: a volume can't shrink. Set it to 4Gi or more"),
    ],
    ids=["no expansion", "smaller"],
)
async def test_what_a_volume_can_not_do_is_named_and_all_else_is_applied_and_reported(
    world: World, plane: ControlPlane, storage: str, named: str
) -> None:
    async with running(world, plane):
        [volume] = await previewed_volumes(world, plane, storage)
        assert volume.outcome == "it stays"
        assert f"spec.persistence.resources.requests.storage: {named}" in volume.details[0]
        before = await world.live(STATEFUL_SETS, STATEFUL_SET)
        limits = {"limits": {"memory": "2Gi"}}
        await world.change(storage, slurmctld={"image": "slurmctld:test", "resources": limits})
        message = await world.until_reported("ChangeNotApplied")
        assert f"spec.persistence.resources.requests.storage: {named}" in message

        async def changed() -> Manifest | None:
            found = await world.live(STATEFUL_SETS, STATEFUL_SET)
            containers = found["spec"]["template"]["spec"]["containers"]
            [slurmctld] = [it for it in containers if it["name"] == "slurmctld"]
            return found if limits.items() <= (slurmctld.get("resources") or {}).items() else None

        after = await until("slurmctld to get its memory", changed)
        assert (after["metadata"]["uid"], size(after)) == (before["metadata"]["uid"], "4Gi")
        claim = await world.live(PERSISTENT_VOLUME_CLAIMS, CLAIM)
        assert claim["spec"]["resources"]["requests"]["storage"] == "4Gi"
        await world.change("4Gi")
        await world.until_reported("Ready")
