"""Requests against a scripted API server: deadlines, retries, leadership, and which failure is
raised as what.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import (
    CONFIG_MAPS,
    PODS,
    Client,
    Gone,
    LeadershipLost,
    Malformed,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from tests.support.config_maps import config_map

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.kube_double import Fault, KubeDouble

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("500", ServerError),
        ("drop", Unreachable),
        ("truncated", Unreachable),
        ("garbage", Malformed),
        ("410", Gone),
    ],
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
async def test_a_call_without_an_answer_ends_at_its_deadline(
    server: KubeDouble, client: Client, write: bool
) -> None:
    (server.write_faults if write else server.faults).append("hang")
    start = now()
    with pytest.raises(Unreachable, match="no answer within 30 s"):
        await (client.create(CONFIG_MAPS, config_map("ns", "a")) if write else client.list(PODS))
    assert now() - start == pytest.approx(30, abs=0.1)


async def test_a_client_apart_waits_for_nobody_elses_requests(server: KubeDouble) -> None:
    server.faults.append("hang")
    async with (
        Client.connect(server.credentials, concurrency=1) as client,
        asyncio.TaskGroup() as tasks,
    ):
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
            await client.create(CONFIG_MAPS, config_map("ns", "a"))
    assert len(server.calls) == 2


async def test_too_many_requests_are_waited_out(server: KubeDouble, client: Client) -> None:
    server.write_faults.extend(["429", "429"])
    server.faults.extend(["429"])
    start = now()
    await client.create(CONFIG_MAPS, config_map("ns", "a"))
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
        lambda client: client.create(CONFIG_MAPS, config_map("ns", "a")),
        lambda client: client.apply(CONFIG_MAPS, config_map("ns", "a"), field_manager="us"),
        lambda client: client.merge_patch(CONFIG_MAPS, "ns", "a", {}),
        lambda client: client.json_patch(CONFIG_MAPS, "ns", "a", [], dict),
        lambda client: client.delete(CONFIG_MAPS, "ns", "a"),
    ],
    ids=["create", "apply", "merge_patch", "json_patch", "delete"],
)
async def test_one_who_does_not_lead_reads_but_does_not_write(
    server: KubeDouble, client: Client, write: Callable[[Client], Awaitable[Any]]
) -> None:
    guarded = client.guarded(lambda: 0.0)
    assert await guarded.list(PODS) == ([], "1")
    with pytest.raises(LeadershipLost, match="not sent, the lease is not held"):
        await write(guarded)
    assert [call.method for call in server.calls] == ["GET"]


async def test_a_lead_lost_while_connecting_keeps_the_write_from_being_sent(
    server: KubeDouble, client: Client
) -> None:
    answers = iter([5.0, 5.0, 0.0])
    with pytest.raises(LeadershipLost):
        await client.guarded(lambda: next(answers)).create(CONFIG_MAPS, config_map("ns", "a"))
    assert server.calls == []
    await client.create(CONFIG_MAPS, config_map("ns", "a"))


async def test_a_write_waits_for_its_answer_no_longer_than_the_lead_lasts(
    server: KubeDouble, client: Client
) -> None:
    server.write_faults.append("hang")
    end = now() + 4
    with pytest.raises(Unreachable, match="no answer within 4 s"):
        await client.guarded(lambda: end - now()).create(CONFIG_MAPS, config_map("ns", "a"))
    assert now() == pytest.approx(end, abs=0.1)
