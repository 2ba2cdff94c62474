"""Every verb of the client on a real API server."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import yaml

from sidecars import objects
from sidecars.kube import (
    CONFIG_MAPS,
    NODES,
    PODS,
    AlreadyExists,
    Client,
    Conflict,
    EventRecorder,
    Forbidden,
    Invalid,
    Manifest,
    NotFound,
    Resource,
    Unauthorized,
    Unreachable,
    load_credentials,
)
from sidecars.kube.resources import EVENTS
from tests.support.config_maps import config_map

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.timeout(120, func_only=True)

SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
SELF_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)


async def running_pod(client: Client, namespace: str) -> objects.Pod:
    metadata = {"namespace": namespace, "name": "default"}
    await client.create(
        SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    )
    pod = await client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": "p", "labels": {"app": "slurmd"}},
            "spec": {
                "containers": [{"name": "slurmd", "image": "slurmd"}],
                "automountServiceAccountToken": False,
            },
        },
        objects.Pod,
    )
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    await client.merge_patch(PODS, namespace, "p", status, subresource="status")
    return pod


async def test_an_object_is_created_read_and_deleted(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map(namespace, "a", k="v"), objects.ConfigMap)
    assert created.data == {"k": "v"}
    assert created.metadata.creation_timestamp is not None
    assert await client.get(CONFIG_MAPS, namespace, "a", objects.ConfigMap) == created
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map(namespace, "a"))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, namespace, "a", uid="another")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, namespace, "a", resource_version="1")
    await client.delete(
        CONFIG_MAPS, namespace, "a", uid=created.metadata.uid, propagation_policy="Background"
    )
    with pytest.raises(NotFound) as error:
        await client.get(CONFIG_MAPS, namespace, "a")
    assert error.value.details == {"name": "a", "kind": "configmaps"}


async def test_a_long_list_is_read_in_pages(client: Client, namespace: str) -> None:
    for number in range(12):
        await client.create(CONFIG_MAPS, config_map(namespace, f"c{number:02}"))
    pages = [
        page async for page in client.pages(CONFIG_MAPS, namespace, objects.ConfigMap, page_size=5)
    ]
    assert [len(page.items) for page in pages] == [5, 5, 2]
    assert [page.first for page in pages] == [True, False, False]
    items, version = await client.list(CONFIG_MAPS, namespace, field_selector="metadata.name=c03")
    assert [(item["kind"], item["metadata"]["name"]) for item in items] == [("ConfigMap", "c03")]
    assert version == pages[-1].resource_version


async def test_a_cluster_scoped_resource_needs_no_namespace(client: Client) -> None:
    node: Manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await client.create(NODES, node)
    await client.merge_patch(NODES, None, "n1", {"spec": {"unschedulable": True}})
    assert (await client.get(NODES, None, "n1", objects.Node)).spec.unschedulable
    await client.delete(NODES, None, "n1")


async def test_apply_owns_its_fields_and_keeps_those_of_other_managers(
    client: Client, namespace: str
) -> None:
    await client.apply(CONFIG_MAPS, config_map(namespace, "a", ours="1"), field_manager="us")
    await client.apply(CONFIG_MAPS, config_map(namespace, "a", theirs="1"), field_manager="them")
    with pytest.raises(Conflict):
        await client.apply(
            CONFIG_MAPS, config_map(namespace, "a", theirs="2"), field_manager="us", force=False
        )
    stored = await client.apply(
        CONFIG_MAPS, config_map(namespace, "a", ours="2"), field_manager="us"
    )
    assert stored["data"] == {"ours": "2", "theirs": "1"}
    stored = await client.apply(CONFIG_MAPS, config_map(namespace, "a"), field_manager="us")
    assert stored["data"] == {"theirs": "1"}


async def test_a_patch_changes_the_fields_that_it_names(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "a", x="1", y="2"))
    stored = await client.merge_patch(
        CONFIG_MAPS, namespace, "a", {"data": {"x": None}}, field_manager="us"
    )
    assert stored["data"] == {"y": "2"}
    test = {"op": "test", "path": "/data/y", "value": "2"}
    replace = {"op": "replace", "path": "/data/y", "value": "3"}
    stored = await client.json_patch(CONFIG_MAPS, namespace, "a", [test, replace], dict)
    assert stored["data"] == {"y": "3"}
    with pytest.raises(Invalid):
        await client.json_patch(CONFIG_MAPS, namespace, "a", [test, replace], dict)


async def test_the_status_subresource_writes_the_status_alone(
    client: Client, namespace: str
) -> None:
    pod = await running_pod(client, namespace)
    status = {"conditions": [{"type": "example.com/Drained", "status": "True"}]}
    await client.apply(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": "p"},
            "status": status,
        },
        field_manager="us",
        subresource="status",
    )
    stored = await client.get(PODS, namespace, "p", objects.Pod)
    assert stored.status.phase == "Running"
    drained = stored.status.condition("example.com/Drained")
    assert drained is not None
    assert drained.status == "True"
    assert stored.metadata.uid == pod.metadata.uid


async def test_an_invalid_object_names_its_field(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as error:
        await client.create(CONFIG_MAPS, config_map(namespace, "Not A Name"))
    assert error.value.details["causes"][0]["field"] == "metadata.name"


async def test_an_event_and_its_repeats_are_one_series(client: Client, namespace: str) -> None:
    regarding = await client.create(CONFIG_MAPS, config_map(namespace, "a"))
    recorder = EventRecorder(client, "slinky.slurm.net/slurm-operator", instance="pod-1")
    for _ in range(3):
        recorder.emit(
            regarding, "Warning", "Refused", "Reconcile", "slurm.conf line 3: unknown key"
        )
        await recorder.flush()
    items, _ = await client.list(EVENTS, namespace)
    assert len(items) == 1
    assert items[0]["regarding"]["uid"] == regarding["metadata"]["uid"]
    assert items[0]["note"] == "slurm.conf line 3: unknown key"
    assert items[0]["series"]["count"] == 2


async def user_of(client: Client) -> str:
    review = await client.create(
        SELF_REVIEWS, {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
    )
    return str(review["status"]["userInfo"]["username"])


async def test_a_renewed_client_certificate_is_used_without_a_restart(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    authority = control_plane.authority
    pairs = [
        authority.issue(f"rotating-{user}", user, ["system:masters"])
        for user in ("before", "after")
    ]
    files = tmp_path / "tls.crt", tmp_path / "tls.key"

    def install(pair: tuple[Path, Path]) -> None:
        for source, target in zip(pair, files, strict=True):
            target.write_bytes(source.read_bytes())

    install(pairs[0])
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    now = 0.0
    credentials = load_credentials(path)
    credentials.clock = lambda: now
    async with Client.connect(credentials) as client:
        assert await user_of(client) == "before"
        install(pairs[1])
        now = 61.0
        assert await user_of(client) == "after"


async def test_an_invalid_token_is_named_by_its_source(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "secret-but-wrong"}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    async with Client.connect(load_credentials(path)) as client:
        with pytest.raises(Unauthorized) as error:
            await client.list(CONFIG_MAPS, "default")
    assert str(path) in str(error.value)
    assert "secret-but-wrong" not in str(error.value)


async def test_an_api_server_of_another_certificate_authority_gets_no_request(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"].pop("certificate-authority-data")
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    async with Client.connect(load_credentials(path)) as client:
        with pytest.raises(Unreachable, match="certificate"):
            await client.list(CONFIG_MAPS, "default")


async def test_the_refusal_for_a_user_without_the_role_names_the_user_and_the_resource(
    control_plane: ControlPlane,
) -> None:
    async with Client.connect(load_credentials(control_plane.client("nobody", "nobody"))) as client:
        with pytest.raises(Forbidden, match='User "nobody" cannot list resource "configmaps"'):
            await client.list(CONFIG_MAPS, "default")


async def test_an_open_connection_takes_less_than_100_kib(control_plane: ControlPlane) -> None:
    connections = 16
    tracemalloc.start()
    try:
        async with Client.connect(
            load_credentials(control_plane.kubeconfig), concurrency=connections
        ) as client:
            await client.list(NODES)
            before, _ = tracemalloc.get_traced_memory()
            await asyncio.gather(*(client.list(NODES) for _ in range(connections)))
            after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < connections * 100 * 1024
