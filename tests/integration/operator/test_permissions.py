"""The operator with the permissions that the chart grants it, and no others, on a real API
server.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from sidecars.custom_resources import CONTROLLERS, NODESETS, TOKENS
from sidecars.kube import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    AlreadyExists,
    Client,
    Forbidden,
    Invalid,
    Manifest,
    NotFound,
    Resource,
    load_credentials,
)
from sidecars.operator.main import lead
from sidecars.operator.settings import Settings
from sidecars.simulate import SlurmModel, serve
from sidecars.uninstall.main import release
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
    kind: Resource(
        "rbac.authorization.k8s.io", "v1", kind, plural, namespaced=kind.startswith("Role")
    )
    for kind, plural in (
        ("ClusterRole", "clusterroles"),
        ("ClusterRoleBinding", "clusterrolebindings"),
        ("Role", "roles"),
        ("RoleBinding", "rolebindings"),
    )
}
POLICIES = {
    kind: Resource("admissionregistration.k8s.io", "v1", kind, plural, namespaced=False)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}


def rendered(*namespaces: str) -> list[Manifest]:
    """What the chart has for these namespaces."""
    words: list[str | Path] = [
        tool("helm"),
        "template",
        "slurm-operator",
        CHART,
        "--namespace=slinky",
    ]
    text = run(
        [
            *words,
            f"--set=operator.namespaces={{{','.join(namespaces)}}},operator.leaderElection=false",
        ]
    )
    return [manifest for manifest in yaml.safe_load_all(text) if manifest is not None]


async def grant(client: Client, *namespaces: str, only: str | None = None) -> None:
    """What the chart grants its ServiceAccount for these namespaces: all but the Roles of those
    behind the first.

    `only`: just the Role in this namespace, as `helm upgrade` creates what is missing.
    """
    places = {only} if only is not None else {None, "slinky", namespaces[0]}
    if only is None:
        with contextlib.suppress(AlreadyExists):
            await client.create(
                NAMESPACES,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slinky"}},
            )
    for manifest in rendered(*namespaces):
        if manifest["kind"] not in RBAC or manifest["metadata"].get("namespace") not in places:
            continue
        resource, metadata = RBAC[manifest["kind"]], manifest["metadata"]
        # Those of the whole cluster exist from another test, for other namespaces.
        with contextlib.suppress(NotFound):
            await client.delete(resource, metadata.get("namespace"), metadata["name"])
        await client.create(resource, manifest)


async def until_granted(client: Client, name: str) -> None:
    """Wait until the API server knows the new rights: in the namespace, and in the whole
    cluster.
    """

    async def granted() -> bool:
        try:
            await client.list(PODS, name)
            await client.list(NODES)
        except Forbidden:
            return False
        return True

    await until("the operator's rights to be in force", granted)


@contextlib.asynccontextmanager
async def policed(client: Client, *namespaces: str) -> AsyncIterator[None]:
    """The chart's policies for these namespaces exist."""
    found = [it for it in rendered(*namespaces) if it["kind"] in POLICIES]
    for manifest in found:
        await client.create(POLICIES[manifest["kind"]], manifest)
    try:
        yield
    finally:
        for manifest in found:
            await client.delete(POLICIES[manifest["kind"]], None, manifest["metadata"]["name"])


