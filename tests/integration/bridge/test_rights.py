"""What the bridge's ServiceAccount may do, and who may use it, with the rights and policies of the
chart.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from sidecars.contract import bridge
from sidecars.kube import (
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    AlreadyExists,
    ApiError,
    Client,
    Forbidden,
    Manifest,
    Resource,
    load_credentials,
)
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.errors import ClusterError
from tests.cluster.install import helm_environment
from tests.cluster.tools import tool
from tests.support.bridge import live
from tests.support.bridge_world import (
    ACCOUNTS,
    CHART,
    NUMBERS,
    ROLE_BINDINGS,
    World,
    a_namespace,
    all_rights,
    bind,
    without_gate,
)

REPLICA_SETS = Resource("apps", "v1", "ReplicaSet", "replicasets")
ACCOUNT = {"serviceAccountName": "slurm-bridge", "automountServiceAccountToken": True}
IMAGE = {"spec": {"containers": [{"name": "c", "image": "evil"}]}}
MESSAGE = {"status": {"message": "mine"}}
CONTROLLER = "system:serviceaccount:kube-system:{}-controller"


EVIL = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]


@pytest_asyncio.fixture(autouse=True)
async def enforced(world: World) -> None:
    """The policies, from the moment when the API server enforces them."""
    await world.create("tried")

    async def refused() -> bool:
        # Another one each time: the same image is no change.
        other = [{**EVIL[0], "value": f"image-{next(NUMBERS)}"}]
        try:
            await world.account.json_patch(PODS, world.namespace, "tried", other, dict)
        except Forbidden:
            return False
        except ApiError:
            return True
        return False

    await world.until("the policies to be enforced", refused)


@pytest_asyncio.fixture
async def insider_config(world: World, plane: ControlPlane) -> AsyncIterator[Path]:
    """The kubeconfig file of the insider."""
    name = f"insider-{next(NUMBERS)}"
    await all_rights(world.admin, "slurm", name)
    yield plane.client(name, name, "system:authenticated")
    await world.admin.delete(ROLE_BINDINGS, "slurm", name)


@pytest_asyncio.fixture
async def insider(world: World, insider_config: Path) -> AsyncIterator[Client]:
    """Someone who has all rights in the namespace of the bridge."""
    async with Client.connect(load_credentials(insider_config)) as client:

        async def enforced() -> bool:
            try:
                await client.list(PODS, "slurm")
            except ApiError:
                return False
            return True

        await world.until("the insider's rights", enforced)
        yield client


async def default_account(world: World) -> None:
    """No controller creates accounts here."""
    with contextlib.suppress(AlreadyExists):
        await world.admin.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": "slurm"}})


def in_slurm(name: str, **spec: Any) -> Manifest:
    return without_gate("slurm", name, **spec)


def workload(kind: str, name: str, image: str = "x", account: bool = True) -> Manifest:
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": image}], **(ACCOUNT if account else {})}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "slurm"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


async def test_the_bridge_changes_no_pod_of_a_namespace_without_a_rolebinding(world: World) -> None:
    free = f"free-{next(NUMBERS)}"
    await world.admin.create(NAMESPACES, a_namespace(free))
    await world.admin.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": free}})
    await world.admin.create(PODS, without_gate(free))
    for change in ({"metadata": {"labels": {"a": "b"}}}, IMAGE):
        with pytest.raises(Forbidden, match='cannot patch resource "pods"'):
            await world.account.merge_patch(PODS, free, "p", change)
    with pytest.raises(Forbidden, match='cannot patch resource "pods/status"'):
        await world.account.merge_patch(PODS, free, "p", MESSAGE, subresource="status")
    with pytest.raises(Forbidden, match='cannot delete resource "pods"'):
        await world.account.delete(PODS, free, "p")
    assert (await world.account.get(PODS, free, "p"))["metadata"]["name"] == "p"
    await bind(world.admin, free)

    async def bound() -> bool:
        try:
            await world.account.merge_patch(
                PODS, free, "p", {"metadata": {"annotations": {"a": "b"}}}
            )
        except Forbidden:
            return False
        return True

    await world.until("the RoleBinding to count", bound)


async def test_the_chart_installs_with_each_values_file_and_binds_its_role_in_the_named_namespaces(
    world: World, plane: ControlPlane
) -> None:
    files = sorted((CHART / "ci").glob("*-values.yaml"))
    assert files
    for file in files:
        name = file.name.removesuffix("-values.yaml")
        values = file.read_text(encoding="utf-8")
        helm: list[str | Path] = [
            tool("helm"),
            f"--kubeconfig={plane.kubeconfig}",
            f"--namespace={name}",
        ]
        install = [*helm, "install", name, CHART, "--create-namespace", "--values=-"]
        run(install, env=helm_environment(), stdin=values, seconds=60)
        try:
            for namespace in yaml.safe_load(values)["admission"]["managedNamespaces"]:
                [binding], _ = await world.admin.list(ROLE_BINDINGS, namespace)
                [subject] = binding["subjects"]
                assert subject["namespace"] == name
        finally:
            # Its policies would refuse the other bridge's changes.
            run([*helm, "uninstall", name], env=helm_environment(), seconds=60)


async def test_no_job_is_submitted_for_pods_of_a_namespace_without_a_rolebinding(
    world: World,
) -> None:
    await world.admin.delete(ROLE_BINDINGS, world.namespace, "slurm-bridge-tenant")
    await world.create()

    async def unbound() -> bool:
        try:
            await world.account.merge_patch(
                PODS, world.namespace, "p", {"metadata": {"annotations": {"a": "b"}}}
            )
        except Forbidden:
            return True
        return False

    async def reported() -> bool:
        events, _ = await world.admin.list(EVENTS, "slurm")
        return any(
            it["reason"] == "NoRoleBinding" and world.namespace in it["note"] for it in events
        )

    await world.until("the RoleBinding to stop counting", unbound)
    async with world.bridge():
        await world.until("the Event with the command", reported)
        assert live(world.slurm) == []
        await bind(world.admin, world.namespace)

        async def labelled() -> bool:
            return bridge.JOB_LABEL in ((await world.pod()) or {})["metadata"].get("labels", {})

        await world.until("the pod to have a job", labelled)


async def test_the_bridge_changes_no_image_even_of_its_tenants(world: World) -> None:
    await world.create()
    with pytest.raises(ApiError, match="the Slurm Bridge changes no image"):
        await world.account.json_patch(PODS, world.namespace, "p", EVIL, dict)


async def test_the_bridge_changes_one_annotation_alone_of_the_pods_of_the_slurm_cluster(
    world: World,
) -> None:
    await default_account(world)
    name = f"worker-{next(NUMBERS)}"
    await world.admin.create(PODS, in_slurm(name))
    await world.account.merge_patch(
        PODS, "slurm", name, {"metadata": {"annotations": {bridge.GONE: "7"}}}
    )
    for change in (
        {"metadata": {"labels": {"app.kubernetes.io/part-of": "slurm-operator"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ):
        with pytest.raises(
            ApiError, match=f"the Slurm Bridge changes the annotation {bridge.GONE} alone"
        ):
            await world.account.merge_patch(PODS, "slurm", name, change)
    found = await world.admin.get(PODS, "slurm", name)
    assert found["metadata"]["annotations"][bridge.GONE] == "7"
    await world.admin.delete(PODS, "slurm", name, grace_period_seconds=0)


@pytest.mark.parametrize("account", ["serviceAccountName", "serviceAccount"])
async def test_only_the_replicaset_of_the_bridge_creates_pods_with_its_account(
    world: World, insider: Client, account: str
) -> None:
    item = in_slurm(f"thief-{next(NUMBERS)}", **{account: "slurm-bridge"})
    for client in (insider, world.admin):
        with pytest.raises(
            ApiError,
            match="only the ReplicaSet of the Slurm Bridge creates pods with its ServiceAccount",
        ):
            await client.create(PODS, item)
    await default_account(world)
    other = in_slurm(f"other-{next(NUMBERS)}")
    await insider.create(PODS, other)
    await world.admin.delete(PODS, "slurm", other["metadata"]["name"], grace_period_seconds=0)


@pytest.mark.parametrize(
    ("controller", "kind", "created"),
    [
        ("replicaset", "ReplicaSet", True),
        ("statefulset", "StatefulSet", False),
        ("replicaset", "StatefulSet", False),
    ],
)
async def test_of_the_controllers_only_that_of_replicasets_creates_its_pods(
    world: World, plane: ControlPlane, controller: str, kind: str, *, created: bool
) -> None:
    name = f"{controller}-{next(NUMBERS)}"
    item = in_slurm(name, **ACCOUNT)
    owner = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": "slurm-bridge-1",
        "uid": "u",
        "controller": True,
    }
    item["metadata"]["ownerReferences"] = [owner]
    config = plane.client(name, CONTROLLER.format(controller), "system:masters")
    async with Client.connect(load_credentials(config)) as client:
        if not created:
            with pytest.raises(ApiError, match="only the ReplicaSet of the Slurm Bridge"):
                await client.create(PODS, item)
            return
        await client.create(PODS, item)
    await world.admin.delete(PODS, "slurm", name, grace_period_seconds=0)


async def test_nobody_else_has_a_workload_with_its_account_or_changes_that_of_the_bridge(
    world: World, insider: Client
) -> None:
    with pytest.raises(ApiError, match="only the Deployment slurm-bridge has the ServiceAccount"):
        await insider.create(DEPLOYMENTS, workload("Deployment", "mine"))
    with pytest.raises(ApiError, match="only the Deployment slurm-bridge has the ServiceAccount"):
        # Also of an administrator: its pods would wait in vain.
        await world.admin.create(DEPLOYMENTS, workload("Deployment", "mine"))
    with pytest.raises(ApiError, match="only the Deployment slurm-bridge has ReplicaSets"):
        await insider.create(REPLICA_SETS, workload("ReplicaSet", "slurm-bridge-2"))
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil"}]
    with pytest.raises(ApiError, match="only who may change the policy"):
        await insider.json_patch(DEPLOYMENTS, "slurm", "slurm-bridge", image, dict)
    await insider.merge_patch(
        DEPLOYMENTS, "slurm", "slurm-bridge", {"metadata": {"annotations": {"a": "b"}}}
    )
    await insider.create(DEPLOYMENTS, workload("Deployment", "other", account=False))
    await world.admin.delete(DEPLOYMENTS, "slurm", "other")
    present = await world.admin.get(DEPLOYMENTS, "slurm", "slurm-bridge")
    before = present["spec"]["template"]["spec"]["containers"][0]["image"]
    change = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "new"}]
    await world.admin.json_patch(DEPLOYMENTS, "slurm", "slurm-bridge", change, dict)
    change[0]["value"] = before
    await world.admin.json_patch(DEPLOYMENTS, "slurm", "slurm-bridge", change, dict)


async def test_nobody_of_its_namespace_gets_a_token_of_the_bridge(
    world: World, insider: Client
) -> None:
    request = {
        "spec": {"audiences": []},
        "metadata": {"name": "slurm-bridge", "namespace": "slurm"},
    }
    post = Resource("", "v1", "TokenRequest", "serviceaccounts/slurm-bridge/token")
    body = {**request, "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    with pytest.raises(ApiError, match="gets a token of the Slurm Bridge"):
        await insider.create(post, body)
    secret = {
        "metadata": {
            "name": "stolen",
            "namespace": "slurm",
            "annotations": {"kubernetes.io/service-account.name": "slurm-bridge"},
        },
        "type": "kubernetes.io/service-account-token",
    }
    with pytest.raises(ApiError, match="gets a token of the Slurm Bridge"):
        await insider.create(SECRETS, secret)
    await default_account(world)
    of_another = {"kubernetes.io/service-account.name": "default"}
    metadata = {"name": "changed", "namespace": "slurm", "annotations": of_another}
    await insider.create(SECRETS, {**secret, "metadata": metadata})
    change = {"metadata": {"annotations": {"kubernetes.io/service-account.name": "slurm-bridge"}}}
    with pytest.raises(ApiError, match="gets a token of the Slurm Bridge"):
        await insider.merge_patch(SECRETS, "slurm", "changed", change)
    await world.admin.delete(SECRETS, "slurm", "changed")
    await insider.create(
        SECRETS, {"metadata": {"name": "plain", "namespace": "slurm"}, "stringData": {"a": "b"}}
    )
    await world.admin.delete(SECRETS, "slurm", "plain")


async def a_pod_of_the_bridge(plane: ControlPlane) -> str:
    """The name of a pod as the controllers create it."""
    name = f"slurm-bridge-6d5f7c9b4-x{next(NUMBERS)}"
    item = in_slurm(name, **ACCOUNT)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "slurm-bridge-6d5f7c9b4",
        "uid": "u",
    }
    item["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    config = plane.client("replicasets", CONTROLLER.format("replicaset"), "system:masters")
    async with Client.connect(load_credentials(config)) as client:
        await client.create(PODS, item)
    return name


def command(pod_name: str, way: str) -> tuple[Resource, Manifest]:
    """A request that connects to a pod."""
    return Resource("", "v1", "", f"pods/{pod_name}/{way}"), {
        "metadata": {"name": pod_name, "namespace": "slurm"}
    }


async def test_nobody_of_its_namespace_runs_a_command_in_a_pod_of_the_bridge(
    world: World, plane: ControlPlane, insider: Client
) -> None:
    name = await a_pod_of_the_bridge(plane)
    for way in ("exec", "attach"):
        with pytest.raises(ApiError, match="gets a token of the Slurm Bridge"):
            await insider.create(*command(name, way))
        with pytest.raises(ApiError, match="does not have a host assigned"):
            await world.admin.create(*command(name, way))
    debugger = {"spec": {"ephemeralContainers": [{"name": "debugger", "image": "evil"}]}}
    with pytest.raises(ApiError, match="changes images and containers of the Slurm Bridge"):
        await insider.merge_patch(PODS, "slurm", name, debugger, subresource="ephemeralcontainers")
    # It reaches ports, and no file.
    with pytest.raises(ApiError, match="does not have a host assigned"):
        await insider.create(*command(name, "portforward"))
    await world.admin.delete(PODS, "slurm", name, grace_period_seconds=0)


async def test_nobody_of_its_namespace_changes_pods_by_the_name_of_the_bridge(
    world: World, insider_config: Path, insider: Client
) -> None:
    await world.create()
    words: list[str | Path] = [
        tool("kubectl"),
        f"--kubeconfig={insider_config}",
        f"--namespace={world.namespace}",
    ]
    words.append("--as=system:serviceaccount:slurm:slurm-bridge")
    for change in (["annotate", "pod", "p", "a=b"], ["delete", "pod", "p", "--wait=false"]):
        with pytest.raises(ClusterError, match="only a token of the ServiceAccount"):
            run([*words, *change], seconds=60)
    # Whoever asks what the bridge may do changes nothing.
    assert run([*words, "auth", "can-i", "delete", "pods"], seconds=60).strip() == "yes"
    metadata = ((await world.pod()) or {})["metadata"]
    assert "a" not in metadata.get("annotations", {})
    assert "deletionTimestamp" not in metadata
    await world.account.merge_patch(
        PODS, world.namespace, "p", {"metadata": {"annotations": {"a": "b"}}}
    )
