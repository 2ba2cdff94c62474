"""An operator under test on a real kube-apiserver: a namespace, a simulated Slurm and simulated
kubelets.
"""

import asyncio
import base64
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from schemas import definitions
from sidecars.contract.extra import PodFacts, encode
from sidecars.custom_resources import (
    ACCOUNTINGS,
    CONTROLLERS,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    TOKENS,
)
from sidecars.kube import (
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    AlreadyExists,
    ApiError,
    Client,
    Manifest,
    NotFound,
    Resource,
)
from sidecars.operator.main import lead
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.operator.settings import Settings
from sidecars.simulate import SlurmModel
from sidecars.workloads import structure
from sidecars.workloads.facts import Site
from sidecars.workloads.names import KUBE_NODE
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support import kubelet

T = TypeVar("T")

WILL_COME = 300.0
"""Seconds for what will come, however busy the host is."""

KEYS = {
    "slurmKeyRef": {"name": "slurm-auth-slurm", "key": "slurm.key"},
    "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
}

KINDS = {
    resource.kind: resource
    for resource in (CONTROLLERS, RESTAPIS, LOGINSETS, NODESETS, ACCOUNTINGS, TOKENS)
}


@contextlib.contextmanager
def control_plane(folder: Path, etcd_options: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver with the six kinds, until the end."""
    plane = ControlPlane.temporary(folder, etcd_options=etcd_options)
    try:
        kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
        manifests = definitions.custom_resource_definitions()
        run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump_all(manifests), seconds=90)
        kinds = [f"crd/{manifest['metadata']['name']}" for manifest in manifests]
        run([*kubectl, "wait", "--for=condition=Established", "--timeout=60s", *kinds], seconds=90)
        yield plane
    finally:
        plane.stop()


async def until(
    what: str, look: Callable[[], Awaitable[T | None]], seconds: float = WILL_COME
) -> T:
    """The first true answer of `look`; fails naming `what` when the time is over."""
    last: object = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                last = await look()
                if last:
                    return last
                await asyncio.sleep(0.05)
    raise AssertionError(f"waited {seconds:g} s for {what}; last: {last}")


def secret(name: str, key: str, value: bytes) -> Manifest:
    """An Opaque Secret with one key."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {key: base64.b64encode(value).decode()},
    }


def custom(kind: str, name: str, spec: dict[str, Any]) -> Manifest:
    """A custom resource of ours."""
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


RUNNING = {
    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    "ready": True,
    "restartCount": 0,
}
"""The status of a container that was started long ago."""


