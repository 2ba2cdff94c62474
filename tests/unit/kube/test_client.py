"""The client against a scripted API server: paths, bodies, and what each verb returns or raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecars.kube import (
    CONFIG_MAPS,
    PODS,
    AlreadyExists,
    Client,
    Conflict,
    NotFound,
)
from sidecars.objects import ConfigMap
from tests.support.config_maps import config_map

if TYPE_CHECKING:
    from tests.support.kube_double import KubeDouble

pytestmark = pytest.mark.looptime


async def test_an_object_is_read_as_manifest_or_as_record(
    server: KubeDouble, client: Client
) -> None:
    stored = server.put(CONFIG_MAPS, config_map("ns", "a", k="v"))
    assert await client.get(CONFIG_MAPS, "ns", "a") == stored
    record = await client.get(CONFIG_MAPS, "ns", "a", ConfigMap)
    assert (record.metadata.name, record.data) == ("a", {"k": "v"})
    with pytest.raises(NotFound, match="GET /api/v1/namespaces/ns/configmaps/b: 404 NotFound"):
        await client.get(CONFIG_MAPS, "ns", "b")


async def test_the_log_of_a_container_is_read_from_a_time_on(
    server: KubeDouble, client: Client
) -> None:
    server.body = b"the log"
    since = "2026-01-01T00:00:00Z"
    for previous in (False, True):
        assert (
            await client.log("ns", "p", "slurmd", since=since, limit=100, previous=previous)
            == "the log"
        )
    query = {"container": "slurmd", "sinceTime": since, "limitBytes": "100"}
    assert [call.path for call in server.calls] == ["/api/v1/namespaces/ns/pods/p/log"] * 2
    assert [call.query for call in server.calls] == [query, query | {"previous": "true"}]
    server.body = None
    with pytest.raises(NotFound):
        await client.log("ns", "q", "slurmd", since=since, limit=100)


async def test_objects_of_a_list_of_manifests_have_apiversion_and_kind(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, {"metadata": {"namespace": "ns", "name": "p"}})
    items, version = await client.list(PODS, "ns")
    assert [(item["apiVersion"], item["kind"]) for item in items] == [("v1", "Pod")]
    assert version == "2"


async def test_a_dry_run_asks_the_api_server_to_store_nothing(
    server: KubeDouble, client: Client
) -> None:
    await client.apply(CONFIG_MAPS, config_map("ns", "a"), field_manager="us", dry_run=True)
    [trial] = server.calls
    assert trial.query == {"fieldManager": "us", "force": "true", "dryRun": "All"}


async def test_writes_carry_what_the_api_asks_for(server: KubeDouble, client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("ns", "a"))
    await client.apply(
        CONFIG_MAPS,
        config_map("ns", "a", k="v"),
        field_manager="us",
        force=False,
        subresource="status",
    )
    await client.merge_patch(CONFIG_MAPS, "ns", "a", {"data": {"k": None}}, field_manager="us")
    version = server.objects(CONFIG_MAPS)["ns", "a"]["metadata"]["resourceVersion"]
    await client.delete(
        CONFIG_MAPS,
        "ns",
        "a",
        grace_period_seconds=0,
        propagation_policy="Foreground",
        resource_version=version,
    )
    create, apply, patch, delete = server.calls
    assert (create.method, create.path) == ("POST", "/api/v1/namespaces/ns/configmaps")
    assert (apply.method, apply.path) == ("PATCH", "/api/v1/namespaces/ns/configmaps/a/status")
    assert apply.query == {"fieldManager": "us", "force": "false"}
    assert apply.headers["Content-Type"] == "application/apply-patch+yaml"
    assert patch.headers["Content-Type"] == "application/merge-patch+json"
    assert patch.query == {"fieldManager": "us"}
    assert delete.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"resourceVersion": version},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


async def test_each_refusal_is_an_error_of_its_own(server: KubeDouble, client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("ns", "a"))
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("ns", "a"))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "ns", "a", uid="another")


async def test_a_manifest_without_a_namespace_is_refused_before_it_is_sent(
    server: KubeDouble, client: Client
) -> None:
    with pytest.raises(ValueError, match=r"a ConfigMap to write needs metadata.namespace"):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    with pytest.raises(ValueError, match="'' can't name a ConfigMap"):
        await client.apply(CONFIG_MAPS, {"metadata": {"namespace": "ns"}}, field_manager="us")
    assert server.calls == []


async def test_a_watch_begins_with_the_version_it_was_asked_from(
    server: KubeDouble, client: Client
) -> None:
    stream = client.watch(PODS, "ns", resource_version="1", timeout_seconds=10)
    server.put(PODS, {"metadata": {"namespace": "ns", "name": "p"}})
    events = [event async for event in stream]
    assert [(event.kind, event.resource_version) for event in events] == [
        ("BOOKMARK", "1"),
        ("ADDED", "2"),
    ]
    assert server.calls[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "10",
    }
