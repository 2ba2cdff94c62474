"""A tenant's namespace and Kubernetes nodes for the bridge, on a real kube-apiserver and
kube-scheduler.

With the rights and the admission policies of the chart, as docs/bridge-install.md installs it.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sidecars.bridge import main
from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import (
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    Client,
    Conflict,
    Manifest,
    NotFound,
    Resource,
    load_credentials,
)
from sidecars.simulate import SlurmModel
from sidecars.simulate.records import SimJob
from tests.charts.examples import examples
from tests.cluster import cache
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.install import helm_environment
from tests.cluster.tools import KUBERNETES_MINOR, tool
from tests.support.apiserver import until
from tests.support.bridge import live, node, pod
from tests.support.bridge_devices import NIC, RULES

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "slurm-bridge"
MUTATING: tuple[str, ...] = (
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)
"""Options of kube-apiserver that docs/bridge-security.md names, for Kubernetes that needs them."""
if KUBERNETES_MINOR >= 36:
    MUTATING = ()
TENANT = ("tenant", "system:authenticated")
NUMBERS = itertools.count()
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")


def documented() -> str:
    """The values that docs/bridge-install.md installs the chart with."""
    page = "docs/bridge-install.md"
    found = examples(page, (ROOT / page).read_text(encoding="utf-8"))
    values = next(it for it in found if it.title == "bridge-values.yaml")
    return yaml.safe_dump_all(values.documents)


OTHER = "NodeName=other NodeAddr=127.0.0.1 CPUs=1 RealMemory=100 State=External Feature=other"
"""A node that is no bridge's: a list of nodes that is empty counts only after a minute."""


def a_namespace(name: str, **labels: str) -> Manifest:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


async def bind(admin: Client, namespace: str) -> None:
    """Let the bridge change the pods of a namespace, by the command of docs/bridge-security.md."""
    metadata = {"name": "slurm-bridge-tenant", "namespace": namespace}
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "slurm-bridge-tenant",
    }
    subject = {"kind": "ServiceAccount", "name": "slurm-bridge", "namespace": "slurm"}
    await admin.create(
        ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [subject]}
    )


def slurm_conf(*parameters: str, page: str = "docs/bridge-install.md") -> str:
    """The lines of slurm.conf that a page asks for, with these SchedulerParameters more."""
    found = examples(page, (ROOT / page).read_text(encoding="utf-8"))
    # Further values of the chart are for workers.
    values = next(it for it in found if it.title == "values.yaml")
    lines = str(values.documents[0]["controller"]["extraConf"])
    [scheduler] = [it for it in lines.splitlines() if it.startswith("SchedulerParameters=")]
    return lines.replace(scheduler, ",".join([scheduler, *parameters]))


def install(
    plane: ControlPlane, release: str, values: str, *words: str, verb: str = "install"
) -> None:
    """Install or `upgrade` the chart in the namespace `slurm`, beside the namespaces of its
    tenants.
    """
    names = [*((yaml.safe_load(values) or {}).get("tenants") or ())]
    namespaces = yaml.safe_dump_all([a_namespace(name) for name in names])
    kubectl: list[str | Path] = [
        tool("kubectl"),
        f"--kubeconfig={plane.kubeconfig}",
        "apply",
        "--filename=-",
    ]
    if names:
        run(kubectl, stdin=namespaces, seconds=60)
    command: list[str | Path] = [
        tool("helm"),
        verb,
        release,
        CHART,
        "-n",
        "slurm",
        "--values=-",
        *words,
    ]
    run(
        [*command, f"--kubeconfig={plane.kubeconfig}"],
        env=helm_environment(),
        stdin=values,
        seconds=60,
    )