@dataclasses.dataclass
class WatchedNamespace:
    """One namespace with an operator that watches it."""

    client: Client
    namespace: str
    slurm: SlurmModel
    url: str
    kubelet_works: bool = True
    dead: set[str] = dataclasses.field(default_factory=set)
    """Kubernetes nodes whose kubelet does nothing."""
    broken_images: set[str] = dataclasses.field(default_factory=set)
    """Images of slurmd that can't be pulled."""
    mute: set[str] = dataclasses.field(default_factory=set)
    """Hostnames whose slurmd runs and never registers."""
    default_kube_node: str = "default-node"
    """Where a pod without a Kubernetes node of its own is scheduled."""

    @contextlib.asynccontextmanager
    async def operator(
        self, around: RealWorld | None = None, image: str = "sidecars:test", **changes: Any
    ) -> AsyncIterator[None]:
        """An operator and kubelets while the block runs; a crash of either fails the test. `image`
        is that of the sidecars, `changes` are of settings.
        """
        settings = Settings(namespaces=(self.namespace,), slurmrestd_url=self.url, **changes)
        site = Site(workloads=structure.load(structure.folder(None)), sidecars_image=image)
        async with asyncio.TaskGroup() as tasks:
            work = [
                tasks.create_task(lead(self.client, settings, site, around)),
                tasks.create_task(self._kubelets()),
            ]
            try:
                yield
            finally:
                for task in work:
                    task.cancel()

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object in the namespace."""
        resource = KINDS.get(manifest["kind"]) or {"Secret": SECRETS}[manifest["kind"]]
        metadata = {**manifest["metadata"], "namespace": self.namespace}
        return await self.client.create(resource, {**manifest, "metadata": metadata})

    async def cluster(self) -> None:
        """Keys, Controller and RestApi `slurm`."""
        await self.create(secret("slurm-auth-slurm", "slurm.key", b"s" * 1024))
        await self.create(secret("slurm-auth-jwt", "jwt.key", b"j" * 1024))
        await self.create(
            custom("Controller", "slurm", {**KEYS, "slurmctld": {"image": "slurmctld:test"}})
        )
        restapi = {"controllerRef": {"name": "slurm"}, "slurmrestd": {"image": "slurmrestd:test"}}
        await self.create(custom("RestApi", "slurm", restapi))

    async def nodeset(self, name: str = "slinky", replicas: int = 2, **spec: Any) -> None:
        """A NodeSet of Controller `slurm`."""
        smallest = {
            "controllerRef": {"name": "slurm"},
            "replicas": replicas,
            "slurmd": {"image": "slurmd:test"},
        }
        await self.create(custom("NodeSet", name, {**smallest, **spec}))

    async def get(self, resource: Resource, name: str) -> Manifest | None:
        """An object of the namespace; None if it is gone."""
        try:
            return await self.client.get(resource, self.namespace, name)
        except NotFound:
            return None

    async def pods(self) -> dict[str, Manifest]:
        """Worker pods by name."""
        return await self._pods("app.kubernetes.io/name!=slurmctld")

    async def slurmctlds(self) -> dict[str, Manifest]:
        """slurmctld's pods by name."""
        return await self._pods("app.kubernetes.io/name=slurmctld")

    async def _pods(self, label_selector: str) -> dict[str, Manifest]:
        items, _ = await self.client.list(PODS, self.namespace, label_selector=label_selector)
        return {pod["metadata"]["name"]: pod for pod in items}

    async def slurmctld(self, ordinal: int = 0, **status: Any) -> None:
        """A pod of slurmctld as the StatefulSet and the kubelet would leave it. `status`: more of
        its status.
        """
        name = f"slurm-controller-{ordinal}"
        labels = {"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "slurm"}
        await self.client.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
                "spec": {"hostname": name, "containers": [{"name": "slurmctld", "image": "x"}]},
            },
        )
        container = {"name": "slurmctld", "image": "", "imageID": "", **RUNNING}
        shown = {"phase": "Running", "containerStatuses": [container], **status}
        await self.client.merge_patch(
            PODS, self.namespace, name, {"status": shown}, subresource="status"
        )

    async def bind(self, pod: str, kube_node: str) -> None:
        """Schedule a pod."""
        await kubelet.bind(self.client, self.namespace, pod, kube_node)

    async def scale(self, replicas: int, name: str = "slinky") -> None:
        """Change spec.replicas."""
        await self.client.merge_patch(
            NODESETS, self.namespace, name, {"spec": {"replicas": replicas}}
        )

    async def post(self, slurm_node: str, **change: Any) -> None:
        """Change a Slurm node as an administrator would, over the REST API."""
        reply = self.slurm.handle(
            "POST", f"/slurm/v0.0.45/node/{slurm_node}", json.dumps(change).encode()
        )
        assert reply.status == 200, reply

    async def condition(self, resource: Resource, name: str, kind: str = "Ready") -> dict[str, Any]:
        """A condition of one of our resources; {} while it has none."""
        item = await self.get(resource, name)
        found = ((item or {}).get("status") or {}).get("conditions") or []
        return next((dict(condition) for condition in found if condition["type"] == kind), {})

    async def until_ready(self, replicas: int, name: str = "slinky") -> None:
        """Wait until the NodeSet has that many ready pods, known to Slurm."""

        async def look() -> bool:
            status = ((await self.get(NODESETS, name)) or {}).get("status") or {}
            return bool(
                status.get("readyReplicas", 0) == replicas
                and status.get("replicas", 0) == replicas
                and status.get("slurmIdle", 0) + status.get("slurmAllocated", 0) == replicas
            )

        await until(f"{replicas} ready pods of {name}", look)

    async def until_pods(self, *names: str) -> None:
        """Wait until exactly these worker pods exist."""

        async def look() -> bool:
            return set(await self.pods()) == set(names)

        await until(f"the pods to be {names}", look)

    async def until_event(self, reason: str, kind: str = "", words: str = "") -> None:
        """Wait for an event with that reason: about a resource of this kind if one is named, and
        with these words.
        """

        async def recorded() -> bool:
            events, _ = await self.client.list(EVENTS, self.namespace)
            return any(
                it.get("reason") == reason
                and (not kind or it["regarding"]["kind"] == kind)
                and words in (it.get("note") or "")
                for it in events
            )

        await until(f"an event {reason} about a {kind or 'resource'} with {words!r}", recorded)

    async def versions(self) -> dict[str, str]:
        """The resourceVersion of everything in the namespace that an operator could write."""
        found: dict[str, str] = {}
        for resource in (*KINDS.values(), PODS, STATEFUL_SETS, DEPLOYMENTS):
            items, _ = await self.client.list(resource, self.namespace)
            found |= {
                f"{resource.kind}/{it['metadata']['name']}": it["metadata"]["resourceVersion"]
                for it in items
            }
        return found

    async def _kubelets(self) -> None:
        while True:
            if self.kubelet_works:
                # No kubelet has the pods of other kinds that a test creates.
                for pod in (await self._pods("app.kubernetes.io/name=slurmd")).values():
                    with contextlib.suppress(ApiError):
                        await self._kubelet(pod)
            await asyncio.sleep(0.05)

    async def _kubelet(self, pod: Manifest) -> None:
        metadata, host = pod["metadata"], pod["spec"]["hostname"]
        kube_node = pod["spec"].get("nodeName")
        if kube_node in self.dead:
            return
        if metadata.get("deletionTimestamp"):
            await kubelet.end(self.client, self.namespace, metadata["name"])
        elif not kube_node:
            await self.bind(
                metadata["name"], metadata["annotations"].get(KUBE_NODE, self.default_kube_node)
            )
        elif pod["status"].get("phase") not in {"Running", "Failed"}:
            if any(it["image"] in self.broken_images for it in pod["spec"]["containers"]):
                return
            owner = next(
                owner["uid"] for owner in metadata["ownerReferences"] if owner.get("controller")
            )
            extra = encode(PodFacts(metadata["uid"], metadata["name"], "", owner))
            if host not in self.mute:
                self.slurm.node_register(host, extra=extra, instance_id=kube_node)
            # Only if it is as it was seen: a test may have let it fail meanwhile.
            expected = [
                {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
                {"op": "test", "path": "/status/phase", "value": pod["status"]["phase"]},
            ]
            await kubelet.run(self.client, self.namespace, metadata["name"], expected=expected)


@contextlib.asynccontextmanager
async def namespace(client: Client, name: str) -> AsyncIterator[str]:
    """A namespace, and a Kubernetes node for its pods."""
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    # No controller-manager runs here that would make it.
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": name},
    }
    await client.create(Resource("", "v1", "ServiceAccount", "serviceaccounts"), account)
    with contextlib.suppress(AlreadyExists):
        await client.create(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "default-node"}}
        )
    yield name
