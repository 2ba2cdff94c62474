"""An operator of which nothing runs: a test fills its caches, runs single passes, and looks at
queues and requests.
"""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from sidecars import custom_resources as kinds
from sidecars import objects
from sidecars.contract.manifest import Manifest as FilesManifest
from sidecars.contract.manifest import digest, encode
from sidecars.kube import Client, Manifest, NotFound, Resource
from sidecars.operator.controller.effects import connect
from sidecars.operator.main import Operator, assemble, wire
from sidecars.operator.runtime.apply import APPLIED_HASH, FIELD_MANAGER, MANAGED_BY
from sidecars.operator.runtime.clusters import Cluster, Connect
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.real_world import FetchStatus, RealWorld, fetch_status
from sidecars.operator.settings import Settings
from sidecars.policy import failover
from sidecars.policy.conditions import timestamp
from sidecars.simulate import ModelCarrier, SlurmModel
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.protocol import Request
from sidecars.workloads.facts import Site
from sidecars.workloads.names import SLURM_KEY_HASH
from tests.support.builders import KEYS, workloads

if TYPE_CHECKING:
    from sidecars.operator.runtime.runtime import Runtime

T = TypeVar("T")
EPOCH = 1_700_000_000.0
NAMESPACE = "slurm"
OURS = {MANAGED_BY: FIELD_MANAGER}
"""The label of objects that the operator applies."""
CONTROLLER: Key = (NAMESPACE, "slurm")


class Requests:
    """In place of a client: notes what is asked for, and answers as a server would that takes
    everything.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, str, str]] = []
        """Verb, kind and name of each request."""
        self.bodies: list[Any] = []
        self.refusals: dict[str, Exception] = {}
        """What is raised instead of an answer, by verb and kind."""
        self.stored: dict[tuple[str, str], Manifest] = {}
        """What GET answers, by kind and name."""
        self.custom: dict[tuple[str, str], Manifest] = {}
        """The custom resources that PATCH changes, by kind and name."""
        self.logs: dict[tuple[str, str, bool], str] = {}
        """By pod, container, and whether it is that of the former instance."""
        self._versions = itertools.count(1000)

    async def _make(self, verb: str, kind: str, name: str, body: Any = None) -> None:
        await asyncio.sleep(0)
        self.made.append((verb, kind, name))
        self.bodies.append(body)
        if (refusal := self.refusals.get(f"{verb} {kind}")) is not None:
            raise refusal

    def _answer(self, namespace: str | None, name: str, body: Any = None) -> Manifest:
        version = str(next(self._versions))
        metadata = {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": version,
        }
        return {**(body or {}), "metadata": metadata}

    async def get(
        self, resource: Resource, namespace: str | None, name: str, type: Any = dict
    ) -> Any:
        resource.path(namespace, name)
        await self._make("get", resource.kind, name)
        found = self.stored.get((resource.kind, name))
        if found is None:
            raise NotFound(404, "NotFound", f"{resource.kind} {name}")
        return found if type is dict else msgspec.convert(found, type)

    async def apply(
        self, resource: Resource, manifest: Manifest, *, field_manager: str, dry_run: bool = False
    ) -> Manifest:
        metadata = manifest["metadata"]
        await self._make("try" if dry_run else "apply", resource.kind, metadata["name"], manifest)
        return self._answer(metadata["namespace"], metadata["name"], manifest)

    async def create(self, resource: Resource, manifest: Manifest, type: Any = dict) -> Manifest:
        metadata = manifest["metadata"]
        await self._make("create", resource.kind, metadata.get("name", ""), manifest)
        return self._answer(metadata.get("namespace"), metadata.get("name", ""), manifest)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, **options: Any
    ) -> None:
        await self._make("delete", resource.kind, name, options)

    async def merge_patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        subresource: str = "",
    ) -> Manifest:
        await self._make(f"patch {subresource}".strip(), resource.kind, name, patch)
        answer, known = self._answer(namespace, name, patch), self.custom.get((resource.kind, name))
        if known is None:
            return answer
        version = answer["metadata"]["resourceVersion"]
        metadata = {**known["metadata"], **patch.get("metadata", {}), "resourceVersion": version}
        self.custom[resource.kind, name] = {**known, **patch, "metadata": metadata}
        return self.custom[resource.kind, name]

    async def json_patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        operations: Any,
        type: Any,
        **options: str,
    ) -> Manifest:
        await self._make("json patch", resource.kind, name, operations)
        return self._answer(namespace, name)

    def forget(self) -> None:
        """Requests until now don't count."""
        self.made.clear()
        self.bodies.clear()

    async def log(self, _: str, pod: str, container: str, **options: Any) -> str:
        """The log of a container; "" for one without."""
        await self._make("log", "Pod", pod, options)
        return self.logs.get((pod, container, options["previous"]), "")

    def of(self, verb: str, kind: str) -> list[Any]:
        """The bodies of such requests, in order."""
        return [
            body
            for made, body in zip(self.made, self.bodies, strict=True)
            if made[:2] == (verb, kind)
        ]

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        type: Any = dict,
    ) -> tuple[Sequence[Any], str]:
        """All that is stored of the kind, whatever the selector."""
        await self._make("list", resource.kind, label_selector)
        found = [it for (kind, _), it in self.stored.items() if kind == resource.kind]
        return (found if type is dict else [msgspec.convert(it, type) for it in found]), "1"


