"""The client against a scripted API server: paths, bodies, deadlines, and which failure is raised as what."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import (
    CONFIG_MAPS,
    PODS,
    AlreadyExists,
    Client,
    Conflict,
    Gone,
    LeadershipLost,
    Malformed,
    Manifest,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from sidecars.kube.records import ConfigMap, Pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.kube_double import Fault, KubeDouble

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


def config_map(name: str = "a", **data: str) -> Manifest:
    metadata = {"namespace": "ns", "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_an_object_is_read_as_manifest_or_as_record(server: KubeDouble, client: Client) -> None:
    stored = server.put(CONFIG_MAPS, config_map(k="v"))
    assert await client.get(CONFIG_MAPS, "ns", "a") == stored
    record = await client.get(CONFIG_MAPS, "ns", "a", ConfigMap)
    assert (record.metadata.name, record.data) == ("a", {"k": "v"})
    with pytest.raises(NotFound, match="GET /api/v1/namespaces/ns/configmaps/b: 404 NotFound"):
        await client.get(CONFIG_MAPS, "ns", "b")


async def test_objects_of_a_list_of_manifests_say_what_they_are(server: KubeDouble, client: Client) -> None:
    server.put(PODS, {"metadata": {"namespace": "ns", "name": "p"}})
    items, version = await client.list(PODS, "ns")
    assert [(item["apiVersion"], item["kind"]) for item in items] == [("v1", "Pod")]
    assert version == "2"


async def test_one_malformed_object_makes_a_list_malformed(server: KubeDouble, client: Client) -> None:
    server.put(CONFIG_MAPS, config_map("good"))
    server.put(CONFIG_MAPS, config_map("bad") | {"data": {"k": 1}})
    with pytest.raises(Malformed, match=r"GET /api/v1/configmaps: .*Expected `str`, got `int` - at `\$.data\[...\]`"):
        await client.list(CONFIG_MAPS, type=ConfigMap)


def pods_with(item: bytes) -> bytes:
    return b'{"metadata": {"resourceVersion": "1"}, "items": [' + item + b"]}"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "truncated"),
        (b'{"metadata": {"resourceVersion": "1"}, "items": [', "truncated"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (pods_with(b'{"a": ' + b"[" * 100_000), "recursion"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"items": []}', "missing required field `metadata`"),
        (b'{"metadata": {"resourceVersion": 1}, "items": []}', r"`\$.metadata.resourceVersion`"),
        (b'{"metadata": {"resourceVersion": "1"}}', "missing required field `items`"),
        (b'{"metadata": {"resourceVersion": "1"}, "items": {}}', r"`\$.items`"),
        (pods_with(b"1"), "Expected `object`, got `int`"),
        (pods_with(b"{}"), "missing required field `metadata`"),
        (pods_with(b'{"metadata": {"name": "\xff\xfe"}}'), "UTF-8|utf-8"),
        (pods_with(b'{"metadata": {"name": 7}}'), r"`\$.*metadata.name`"),
        (pods_with(b'{"metadata": {"name": "a", "generation": 1e400}}'), r"`\$.*metadata.generation`|out of range"),
        (pods_with(b'{"metadata": {"name": "a", "generation": 1.5}}'), r"`\$.*metadata.generation`"),
        (pods_with(b'{"metadata": {"name": "a", "deletionTimestamp": "soon"}}'), r"`\$.*metadata.deletionTimestamp`"),
    ],
)
async def test_a_list_that_is_not_what_the_api_promises_names_the_call_and_the_field(
    server: KubeDouble, client: Client, body: bytes, what: str
) -> None:
    server.body = body
    with pytest.raises(Malformed, match=f"GET /api/v1/pods: .*({what})"):
        await client.list(PODS, type=Pod)


@pytest.mark.parametrize("type", [Pod, dict])
@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"type": "ADDED"',
        b'{"type": "ADDED"}',
        b'{"type": "RENAMED", "object": {"metadata": {"name": "a", "resourceVersion": "1"}}}',
        b'{"type": "ADDED", "object": 5}',
        b'{"type": "ADDED", "object": {}}',
        b'{"type": "ADDED", "object": {"metadata": {"name": 7}}}',
        b'{"type": "ADDED", "object": {"metadata": {"name": "\xff", "resourceVersion": "1"}}}',
        b'{"type": "BOOKMARK", "object": {"metadata": 5}}',
        b'{"type": "ERROR", "object": {"code": "x"}}',
    ],
)
async def test_a_watch_event_that_is_none_is_malformed_and_names_the_call(
    server: KubeDouble, client: Client, line: bytes, type: Any
) -> None:
    server.body = line + b"\n"
    with pytest.raises(Malformed, match="WATCH /api/v1/pods: "):
        async for _ in client.watch(PODS, resource_version="1", type=type):
            pass


async def test_writes_carry_what_the_api_asks_for(server: KubeDouble, client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map())
    await client.apply(CONFIG_MAPS, config_map(k="v"), field_manager="us", force=False, subresource="status")
    await client.merge_patch(CONFIG_MAPS, "ns", "a", {"data": {"k": None}}, field_manager="us")
    await client.replace(CONFIG_MAPS, config_map())
    await client.delete(
        CONFIG_MAPS, "ns", "a", grace_period_seconds=0, propagation_policy="Foreground", resource_version="5"
    )
    create, apply, patch, replace, delete = server.calls
    assert (create.method, create.path) == ("POST", "/api/v1/namespaces/ns/configmaps")
    assert (apply.method, apply.path) == ("PATCH", "/api/v1/namespaces/ns/configmaps/a/status")
    assert apply.query == {"fieldManager": "us", "force": "false"}
    assert apply.headers["Content-Type"] == "application/apply-patch+yaml"
    assert patch.headers["Content-Type"] == "application/merge-patch+json"
    assert patch.query == {"fieldManager": "us"}
    assert replace.method == "PUT"
    assert delete.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"resourceVersion": "5"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


async def test_refusals_are_told_apart(server: KubeDouble, client: Client) -> None:
    stored = await client.create(CONFIG_MAPS, config_map())
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map())
    stored["metadata"]["resourceVersion"] = "1"
    with pytest.raises(Conflict):
        await client.replace(CONFIG_MAPS, stored)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "ns", "a", uid="another")


async def test_a_manifest_without_a_namespace_is_refused_before_it_is_sent(server: KubeDouble, client: Client) -> None:
    with pytest.raises(ValueError, match=r"a ConfigMap to write needs metadata.namespace"):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    with pytest.raises(ValueError, match="'' can't name a ConfigMap"):
        await client.apply(CONFIG_MAPS, {"metadata": {"namespace": "ns"}}, field_manager="us")
    assert server.calls == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [("500", ServerError), ("drop", Unreachable), ("truncated", Unreachable), ("garbage", Malformed), ("410", Gone)],
)
async def test_faults_are_raised_as_what_they_are(
    server: KubeDouble, client: Client, fault: Fault, error: type[Exception]
) -> None:
    server.always = fault
    start = now()
    with pytest.raises(error, match="GET /api/v1/pods"):
        await client.list(PODS)
    assert now() - start < 1


@pytest.mark.parametrize("write", [True, False])
async def test_a_call_without_an_answer_ends_at_its_deadline(server: KubeDouble, client: Client, write: bool) -> None:
    (server.write_faults if write else server.faults).append("hang")
    start = now()
    with pytest.raises(Unreachable, match="no answer within 30 s"):
        await (client.create(CONFIG_MAPS, config_map()) if write else client.list(PODS))
    assert now() - start == pytest.approx(30, abs=0.1)


async def test_a_client_apart_waits_for_nobody_elses_requests(server: KubeDouble) -> None:
    server.faults.append("hang")
    async with Client.connect(server.credentials, concurrency=1) as client, asyncio.TaskGroup() as tasks:
        hanging = tasks.create_task(client.list(PODS))
        await asyncio.sleep(1)
        start = now()
        await client.apart().list(CONFIG_MAPS)
        assert now() - start < 1
        hanging.cancel()


async def test_a_write_is_sent_once_only(server: KubeDouble, client: Client) -> None:
    for fault in ("500", "drop"):
        server.write_faults.append(fault)
        with pytest.raises((ServerError, Unreachable)):
            await client.create(CONFIG_MAPS, config_map())
    assert len(server.calls) == 2


async def test_too_many_requests_are_waited_out(server: KubeDouble, client: Client) -> None:
    server.write_faults.extend(["429", "429"])
    server.faults.extend(["429"])
    start = now()
    await client.create(CONFIG_MAPS, config_map())
    assert 2 <= now() - start <= 3.1
    await client.list(CONFIG_MAPS)


async def test_waiting_ends_where_the_deadline_would_pass(server: KubeDouble) -> None:
    server.always = "429"
    async with Client.connect(server.credentials, timeout=5) as client:
        start = now()
        with pytest.raises(TooManyRequests) as error:
            await client.list(PODS)
        assert now() - start < 5
    assert error.value.retry_after == 1


async def test_a_refused_eviction_is_not_waited_out(server: KubeDouble, client: Client) -> None:
    server.put(PODS, {"metadata": {"namespace": "ns", "name": "p"}})
    server.write_faults.append("429")
    start = now()
    with pytest.raises(TooManyRequests):
        await client.evict("ns", "p")
    assert now() == start
    await client.evict("ns", "p", uid="uid-1", grace_period_seconds=10)
    assert server.calls[-1].path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert server.calls[-1].body["deleteOptions"]["preconditions"] == {"uid": "uid-1"}
    assert server.objects(PODS) == {}


async def test_no_more_requests_than_allowed_are_under_way_at_once(server: KubeDouble) -> None:
    server.faults.extend(["hang"] * 10)
    async with Client.connect(server.credentials, concurrency=3, timeout=10) as client:
        calls = [asyncio.create_task(client.list(PODS)) for _ in range(5)]
        await asyncio.sleep(1)
        assert len(server.calls) == 3
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_watches_leave_room_for_requests(server: KubeDouble) -> None:
    async with Client.connect(server.credentials, concurrency=1) as client:
        stream = client.watch(PODS, resource_version="1")
        await anext(stream)
        assert await client.list(PODS) == ([], "1")
        await stream.aclose()


async def test_a_renewed_token_is_taken_up_after_a_401(server: KubeDouble) -> None:
    server.token = "old"
    credentials = server.credentials
    async with Client.connect(credentials) as client:
        await client.list(PODS)
        server.token = "new"
        with pytest.raises(Unauthorized, match=r"credentials: double"):
            await client.list(PODS)
        credentials.token = b"new"
        await client.list(PODS)
        assert server.calls[-1].headers["Authorization"] == "Bearer new"


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.create(CONFIG_MAPS, config_map()),
        lambda client: client.apply(CONFIG_MAPS, config_map(), field_manager="us"),
        lambda client: client.replace(CONFIG_MAPS, config_map()),
        lambda client: client.merge_patch(CONFIG_MAPS, "ns", "a", {}),
        lambda client: client.json_patch(CONFIG_MAPS, "ns", "a", [], dict),
        lambda client: client.delete(CONFIG_MAPS, "ns", "a"),
        lambda client: client.evict("ns", "a"),
    ],
    ids=["create", "apply", "replace", "merge_patch", "json_patch", "delete", "evict"],
)
async def test_one_who_does_not_lead_reads_but_does_not_write(
    server: KubeDouble, client: Client, write: Callable[[Client], Awaitable[Any]]
) -> None:
    guarded = client.guarded(lambda: 0.0)
    assert await guarded.list(PODS) == ([], "1")
    with pytest.raises(LeadershipLost, match="not sent, the lease is not held"):
        await write(guarded)
    assert [call.method for call in server.calls] == ["GET"]


async def test_a_lead_lost_while_connecting_keeps_the_write_from_being_sent(server: KubeDouble, client: Client) -> None:
    answers = iter([5.0, 5.0, 0.0])
    with pytest.raises(LeadershipLost):
        await client.guarded(lambda: next(answers)).create(CONFIG_MAPS, config_map())
    assert server.calls == []
    await client.create(CONFIG_MAPS, config_map())


async def test_a_write_waits_for_its_answer_no_longer_than_the_lead_lasts(server: KubeDouble, client: Client) -> None:
    server.write_faults.append("hang")
    end = now() + 4
    with pytest.raises(Unreachable, match="no answer within 4 s"):
        await client.guarded(lambda: end - now()).create(CONFIG_MAPS, config_map())
    assert now() == pytest.approx(end, abs=0.1)


async def test_a_watch_begins_with_the_version_it_was_asked_from(server: KubeDouble, client: Client) -> None:
    stream = client.watch(PODS, "ns", resource_version="1", timeout_seconds=10)
    server.put(PODS, {"metadata": {"namespace": "ns", "name": "p"}})
    events = [event async for event in stream]
    assert [(event.kind, event.resource_version) for event in events] == [("BOOKMARK", "1"), ("ADDED", "2")]
    assert server.calls[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "10",
    }


async def test_events_larger_than_any_buffer_arrive_whole(server: KubeDouble, client: Client) -> None:
    stream = client.watch(CONFIG_MAPS, resource_version="1", timeout_seconds=10)
    server.put(CONFIG_MAPS, config_map(k="v" * 3_000_000))
    objects = [event.object async for event in stream if event.object is not None]
    assert [len(item["data"]["k"]) for item in objects] == [3_000_000]