@contextlib.contextmanager
def control_plane(
    folder: Path,
    options: Sequence[str] = MUTATING,
    scheduler_requests: int = 50,
    values: Mapping[str, Any] | None = None,
) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-scheduler, and the chart as docs/bridge-install.md installs it.

    No controllers run: the Deployments have no pods. If they are started, they are those of
    ResourceClaims alone. `options`: of kube-apiserver. `scheduler_requests`: see ControlPlane.
    `values`: further ones of the chart.
    """
    found = ControlPlane.temporary(folder, options=options)
    found.manager_options = ["--controllers=resourceclaim-controller,garbage-collector-controller"]
    found.scheduler_requests = scheduler_requests
    try:
        found.scheduler.start()
        kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={found.kubeconfig}"]
        all_values = {
            **yaml.safe_load(documented()),
            "devices": RULES,
            "unmanagedDeviceClasses": [NIC],
        }
        all_values |= values or {}
        install(found, "slurm-bridge", yaml.safe_dump(all_values), "--create-namespace")
        edit = ["create", "clusterrolebinding", "tenant", "--clusterrole=edit", "--user=tenant"]
        run([*kubectl, *edit], seconds=60)
        yield found
    finally:
        found.stop()


def bridge_account(plane: ControlPlane) -> Path:
    """Kubeconfig file with a token of the ServiceAccount that the chart has created for the
    bridge.
    """
    path = plane.folder / "bridge.kubeconfig"
    if not path.exists():
        words: list[str | Path] = [
            tool("kubectl"),
            "create",
            "token",
            "slurm-bridge",
            "-n",
            "slurm",
            "--duration=24h",
        ]
        token = run([*words, f"--kubeconfig={plane.kubeconfig}"], seconds=60).strip()
        content = yaml.safe_load(plane.kubeconfig.read_text())
        content["users"][0]["user"] = {"token": token}
        cache.write(path, yaml.safe_dump(content), mode=0o600)
    return path


@dataclass
class World:
    """A tenant's namespace, two Kubernetes nodes of its own, and a Slurm."""

    admin: Client
    account: Client
    """The bridge's."""
    slurm: SlurmModel
    settings: Settings
    namespace: str
    nodes: tuple[str, str]

    @contextlib.asynccontextmanager
    async def bridge(self) -> AsyncIterator[None]:
        work = asyncio.create_task(main.lead(self.account, self.settings))
        try:
            yield
        finally:
            assert not work.done(), work.exception()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def create(self, name: str = "p", **values: Any) -> None:
        await self.admin.create(PODS, pod(self.namespace, name, **values))

    async def pod(self, name: str = "p") -> Manifest | None:
        try:
            return await self.admin.get(PODS, self.namespace, name)
        except NotFound:
            return None

    async def place(self, name: str = "p") -> str:
        """The Kubernetes node that the scheduler has bound it to."""
        found = await self.pod(name)
        return str((found or {}).get("spec", {}).get("nodeName", ""))

    async def condition(self, name: str = "p") -> dict[str, Any]:
        found = ((await self.pod(name)) or {}).get("status", {}).get("conditions", ())
        return next((it for it in found if it["type"] == bridge.CONDITION), {})

    async def job(self) -> SimJob:
        """The only job, as soon as it may start."""

        async def look() -> bool:
            return any(not job.blocked for job in live(self.slurm))

        await until("a job that may start", look)
        [found] = live(self.slurm)
        return found

    @contextlib.asynccontextmanager
    async def kubelet(self) -> AsyncIterator[None]:
        """A kubelet: bound pods run, and those that are being deleted end."""

        async def serve() -> None:
            while True:
                for item in await self.pods():
                    with contextlib.suppress(NotFound, Conflict):
                        await self._serve(item)
                await asyncio.sleep(0.1)

        work = asyncio.create_task(serve())
        try:
            yield
        finally:
            assert not work.done(), work.exception()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _serve(self, item: Manifest) -> None:
        meta = item["metadata"]
        if not item["spec"].get("nodeName"):
            return
        if meta.get("deletionTimestamp"):
            if item["status"].get("phase") == "Running":
                await self.finish(meta["name"], "Failed")
            await self.admin.delete(PODS, self.namespace, meta["name"], grace_period_seconds=0)
        elif item["status"].get("phase") == "Pending":
            now = meta["creationTimestamp"]
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
            patch: list[dict[str, Any]] = [
                {"op": "add", "path": "/status/phase", "value": "Running"},
                {"op": "add", "path": "/status/conditions/-", "value": ready},
            ]
            await self.admin.json_patch(
                PODS, self.namespace, meta["name"], patch, dict, subresource="status"
            )

    async def finish(self, name: str, phase: str = "Succeeded") -> None:
        """The containers of the pod end."""
        patch = [{"op": "add", "path": "/status/phase", "value": phase}]
        await self.admin.json_patch(PODS, self.namespace, name, patch, dict, subresource="status")

    async def pods(self) -> list[Manifest]:
        """All of the namespace."""
        items, _ = await self.admin.list(PODS, self.namespace)
        return items

    async def gone(self, name: str = "p") -> None:
        """A kubelet ends the pod that is being deleted."""

        async def look() -> bool:
            found = await self.pod(name)
            if found is not None and found["metadata"].get("deletionTimestamp"):
                with contextlib.suppress(NotFound):
                    await self.admin.delete(PODS, self.namespace, name, grace_period_seconds=0)
            return found is None

        await until(f"pod {name} to be deleted", look)

    async def until(self, what: str, look: Callable[[], Awaitable[Any]]) -> None:
        await until(what, look)

    async def records(self) -> None:
        async def look() -> bool:
            return all(
                it in self.slurm.nodes and bool(self.slurm.nodes[it].extra) for it in self.nodes
            )

        await until("the records of the nodes", look)

    async def happened(self, *wanted: str) -> None:
        """Wait for these Events."""

        async def look() -> bool:
            return set(wanted) <= await self.reasons()

        await until(f"the Events {wanted}", look)

    async def reasons(self) -> set[str]:
        events, _ = await self.admin.list(EVENTS, self.namespace)
        return {it["reason"] for it in events if it.get("reportingController") == "slurm-bridge"}