@contextlib.asynccontextmanager
async def operator(
    world: WatchedNamespace, client: Client, *namespaces: str
) -> AsyncIterator[None]:
    """An operator with that client, which watches these namespaces, and the world's kubelets."""
    settings = Settings(namespaces=namespaces, slurmrestd_url=world.url)
    site = Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars:test")
    async with asyncio.TaskGroup() as tasks:
        work = [
            tasks.create_task(lead(client, settings, site)),
            tasks.create_task(world._kubelets()),
        ]
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
        await until_granted(restricted, name)
        world = WatchedNamespace(admin, name, slurm, url)
        await world.cluster()
        with caplog.at_level(logging.INFO):
            async with operator(world, restricted, name, "missing"):
                await world.nodeset(replicas=2)
                await world.until_ready(2)
                await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
                login = {
                    "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
                    "login": {"image": "login:test"},
                }
                await world.create(
                    custom("LoginSet", "login", {"controllerRef": {"name": "slurm"}, **login})
                )
                await until("the login nodes", lambda: world.get(DEPLOYMENTS, "login"))
                token = {
                    "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
                    "username": "ann",
                }
                await world.create(custom("Token", "ann", token))
                await until("the token", lambda: world.get(SECRETS, "ann-jwt-ann"))
                await world.until_event("ScalingUp", "NodeSet")
                await world.scale(1)
                await world.until_pods("slinky-0")
                await world.client.delete(NODESETS, name, "slinky")
                await world.until_pods()
        # As ApiError writes it; the number alone is in ports and times too.
        assert not [
            record.getMessage()
            for record in caplog.records
            if "403 Forbidden" in record.getMessage()
        ]
        for resource in (PODS, SECRETS, SERVICES, TOKENS):
            for place in ("default", None):
                with pytest.raises(Forbidden):
                    await restricted.list(resource, place)
        with pytest.raises(Forbidden):
            await restricted.get(NAMESPACES, None, "default")
        # Nor does the end of the chart's release wait for a namespace that does not exist.
        await release(restricted, "slinky", "slurm-operator", [name, "missing"])


async def test_the_operator_can_not_change_the_slurm_clusters_of_other_namespaces(
    plane: ControlPlane,
) -> None:
    async with (
        Client.connect(load_credentials(plane.kubeconfig)) as admin,
        Client.connect(load_credentials(plane.client("operator", ACCOUNT))) as restricted,
        namespace(admin, "mine") as mine,
        namespace(admin, "theirs") as theirs,
        policed(admin, mine),
    ):
        await grant(admin, mine)
        await until_granted(restricted, mine)
        spec = {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "slurmd:theirs"}}
        for place in (mine, theirs):
            nodeset = custom("NodeSet", "gpu", spec)
            await admin.create(
                NODESETS, {**nodeset, "metadata": {**nodeset["metadata"], "namespace": place}}
            )

        evil = {"spec": {"slurmd": {"image": "slurmd:evil"}}}

        async def in_force() -> bool:
            """The API server takes a new policy with a delay."""
            try:
                await restricted.merge_patch(NODESETS, theirs, "gpu", evil)
            except (Forbidden, Invalid):
                return True
            return False

        await until("the policy to be in force", in_force)
        await restricted.merge_patch(NODESETS, mine, "gpu", evil)
        finalizers, status = {"metadata": {"finalizers": ["a.b/c"]}}, {"status": {"replicas": 7}}
        for patch, subresource in ((evil, ""), (finalizers, ""), (status, "status")):
            with pytest.raises((Forbidden, Invalid), match=r"operator\.namespaces"):
                await restricted.merge_patch(
                    NODESETS, theirs, "gpu", patch, subresource=subresource
                )


async def test_a_namespace_without_a_role_is_reported_and_no_other_waits_for_it(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    slurm, other_slurm = SlurmModel(), SlurmModel()
    async with (
        Client.connect(load_credentials(plane.kubeconfig)) as admin,
        Client.connect(load_credentials(plane.client("operator", ACCOUNT))) as restricted,
        namespace(admin, "granted") as granted,
        namespace(admin, "again") as again,
        serve(slurm) as url,
    ):
        await grant(admin, granted, again)
        sound = WatchedNamespace(admin, granted, slurm, url)
        lacking = WatchedNamespace(admin, again, other_slurm, url)
        for world in (sound, lacking):
            await world.cluster()
        async with operator(sound, restricted, granted, again):
            await sound.nodeset(replicas=1)
            await sound.until_ready(1)

            async def forbidden() -> str:
                ready = await lacking.condition(CONTROLLERS, "slurm")
                return str(ready["message"]) if ready.get("reason") == "Forbidden" else ""

            message = await until("the Controller without a Role to be reported", forbidden)
            assert again in message
            assert "helm upgrade" in message
            assert message in caplog.text
            assert b"\nslurm_operator_unreadable_namespaces 1.0\n" in generate_latest()
            await grant(admin, granted, again, only=again)

            async def applied() -> bool:
                return await lacking.get(STATEFUL_SETS, "slurm-controller") is not None

            await until("slurmctld of the other cluster", applied)
            assert b"\nslurm_operator_unreadable_namespaces 0.0\n" in generate_latest()