class SlurmConnection(ModelCarrier):
    """In place of a connection to slurmrestd: one to a simulated Slurm. Notes what is sent."""

    def __init__(self) -> None:
        self.now = EPOCH
        super().__init__(SlurmModel(lambda: self.now))
        self.sent: list[str] = []

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        self.sent.append(str(request))
        return await super().call(request, timeout=timeout)

    async def close(self) -> None:
        """Nothing to close."""


class Parts:
    """Create it inside a running event loop. `now`, and all times, are seconds since the epoch.

    `connect`: opens connections to slurmrestd. `fetch_status`: asks `reconfigure`. Both over the
    network by default.
    """

    def __init__(
        self,
        connect: Connect = SlurmClient,
        fetch_status: FetchStatus = fetch_status,
        **settings: Any,
    ) -> None:
        self.now = EPOCH
        self.requests = Requests()
        site = Site(workloads=workloads(), sidecars_image="sidecars:test")
        real = RealWorld(
            clock=lambda: self.now,
            wall_clock=lambda: self.now,
            connect=connect,
            fetch_status=fetch_status,
            rng=random.Random(0),  # noqa: S311
        )
        self.operator: Operator = assemble(
            cast("Client", self.requests), Settings(**settings), site, real
        )
        self.runtime: Runtime = self.operator.runtime
        self._versions = itertools.count(1)
        wire(self.operator)

    async def connect(self, **spec: Any) -> Cluster:
        """Connect to the Slurm of Controller `slurm` with this spec, and read its nodes."""
        self.keys()
        self.restapi()
        await connect(self.runtime, CONTROLLER, self.controller(**spec))
        cluster = self.runtime.clusters.get(CONTROLLER)
        assert cluster is not None
        await cluster.poller.poll()
        await self.woken()
        return cluster

    def custom(
        self, kind: str, name: str, spec: Any, status: Any = None, **metadata: Any
    ) -> Manifest:
        """Put a custom resource into the caches; as stored."""
        meta = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": f"uid-of-{name}",
            "generation": 1,
            **self._version(),
        }
        manifest = {"kind": kind, "metadata": meta | metadata, "spec": spec} | (
            {"status": status} if status else {}
        )
        caches = {it.resource.kind: it for it in self.runtime.caches.custom_resources()}
        caches[kind].store.put(manifest)
        self.requests.custom[kind, name] = manifest
        return manifest

    def controller(self, status: Any = None, **spec: Any) -> Manifest:
        """Controller `slurm`."""
        return self.custom(
            "Controller", "slurm", KEYS | {"slurmctld": {"image": "slurmctld:26.05"}} | spec, status
        )

    def restapi(self, **spec: Any) -> Manifest:
        """RestApi `slurm`."""
        return self.custom(
            "RestApi", "slurm", {"controllerRef": {"name": "slurm"}, "slurmrestd": {}} | spec
        )

    def keys(self) -> None:
        """The Secrets that everything refers to, and the one that the Controller's pass applies."""
        for name, key in (("slurm-auth-slurm", "slurm.key"), ("slurm-auth-jwt", "jwt.key")):
            self.secret(name, {key: b"k" * 32})
        self.secret("slurm-auth-slurm-jwks", {"slurm.jwks": b'{"keys":[]}'}, own=True)

    def secret(self, name: str, data: dict[str, bytes], *, own: bool = False, **more: Any) -> None:
        """A Secret: `own` is watched whole, any other by its metadata, to which `more` belongs."""
        metadata = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": name,
            "labels": OURS if own else {},
        }
        metadata |= self._version() | more
        whole = objects.Secret(metadata=msgspec.convert(metadata, objects.ObjectMeta), data=data)
        if own:
            self.runtime.caches.own_secrets.store.put(whole)
            return
        self.requests.stored["Secret", name] = msgspec.to_builtins(whole)
        partial = msgspec.convert({"metadata": metadata}, objects.PartialObjectMetadata)
        self.runtime.caches.other_secrets.store.put(partial)

    def config_map(
        self, name: str, data: dict[str, str], *, own: bool = False, **metadata: Any
    ) -> None:
        """A ConfigMap, likewise."""
        meta = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": name,
            "labels": OURS if own else {},
            **self._version(),
        }
        meta |= metadata
        if own:
            self.runtime.caches.own_config_maps.store.put(
                {"kind": "ConfigMap", "metadata": meta, "data": data}
            )
            return
        self.requests.stored["ConfigMap", name] = {"metadata": meta, "data": data}
        partial = msgspec.convert({"metadata": meta}, objects.PartialObjectMetadata)
        self.runtime.caches.other_config_maps.store.put(partial)

    def accepted(self, **files: str) -> None:
        """The configuration that slurmctld has accepted, as the operator would have written it.
        Dots of names: `_`.
        """
        texts = {name.replace("_", "."): text for name, text in files.items()}
        digests = {name: digest(text.encode()) for name, text in texts.items()}
        texts["manifest.json"] = encode(FilesManifest("a" * 64, digests))
        self.config_map("slurm-config-accepted", texts, own=True)

    def workload(
        self, resource: Resource, name: str, container: str, image: str, *, ready: bool = True
    ) -> Manifest:
        """A StatefulSet or Deployment of one pod, rolled out or not."""
        count = 1 if ready else 0
        metadata = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": name,
            "labels": OURS,
            "generation": 1,
        }
        metadata["annotations"] = {APPLIED_HASH: "0"}
        manifest = {
            "kind": resource.kind,
            "metadata": metadata | self._version(),
            "spec": {
                "replicas": 1,
                "template": {
                    "metadata": {},
                    "spec": {"containers": [{"name": container, "image": image}]},
                },
            },
            "status": {
                "observedGeneration": 1,
                "replicas": 1,
                "updatedReplicas": 1,
                "readyReplicas": count,
            },
        }
        self.runtime.caches.applied()[resource.kind].store.put(manifest)
        return manifest

    def kube_node(
        self, name: str, *, spec: Any = None, status: Any = None, **metadata: Any
    ) -> objects.Node:
        """A Kubernetes node."""
        meta = {"name": name, "uid": name, **self._version()} | metadata
        node = msgspec.convert(
            {"metadata": meta, "spec": spec or {}, "status": status or {}}, objects.Node
        )
        self.runtime.caches.kube_nodes.store.put(node)
        return node

    def pod(
        self,
        name: str,
        nodeset: str = "slinky",
        *,
        terminating: bool = False,
        meta: Manifest | None = None,
        **status: Any,
    ) -> objects.Pod:
        """A worker pod of the NodeSet. `meta`: more of its metadata."""
        owner = {
            "apiVersion": kinds.NODESETS.api_version,
            "kind": "NodeSet",
            "name": nodeset,
            "controller": True,
        }
        labels = {"app.kubernetes.io/name": "slurmd", "slinky.slurm.net/cluster": "slurm"}
        metadata: dict[str, Any] = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": name,
            "labels": labels,
        }
        metadata |= self._version()
        metadata["ownerReferences"] = [owner | {"uid": f"uid-of-{nodeset}"}]
        metadata["annotations"] = {SLURM_KEY_HASH: "0"}
        if terminating:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        metadata |= meta or {}
        pod = msgspec.convert(
            {
                "metadata": metadata,
                "spec": {"nodeName": "kube-1", "hostname": name},
                "status": status,
            },
            objects.Pod,
        )
        self.runtime.caches.pods.store.put(pod)
        return pod

    def slurmctld_pod(
        self,
        number: int = 0,
        *,
        started: float | None = EPOCH,
        active_since: str = "",
        ours: bool = True,
    ) -> None:
        """A pod of slurmctld, whose `reconfigure` runs. `started`: when its slurmctld did; None: it
        doesn't run.

        `active_since`: since when it is labelled as the primary. `ours`: whether this operator has
        created it.
        """
        name = f"slurm-controller-{number}"
        metadata: dict[str, Any] = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": f"c-{number}",
            **self._version(),
        }
        labels = {"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "slurm"}
        metadata["labels"] = labels | ({failover.ACTIVE: "true"} if active_since else {})
        metadata["annotations"] = {failover.ACTIVE_SINCE: active_since} if active_since else {}
        sidecar = {
            "name": "reconfigure",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        sidecars = [sidecar, *([{"name": "check"}] if ours else [])]
        state = (
            {"waiting": {}} if started is None else {"running": {"startedAt": timestamp(started)}}
        )
        slurmctld = {"name": "slurmctld", "state": state}
        status = {
            "podIP": "10.0.0.1",
            "initContainerStatuses": sidecars,
            "containerStatuses": [slurmctld],
        }
        pod: Manifest = {"metadata": metadata, "spec": {}, "status": status}
        self.requests.stored["Pod", name] = pod
        self.runtime.caches.slurmctld_pods.store.put(msgspec.convert(pod, objects.Pod))

    def follow_applied(self) -> None:
        """Put the ConfigMaps that were applied into the caches, as the watch does."""
        for body in self.requests.of("apply", "ConfigMap"):
            self.config_map(body["metadata"]["name"], body["data"], own=True)

    async def woken(self, seconds: float = 1.0) -> dict[str, set[Key]]:
        """The keys that wait in each queue, or will after so many seconds; they are taken out."""
        await asyncio.sleep(seconds)
        found: dict[str, set[Key]] = {}
        queues = self.runtime.queues
        for name in queues.__dataclass_fields__:
            queue = getattr(queues, name)
            while len(queue):
                key = await queue.get()
                queue.done(key)
                found.setdefault(name, set()).add(key)
        return found

    def condition(self, kind: str, type: str = "Ready") -> dict[str, Any]:
        """The condition in the last status written of this kind; {} if none was."""
        for body in reversed(self.requests.of("patch status", kind)):
            for condition in body["status"]["conditions"]:
                if condition["type"] == type:
                    return dict(condition)
        return {}

    def _version(self) -> dict[str, str]:
        return {"resourceVersion": str(next(self._versions))}