@contextlib.asynccontextmanager
async def a_world(
    plane: ControlPlane,
    settings: Settings,
    model: SlurmModel,
    user: str = "ada",
    partition: str = "slurm-bridge",
) -> AsyncIterator[World]:
    """A namespace and two nodes, for a bridge with these settings. `model`: the simulated Slurm."""
    number = next(NUMBERS)
    namespace, nodes = f"team-{number}", (f"k{number}a", f"k{number}b")
    account = load_credentials(bridge_account(plane))
    async with (
        Client.connect(load_credentials(plane.kubeconfig)) as admin,
        Client.connect(account) as client,
    ):
        await admin.create(NAMESPACES, a_namespace(namespace, **{"slurm-bridge": "managed"}))
        await bind(admin, namespace)
        default = {"name": "default", "namespace": namespace}
        await admin.create(
            ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": default}
        )
        for name in nodes:
            await add_node(admin, node(name))
        tenants = {"data": {namespace: json.dumps({"user": user, "partitions": [partition]})}}
        await admin.merge_patch(CONFIG_MAPS, "slurm", "slurm-bridge-tenants", tenants)
        try:
            yield World(admin, client, model, settings, namespace, nodes)
        finally:
            await admin.merge_patch(
                CONFIG_MAPS, "slurm", "slurm-bridge-tenants", {"data": {namespace: None}}
            )
            for name in nodes:
                await admin.delete(NODES, None, name)


def crd(resource: Resource) -> dict[str, Any]:
    """The kind with any fields."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": resource.kind, "plural": resource.plural}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


async def add_node(admin: Client, item: Manifest) -> None:
    """A Kubernetes node whose kubelet runs."""
    name = item["metadata"]["name"]
    await admin.create(NODES, item)
    await admin.merge_patch(NODES, None, name, {"status": status(item)}, subresource="status")
    # Pods of others stay off. The scheduler gets no other taint, because nothing here would remove
    # it.
    taints = [{"key": bridge.TAINT, "effect": "NoSchedule"}]
    await admin.merge_patch(NODES, None, name, {"spec": {"taints": taints}})


def status(item: dict[str, Any]) -> dict[str, Any]:
    """The status of a node whose kubelet runs."""
    pods = {**item["status"]["allocatable"], "pods": "110"}
    return {**item["status"], "allocatable": pods, "capacity": pods}


def without_gate(namespace: str, name: str = "p", **spec: Any) -> dict[str, Any]:
    """A pod as a tenant writes it."""
    found = pod(namespace, name)
    del found["spec"]["schedulingGates"]
    found["spec"] |= spec
    return found


async def all_rights(admin: Client, namespace: str, user: str = "tenant") -> None:
    """Give the tenant, or another user, all rights in a namespace."""
    binding = {
        "metadata": {"name": user, "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await admin.create(ROLE_BINDINGS, binding)


async def another_namespace(admin: Client, name: str, user: str = "tenant") -> None:
    """A namespace without the label, in which the tenant, or another user, has all rights."""
    await admin.create(NAMESPACES, {"metadata": {"name": name}})
    await admin.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
    await all_rights(admin, name, user)
