"""`helm upgrade` in place of a bridge that could change the pods of all namespaces
(docs/bridge-install.md).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from sidecars.contract import bridge
from sidecars.kube import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    ApiError,
    Client,
    Invalid,
    Resource,
    load_credentials,
)
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.errors import ClusterError
from tests.cluster.install import helm_environment
from tests.cluster.tools import tool
from tests.support.apiserver import until
from tests.support.bridge import pod
from tests.support.bridge_world import (
    ACCOUNTS,
    TENANT,
    a_namespace,
    all_rights,
    bridge_account,
    install,
)

pytestmark = pytest.mark.timeout(300, func_only=True)

FORMER = Path(__file__).parents[2] / "fixtures" / "former" / "slurm-bridge.yaml"
RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
REVIEWS = Resource(
    *("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    namespaced=False,
)
VALUES = """\
admission: {addGate: false, managedNamespaces: [physics]}
tenants: {physics: {user: ada, partitions: [slurm-bridge]}}
"""
NEEDED = (
    *((verb, "", "pods", "") for verb in ("get", "list", "watch")),
    *((verb, "", "nodes", "") for verb in ("get", "list", "watch")),
    *((verb, "", "pods", "physics") for verb in ("patch", "delete")),
    ("patch", "", "pods/status", "physics"),
    *((verb, "events.k8s.io", "events", "physics") for verb in ("create", "patch")),
    ("patch", "", "pods", "slurm"),
    *((verb, "events.k8s.io", "events", "default") for verb in ("create", "patch")),
)
"""What the bridge may do before, meanwhile and afterwards: verb, group, resource and namespace, ""
for all.
"""
PROPAGATION_SECONDS = 30.0
"""Within these, a busy API server enforces a policy that has changed."""
FORMER_ALONE = (
    *((verb, "", "pods", "") for verb in ("patch", "delete")),
    ("patch", "", "pods/status", ""),
    *((verb, "", "pods", "kube-system") for verb in ("patch", "delete")),
    ("patch", "events.k8s.io", "events", ""),
)


@dataclass
class Installed:
    """A release of the former chart."""

    plane: ControlPlane
    admin: Client
    account: Client
    """The bridge's."""
    tenant: Client
    """Of someone with all rights in the tenant's namespace."""
    faults: list[str] = field(default_factory=list)
    refused: list[tuple[float, str]] = field(default_factory=list)
    """When a policy refused the bridge's label, and how."""
    looks: int = 0
    upgraded: float = 0.0
    """When the last upgrade ended."""

    async def may(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether the bridge may do that."""
        kind, _, sub = resource.partition("/")
        wanted = {"verb": verb, "group": group, "resource": kind, "subresource": sub}
        review = {"spec": {"resourceAttributes": {**wanted, "namespace": namespace}}}
        answer = await self.account.create(REVIEWS, review)
        return bool(answer["status"]["allowed"])

    async def look(self) -> None:
        """Once do what the bridge does, and what a tenant must not."""
        self.looks += 1
        for right in NEEDED:
            if not await self.may(*right):
                self.faults.append(f"the bridge may not {right}")
        label = {"metadata": {"labels": {bridge.JOB_LABEL: str(self.looks)}}}
        try:
            await self.account.merge_patch(PODS, "physics", "p", label)
        except Invalid as error:
            self.refused.append((time.monotonic(), str(error)))
        with self._noted("the bridge's lease"):
            await self.account.merge_patch(
                LEASES,
                "slurm",
                "slurm-bridge",
                {"metadata": {"annotations": {"n": str(self.looks)}}},
            )
        with self._noted("the tenants"):
            await self.account.get(CONFIG_MAPS, "slurm", "slurm-bridge-tenants")
        for what, change in (
            ("a forged job", {"metadata": {"labels": {bridge.JOB_LABEL: "1"}}}),
            ("a pod without its gate", {"spec": {"schedulingGates": None}}),
        ):
            with contextlib.suppress(ApiError):
                await self.tenant.merge_patch(PODS, "physics", "other", change)
                self.faults.append(f"the API server takes {what}")

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            self.faults.append(f"{what}: {error}")

    async def upgrade(self, values: str) -> None:
        """To the chart of this tree. Looks all the time."""
        work = asyncio.create_task(
            asyncio.to_thread(install, self.plane, "slurm-bridge", values, verb="upgrade")
        )
        while not work.done():
            await self.look()
        await work
        self.upgraded = time.monotonic()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: the chart has objects without a namespace."""
    found = ControlPlane.temporary(tmp_path_factory.mktemp("upgrade"))
    yield found
    found.stop()


@pytest_asyncio.fixture
async def former(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Installed]:
    """The former release, as soon as its rights and policies count."""
    chart = tmp_path / "former"
    (chart / "templates").mkdir(parents=True)
    about = {"apiVersion": "v2", "name": "slurm-bridge", "version": "0.0.1"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    (chart / "templates" / "all.yaml").write_bytes(FORMER.read_bytes())
    async with Client.connect(load_credentials(plane.kubeconfig)) as admin:
        for name in ("slurm", "physics"):
            await admin.create(NAMESPACES, a_namespace(name, **{"slurm-bridge": "managed"}))
            await admin.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
        helm: list[str | Path] = [tool("helm"), f"--kubeconfig={plane.kubeconfig}", "-n", "slurm"]
        run([*helm, "install", "slurm-bridge", chart], env=helm_environment(), seconds=60)
        for name in ("p", "other"):
            await admin.create(PODS, pod("physics", name))
        await all_rights(admin, "physics")
        async with (
            Client.connect(load_credentials(bridge_account(plane))) as account,
            Client.connect(load_credentials(plane.client("tenant", *TENANT))) as tenant,
        ):
            found = Installed(plane, admin, account, tenant)

            async def enforced() -> bool:
                found.faults.clear()
                found.refused.clear()
                await found.look()
                if not found.faults:
                    return not found.refused
                # A change that was taken before the policies counted would be none from then on.
                await admin.delete(PODS, "physics", "other", grace_period_seconds=0)
                await admin.create(PODS, pod("physics", "other"))
                return False

            await until("the former rights and policies to count", enforced)
            yield found
        run([*helm, "uninstall", "slurm-bridge"], env=helm_environment(), seconds=60)


async def test_an_upgrade_in_place_takes_the_rights_in_all_namespaces_alone(
    former: Installed,
) -> None:
    for right in FORMER_ALONE:
        assert await former.may(*right), right

    # A namespace of a tenant is missing: what is installed remains.
    missing = VALUES.replace("tenants: {", "tenantNamespaces: [chemistry]\ntenants: {")
    with pytest.raises(ClusterError, match='namespaces "chemistry" not found'):
        await former.upgrade(missing)
    assert await former.may("patch", "", "pods", "")
    assert not former.faults

    assert not former.refused
    before = time.monotonic()
    await former.upgrade(VALUES)

    async def gone() -> bool:
        await former.look()
        return not [right for right in FORMER_ALONE if await former.may(*right)]

    await until("the rights in all namespaces to be gone", gone)
    looks = former.looks

    async def long_enough() -> bool:
        """The API server takes a while to enforce a policy that has changed."""
        await former.look()
        return former.looks >= looks + 30

    await until("what the API server has learned to count", long_enough)
    assert not former.faults, former.faults[:10]
    # Until the API server has learned of the policies of this release, it asks for the former
    # rights. The bridge sends a change again that is refused.
    for at, words in former.refused:
        assert before <= at <= former.upgraded + PROPAGATION_SECONDS
        assert "only the Slurm Bridge writes the label" in words
    items, _ = await former.admin.list(CLUSTER_ROLES)
    assert "slurm-bridge" not in {it["metadata"]["name"] for it in items}
    bindings, _ = await former.admin.list(CLUSTER_ROLE_BINDINGS)
    written = {
        it["roleRef"]["name"]
        for it in bindings
        if {"slurm-bridge"} & {subject["name"] for subject in it.get("subjects", ())}
    }
    assert written == {"slurm-bridge-reader"}
