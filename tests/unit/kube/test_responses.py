"""Answers that are what the API promises, and answers that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import (
    CONFIG_MAPS,
    PODS,
    AlreadyExists,
    Client,
    Malformed,
    ServerError,
    Unauthorized,
    responses,
)
from sidecars.objects import ConfigMap, Pod
from tests.support.config_maps import config_map

if TYPE_CHECKING:
    from tests.support.kube_double import KubeDouble

pytestmark = pytest.mark.looptime


async def test_one_malformed_object_makes_a_list_malformed(
    server: KubeDouble, client: Client
) -> None:
    server.put(CONFIG_MAPS, config_map("ns", "good"))
    server.put(CONFIG_MAPS, config_map("ns", "bad") | {"data": {"k": 1}})
    with pytest.raises(
        Malformed,
        match=r"GET /api/v1/configmaps: .*Expected `str`, got `int` - at `\$.data\[...\]`",
    ):
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
        (
            pods_with(b'{"metadata": {"name": "a", "generation": 1e400}}'),
            r"`\$.*metadata.generation`|out of range",
        ),
        (
            pods_with(b'{"metadata": {"name": "a", "generation": 1.5}}'),
            r"`\$.*metadata.generation`",
        ),
        (
            pods_with(b'{"metadata": {"name": "a", "deletionTimestamp": "soon"}}'),
            r"`\$.*metadata.deletionTimestamp`",
        ),
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


async def test_events_larger_than_any_buffer_arrive_whole(
    server: KubeDouble, client: Client
) -> None:
    stream = client.watch(CONFIG_MAPS, resource_version="1", timeout_seconds=10)
    server.put(CONFIG_MAPS, config_map("ns", "a", k="v" * 3_000_000))
    objects = [event.object async for event in stream if event.object is not None]
    assert [len(item["data"]["k"]) for item in objects] == [3_000_000]


def test_a_refusal_is_the_error_that_the_status_names() -> None:
    body = (
        b'{"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "taken", '
        b'"details": {"name": "a"}}'
    )
    error = responses.refusal(409, body, request="POST /x", source="file", retry_after=None)
    assert isinstance(error, AlreadyExists)
    assert (str(error), error.details) == ("POST /x: 409 AlreadyExists: taken", {"name": "a"})


def test_a_refusal_without_a_status_shows_what_was_answered() -> None:
    error = responses.refusal(
        502, b"<html>gateway" + b"x" * 1000, request="GET /x", source="file", retry_after=None
    )
    assert isinstance(error, ServerError)
    assert error.message.startswith("<html>gateway")
    assert len(error.message) == 300


def test_a_refusal_of_the_credentials_names_where_they_are_from() -> None:
    error = responses.refusal(
        401, b"", request="GET /x", source="/etc/kubeconfig", retry_after=None
    )
    assert isinstance(error, Unauthorized)
    assert "/etc/kubeconfig" in str(error)
