"""The reflector against a scripted API server, in virtual time: after every fault the cache equals
the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import (
    NAMESPACES,
    PODS,
    SECRETS,
    Client,
    Event,
    Key,
    Manifest,
    Reflector,
    identity,
)
from sidecars.objects import PartialObjectMetadata, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.kube_double import Fault, KubeDouble

pytestmark = pytest.mark.looptime


def pod(name: str, namespace: str = "ns", **labels: str) -> Manifest:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "status": {"phase": "Running"},
    }


@contextlib.asynccontextmanager
async def running(reflector: Reflector[Any]) -> AsyncIterator[list[tuple[str, str]]]:
    """The events (kind, name) that come while the reflector runs."""
    seen: list[tuple[str, str]] = []

    def note(event: Event[Any]) -> None:
        item = event.object
        seen.append(
            (event.kind, item["metadata"]["name"] if isinstance(item, dict) else item.metadata.name)
        )

    reflector.store.subscribe(note)
    task = asyncio.create_task(reflector.run())
    try:
        yield seen
    finally:
        assert not task.done(), "a reflector ends by cancellation only"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(reflector: Reflector[Any]) -> set[str]:
    return {identity(item).key.name for item in reflector.store.values()}


async def test_the_store_has_the_list_and_follows_the_watch(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, pod("a"))
    server.put(PODS, pod("b"))
    reflector = Reflector(client, PODS, type=Pod)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        server.put(PODS, pod("c"))
        server.put(PODS, pod("a", changed="yes"))
        server.remove(PODS, "ns", "b")
        await asyncio.sleep(1)
        assert names(reflector) == {"a", "c"}
        assert events == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("ADDED", "c"),
            ("MODIFIED", "a"),
            ("DELETED", "b"),
        ]
        a = reflector.store.get("ns", "a")
        assert a is not None
        assert a.metadata.labels == {"changed": "yes"}
        assert a.status.phase == "Running"


async def test_lists_are_paged(server: KubeDouble, client: Client) -> None:
    for number in range(25):
        server.put(PODS, pod(f"p{number}"))
    server.page_limit = 10
    reflector = Reflector(client, PODS)
    async with running(reflector):
        await reflector.wait_synced(5)
        assert len(reflector.store) == 25
        assert [bool(call.query.get("continue")) for call in server.reads(PODS)[:3]] == [
            False,
            True,
            True,
        ]
        assert server.reads(PODS)[0].query["limit"] == "250"


async def test_a_list_whose_continue_token_expires_starts_again(
    server: KubeDouble, client: Client
) -> None:
    for number in range(25):
        server.put(PODS, pod(f"p{number}"))
    server.page_limit = 10
    server.faults.extend([None, "410"])
    reflector = Reflector(client, PODS)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        assert len(reflector.store) == 25
        assert len(events) == 25


async def test_an_object_that_vanished_unseen_is_deleted_after_the_relist(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, pod("a"))
    server.put(PODS, pod("b"))
    reflector = Reflector(client, PODS)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        await asyncio.sleep(20)
        server.always = "500"
        server.end_streams()
        await asyncio.sleep(5)
        server.remove(PODS, "ns", "a")
        server.compact()
        server.always = None
        await asyncio.sleep(60)
        assert names(reflector) == {"b"}
        assert events[-1] == ("DELETED", "a")


async def test_an_object_created_again_unseen_is_deleted_and_added(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, pod("a"))
    reflector = Reflector(client, PODS)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        server.always = "500"
        server.end_streams()
        await asyncio.sleep(5)
        server.remove(PODS, "ns", "a")
        server.put(PODS, pod("a"))
        server.compact()
        server.always = None
        await asyncio.sleep(60)
        assert events == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_a_watch_resumes_from_the_last_bookmark(server: KubeDouble, client: Client) -> None:
    server.put(PODS, pod("a"))
    reflector = Reflector(client, PODS)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        await asyncio.sleep(1)
        server.compact()  # a version that only a bookmark reports
        await asyncio.sleep(61)
        server.end_streams()
        await asyncio.sleep(5)
        server.put(PODS, pod("b"))
        await asyncio.sleep(1)
        assert events == [("ADDED", "a"), ("ADDED", "b")]
        lists = [call for call in server.reads(PODS) if "watch" not in call.query]
        assert len(lists) == 1


@pytest.mark.parametrize("fault", ["gone", "410"])
async def test_a_version_too_old_means_one_relist(
    server: KubeDouble, client: Client, fault: Fault
) -> None:
    server.put(PODS, pod("a"))
    server.faults.extend([None, fault])
    reflector = Reflector(client, PODS)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        server.put(PODS, pod("b"))
        await asyncio.sleep(5)
        assert events == [("ADDED", "a"), ("ADDED", "b")]
        assert len([call for call in server.reads(PODS) if "watch" not in call.query]) == 2


@pytest.mark.parametrize(
    "fault", ["500", "empty", "drop", "garbage", "gone", "error", "410", "bookmark"]
)
async def test_a_sick_server_is_not_hammered(
    server: KubeDouble, client: Client, fault: Fault
) -> None:
    server.put(PODS, pod("a"))
    reflector = Reflector(client, PODS)
    async with running(reflector):
        await reflector.wait_synced(5)
        server.always = fault
        server.end_streams()
        before = len(server.calls)
        await asyncio.sleep(60)
        assert 3 <= len(server.calls) - before <= 30
        assert reflector.fault is not None or fault in ("empty", "bookmark")
        assert names(reflector) == {"a"}
        server.always = None
        server.put(PODS, pod("b"))
        await asyncio.sleep(35)
        assert names(reflector) == {"a", "b"}
        assert reflector.fault is None


async def test_the_back_off_starts_again_after_a_healthy_stream(
    server: KubeDouble, client: Client
) -> None:
    reflector = Reflector(client, PODS)
    async with running(reflector):
        await reflector.wait_synced(5)
        server.always = "500"
        server.end_streams()
        await asyncio.sleep(60)
        server.always = None
        await asyncio.sleep(60)
        server.end_streams()
        await asyncio.sleep(1)
        server.put(PODS, pod("a"))
        await asyncio.sleep(0.1)
        assert names(reflector) == {"a"}


async def test_a_stream_that_goes_silent_is_given_up_after_the_read_deadline(
    server: KubeDouble, client: Client
) -> None:
    server.faults.extend([None, "silent"])
    reflector = Reflector(client, PODS)
    async with running(reflector):
        await reflector.wait_synced(5)
        server.put(PODS, pod("a"))
        await asyncio.sleep(60)
        assert names(reflector) == set()
        await asyncio.sleep(15)
        assert names(reflector) == {"a"}


async def test_a_quiet_watch_lives_on_bookmarks_until_its_timeout(
    server: KubeDouble, client: Client
) -> None:
    reflector = Reflector(client, PODS)
    async with running(reflector):
        await reflector.wait_synced(5)
        await asyncio.sleep(290)
        assert len(server.reads(PODS)) == 2
        await asyncio.sleep(600)
        timeouts = {int(call.query["timeoutSeconds"]) for call in server.reads(PODS)[1:]}
        assert len(timeouts) > 1
        assert all(300 <= timeout <= 600 for timeout in timeouts)


async def test_only_the_given_namespaces_are_kept(server: KubeDouble, client: Client) -> None:
    for namespace in ("one", "two", "three"):
        server.put(PODS, pod("a", namespace))
    reflector = Reflector(client, PODS, namespaces=["one", "two"])
    async with running(reflector):
        await reflector.wait_synced(5)
        server.put(PODS, pod("b", "two"))
        server.put(PODS, pod("b", "three"))
        await asyncio.sleep(1)
        assert sorted(reflector.store.known()) == [("one", "a"), ("two", "a"), ("two", "b")]
        server.remove(PODS, "one", "a")
        server.compact()
        server.end_streams()
        await asyncio.sleep(5)
        assert sorted(reflector.store.known()) == [("two", "a"), ("two", "b")]


async def test_selectors_go_with_lists_and_watches(server: KubeDouble, client: Client) -> None:
    reflector = Reflector(
        client, PODS, label_selector="app in (slurmd)", field_selector="spec.nodeName=n1"
    )
    async with running(reflector):
        await reflector.wait_synced(5)
        await asyncio.sleep(1)
        selectors = [
            (call.query["labelSelector"], call.query["fieldSelector"])
            for call in server.reads(PODS)
        ]
        assert selectors == [("app in (slurmd)", "spec.nodeName=n1")] * 2


async def test_metadata_only_asks_for_no_contents_and_follows_as_usual(
    server: KubeDouble, client: Client
) -> None:
    for number in range(3):
        secret = {
            "metadata": {"name": f"s{number}", "namespace": "ns", "labels": {"app": "a"}},
            "data": {"k": "djE="},
        }
        server.put(SECRETS, secret)
    server.page_limit = 2
    reflector = Reflector(client, SECRETS, type=PartialObjectMetadata)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        assert names(reflector) == {"s0", "s1", "s2"}
        server.put(SECRETS, {"metadata": {"name": "s0", "namespace": "ns"}, "data": {"k": "djI="}})
        server.remove(SECRETS, "ns", "s1")
        await asyncio.sleep(1)
        assert events[3:] == [("MODIFIED", "s0"), ("DELETED", "s1")]
        changed, kept = reflector.store.get("ns", "s0"), reflector.store.get("ns", "s2")
        assert isinstance(changed, PartialObjectMetadata)
        assert isinstance(kept, PartialObjectMetadata)
        assert changed.metadata.labels == {}
        assert kept.metadata.labels == {"app": "a"}
        server.compact()  # a version that only a bookmark reports
        await asyncio.sleep(61)
        server.end_streams()
        await asyncio.sleep(5)
        asked = [(call.headers["Accept"], "watch" in call.query) for call in server.reads(SECRETS)]
    lists = ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", False)
    watches = ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", True)
    assert asked == [lists, lists, watches, watches]


async def test_an_object_that_does_not_decode_keeps_its_last_state_and_hinders_no_other(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, pod("good"))
    server.put(PODS, pod("bad") | {"spec": {"nodeName": 7}})
    reflector = Reflector(client, PODS, type=Pod)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        assert names(reflector) == {"good"}
        assert set(reflector.store.malformed) == {Key("ns", "bad")}
        assert "$.spec.nodeName" in str(reflector.store.malformed[Key("ns", "bad")])
        server.put(PODS, pod("good") | {"spec": "none"})
        server.put(PODS, pod("bad"))
        await asyncio.sleep(1)
        assert names(reflector) == {"good", "bad"}
        assert set(reflector.store.malformed) == {Key("ns", "good")}
        server.remove(PODS, "ns", "good")
        await asyncio.sleep(1)
        assert names(reflector) == {"bad"}
        assert not reflector.store.malformed
        assert events == [("ADDED", "good"), ("ADDED", "bad"), ("DELETED", "good")]


async def test_waiting_for_a_server_that_answers_nothing_ends_with_the_reason(
    server: KubeDouble, client: Client
) -> None:
    server.always = "500"
    reflector = Reflector(client, PODS)
    async with running(reflector):
        with pytest.raises(
            TimeoutError, match=r"no complete list of pods within 20 s.*etcdserver: no leader"
        ):
            await reflector.wait_synced(20)


async def test_a_kind_that_may_be_absent_has_no_objects_until_it_is_there(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, pod("a"))
    server.always = "404"
    served: list[bool] = []
    reflector = Reflector(client, PODS, served=lambda: served.append(True))
    async with running(reflector):
        await reflector.wait_synced(5)
        assert (reflector.served, names(reflector), reflector.fault, served) == (
            False,
            set(),
            None,
            [],
        )
        server.always = None
        await asyncio.sleep(31)
        assert (reflector.served, names(reflector), served) == (True, {"a"}, [True])


async def test_the_objects_of_a_kind_that_is_removed_are_gone(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, pod("a"))
    reflector = Reflector(client, PODS, served=lambda: None)
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        server.always = "404"
        server.end_streams()
        await asyncio.sleep(5)
        assert (reflector.served, names(reflector), events) == (
            False,
            set(),
            [("ADDED", "a"), ("DELETED", "a")],
        )


async def test_no_object_with_finalizers_of_a_kind_that_is_not_served_for_a_while_counts_as_gone(
    server: KubeDouble, client: Client
) -> None:
    bound, leaving = pod("bound"), pod("leaving")
    bound["metadata"]["finalizers"] = leaving["metadata"]["finalizers"] = ["example.com/first"]
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for item in (bound, leaving, pod("free")):
        server.put(PODS, item)
    reflector = Reflector(client, PODS, served=lambda: None)
    async with running(reflector):
        await reflector.wait_synced(5)
        server.always = "404"
        server.end_streams()
        await asyncio.sleep(5)
        assert (reflector.served, names(reflector)) == (False, {"bound"})
        server.always = None
        await asyncio.sleep(31)
        assert (reflector.served, names(reflector)) == (True, {"bound", "leaving", "free"})


async def test_a_namespace_that_does_not_exist_is_empty_and_delays_no_other(
    server: KubeDouble, client: Client
) -> None:
    server.put(PODS, pod("a"))
    server.always = "403"  # as its Role is missing, too
    reflector = Reflector(client, PODS, type=Pod, namespaces=["ns"])
    async with running(reflector):
        await reflector.wait_synced(5)
        assert names(reflector) == set()
        assert reflector.fault is None
        server.put(NAMESPACES, {"metadata": {"name": "ns"}})
        server.always = None
        await asyncio.sleep(60)
        assert names(reflector) == {"a"}


async def test_a_namespace_that_is_being_deleted_is_empty_once_its_role_is_gone(
    server: KubeDouble, client: Client
) -> None:
    server.put(
        NAMESPACES, {"metadata": {"name": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    )
    server.put(PODS, pod("a"))
    reflector = Reflector(client, PODS, type=Pod, namespaces=["ns"])
    async with running(reflector):
        await reflector.wait_synced(5)
        assert names(reflector) == {"a"}
        server.compact()
        server.always = "403"
        server.end_streams()
        await asyncio.sleep(60)
        assert names(reflector) == set()


async def test_a_namespace_that_may_not_be_read_is_never_taken_for_empty(
    server: KubeDouble, client: Client
) -> None:
    server.put(NAMESPACES, {"metadata": {"name": "ns"}})
    server.put(PODS, pod("a"))
    reflector = Reflector(client, PODS, type=Pod, namespaces=["ns"])
    async with running(reflector) as events:
        await reflector.wait_synced(5)
        server.compact()
        server.always = "403"
        await asyncio.sleep(1200)
        assert names(reflector) == {"a"}
        assert reflector.fault is not None
        assert reflector.refused == {"ns": False}
        assert ("DELETED", "a") not in events


async def test_a_namespace_that_may_not_be_read_is_named_and_no_other_waits_for_it(
    server: KubeDouble, client: Client
) -> None:
    server.put(NAMESPACES, {"metadata": {"name": "ns"}})
    server.put(PODS, pod("a"))
    server.always = "403"
    reflector = Reflector(client, PODS, type=Pod, namespaces=["ns"])
    async with running(reflector):
        await reflector.wait_synced(5)
        assert reflector.refused == {"ns": False}
        server.always = None
        await asyncio.sleep(31)
        assert (reflector.refused, names(reflector)) == ({}, {"a"})


async def test_a_watch_that_is_refused_for_a_moment_is_followed_by_a_list(
    server: KubeDouble, client: Client
) -> None:
    server.put(NAMESPACES, {"metadata": {"name": "ns"}})
    reflector = Reflector(client, PODS, type=Pod, namespaces=["ns"])
    async with running(reflector):
        await reflector.wait_synced(5)
        await asyncio.sleep(1)
        server.always = "403"
        server.end_streams()
        await asyncio.sleep(5)
        assert reflector.refused == {"ns": False}
        server.put(PODS, pod("a"))
        server.always = None
        await asyncio.sleep(31)
        assert (reflector.refused, names(reflector)) == ({}, {"a"})


async def test_a_namespace_that_is_created_again_without_rights_is_not_taken_for_empty(
    server: KubeDouble, client: Client
) -> None:
    server.always = "403"
    reflector = Reflector(client, PODS, type=Pod, namespaces=["ns"])
    async with running(reflector):
        await reflector.wait_synced(5)
        assert reflector.refused == {"ns": True}
        server.put(NAMESPACES, {"metadata": {"name": "ns"}})
        await asyncio.sleep(31)
        assert reflector.refused == {"ns": False}


async def test_a_reader_of_all_namespaces_that_lacks_rights_does_not_start(
    server: KubeDouble, client: Client
) -> None:
    server.always = "403"
    reflector = Reflector(client, PODS)
    async with running(reflector):
        with pytest.raises(TimeoutError, match="403 Forbidden"):
            await reflector.wait_synced(5)


async def test_a_kind_that_is_missing_is_not_refused_once_there_are_rights(
    server: KubeDouble, client: Client
) -> None:
    server.put(NAMESPACES, {"metadata": {"name": "ns"}})
    server.always = "403"
    reflector = Reflector(client, PODS, namespaces=["ns"], served=lambda: None)
    async with running(reflector):
        await reflector.wait_synced(5)
        server.always = "404"
        await asyncio.sleep(31)
        assert (reflector.refused, reflector.served) == ({}, False)
