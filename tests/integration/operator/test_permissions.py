"""The operator with the permissions that the chart grants it, and no others, on a real API server."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from sidecars.custom_resources import NODESETS, TOKENS
from sidecars.kube import (
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    Client,
    Forbidden,
    Resource,
    load_credentials,
)
from sidecars.operator.main import lead
from sidecars.operator.settings import Settings
from sidecars.release.main import release
from sidecars.simulate import SlurmModel, serve
from sidecars.workloads import structure
from sidecars.workloads.facts import Site
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support.apiserver import WatchedNamespace, custom, namespace, secret, until

pytestmark = pytest.mark.timeout(120, func_only=True)

CHART = Path(__file__).parents[3] / "charts" / "slurm-operator"
ACCOUNT = "system:serviceaccount:slinky:slurm-operator"
RBAC = {
    kind: Resource("rbac.authorization.k8s.io", "v1", kind, plural, namespaced=kind.startswith("Role"))
    for kind, plural in (
        ("ClusterRole", "clusterroles"),
        ("ClusterRoleBinding", "clusterrolebindings"),
        ("Role", "roles"),
        ("RoleBinding", "rolebindings"),
    )
}


async def grant(client: Client, *namespaces: str) -> None:
    """What the chart grants its ServiceAccount for these namespaces, of which only the first exists."""
    words: list[str | Path] = [tool("helm"), "template", "slurm-operator", CHART, "--namespace=slinky"]
    rendered = run([*words, f"--set=operator.namespaces={{{','.join(namespaces)}}},operator.leaderElection=false"])
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slinky"}})
    for manifest in yaml.safe_load_all(rendered):
        exists = manifest is not None and manifest["metadata"].get("namespace") in {None, "slinky", namespaces[0]}
        if exists and manifest["kind"] in RBAC:
            await client.create(RBAC[manifest["kind"]], manifest)


@contextlib.asynccontextmanager
async def operator(world: WatchedNamespace, client: Client, *namespaces: str) -> AsyncIterator[None]:
    """An operator with that client, which watches these namespaces, and the world's kubelets."""
    settings = Settings(namespaces=namespaces, slurmrestd_url=world.url)
    site = Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars:test")
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(lead(client, settings, site)), tasks.create_task(world._kubelets())]
        try:
            yield
        finally:
            for task in work:
                task.cancel()


async def test_the_operator_works_with_a_role_in_its_namespace_and_reaches_no_other(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    slurm = SlurmModel()
    async with (
        Client.connect(load_credentials(plane.kubeconfig)) as admin,
        Client.connect(load_credentials(plane.client("operator", ACCOUNT))) as restricted,
        namespace(admin, "restricted") as name,
        serve(slurm) as url,
    ):
        await grant(admin, name, "missing")
        world = WatchedNamespace(admin, name, slurm, url)
        await world.cluster()
        with caplog.at_level(logging.INFO):
            async with operator(world, restricted, name, "missing"):
                await world.nodeset(replicas=2)
                await world.until_ready(2)
                await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
                login = {"sssdConfRef": {"name": "sssd", "key": "sssd.conf"}, "login": {"image": "login:test"}}
                await world.create(custom("LoginSet", "login", {"controllerRef": {"name": "slurm"}, **login}))
                await until("the login nodes", lambda: world.get(DEPLOYMENTS, "login"))
                token = {"jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"}, "username": "ann"}
                await world.create(custom("Token", "ann", token))
                await until("the token", lambda: world.get(SECRETS, "ann-jwt-ann"))
                await world.until_event("ScalingUp", "NodeSet")
                await world.scale(1)
                await world.until_pods("slinky-0")
                await world.client.delete(NODESETS, name, "slinky")
                await world.until_pods()
        assert not [record.getMessage() for record in caplog.records if "403" in record.getMessage()]
        for resource in (PODS, SECRETS, SERVICES, TOKENS):
            for place in ("default", None):
                with pytest.raises(Forbidden):
                    await restricted.list(resource, place)
        with pytest.raises(Forbidden):
            await restricted.get(NAMESPACES, None, "default")
        # Nor does the end of the chart's release wait for a namespace that does not exist.
        await release(restricted, "slinky", "slurm-operator", [name, "missing"])
