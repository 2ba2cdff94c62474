"""The store: what its reflector puts in is what reads, indexes and subscribers see."""

from __future__ import annotations

import logging

import pytest

from sidecars.kube import Event, Key, Malformed, Manifest, Store, identity
from sidecars.objects import ObjectMeta, Pod, PodSpec


def pod(name: str, version: int = 1, *, uid: str = "", node: str = "") -> Pod:
    meta = ObjectMeta(
        name=name, namespace="ns", uid=uid or f"uid of {name}", resource_version=str(version)
    )
    return Pod(meta, PodSpec(node_name=node))


def kinds(events: list[Event[Pod]]) -> list[tuple[str, str]]:
    return [(event.kind, event.object.metadata.name) for event in events]


def test_an_object_is_found_by_namespace_and_name() -> None:
    store = Store[Pod]()
    store.put(pod("a"))
    assert store.get("ns", "a") == pod("a")
    assert store.get("other", "a") is None
    assert ("ns", "a") in store
    assert len(store) == 1
    assert list(store.values()) == [pod("a")]


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    store = Store[Manifest]()
    node = {"metadata": {"name": "n1"}}
    store.put(node)
    assert store.get(None, "n1") == node
    assert store.get("", "n1") == node


def test_subscribers_get_the_old_and_the_new_state() -> None:
    store = Store[Pod]()
    events: list[Event[Pod]] = []
    store.subscribe(events.append)
    store.put(pod("a"))
    store.put(pod("a", 2, node="n1"))
    store.discard(Key("ns", "a"), pod("a", 3, node="n1"))
    assert events == [
        Event("ADDED", None, pod("a")),
        Event("MODIFIED", pod("a"), pod("a", 2, node="n1")),
        Event("DELETED", pod("a", 3, node="n1"), None),
    ]


def test_the_same_version_again_is_no_event() -> None:
    store = Store[Pod]()
    events: list[Event[Pod]] = []
    store.subscribe(events.append)
    store.put(pod("a"))
    store.put(pod("a"))
    store.discard(Key("ns", "unknown"))
    assert kinds(events) == [("ADDED", "a")]


def test_another_uid_under_the_same_name_is_another_object() -> None:
    store = Store[Pod]()
    events: list[Event[Pod]] = []
    store.subscribe(events.append)
    store.put(pod("a", uid="one"))
    store.put(pod("a", 2, uid="two"))
    assert [(event.kind, event.object.metadata.uid) for event in events] == [
        ("ADDED", "one"),
        ("DELETED", "one"),
        ("ADDED", "two"),
    ]


def test_a_late_subscriber_gets_the_objects_that_exist() -> None:
    store = Store[Pod]()
    store.put(pod("a"))
    events: list[Event[Pod]] = []
    store.subscribe(events.append)
    assert kinds(events) == [("ADDED", "a")]


def test_a_subscriber_that_fails_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store = Store[Pod]()
    events: list[Event[Pod]] = []

    def fail(_: Event[Pod]) -> None:
        raise RuntimeError("no")

    store.subscribe(fail)
    store.subscribe(events.append)
    with caplog.at_level(logging.ERROR):
        store.put(pod("a"))
    assert kinds(events) == [("ADDED", "a")]
    assert "a handler failed on ADDED" in caplog.text


def test_an_index_follows_changes_before_subscribers_are_called() -> None:
    store = Store[Pod]()
    store.put(pod("a", node="n1"))
    store.add_index("node", lambda item: [item.spec.node_name] if item.spec.node_name else [])
    seen: list[list[str]] = []
    store.subscribe(lambda _: seen.append([item.metadata.name for item in store.by("node", "n2")]))
    store.put(pod("a", 2, node="n2"))
    store.put(pod("b"))
    assert store.by("node", "n1") == []
    assert store.by("node", "n2") == [pod("a", 2, node="n2")]
    store.discard(Key("ns", "a"))
    assert store.by("node", "n2") == []
    assert seen == [[], ["a"], ["a"], []]


def test_an_unknown_index_and_one_named_twice_are_errors() -> None:
    store = Store[Pod]()
    store.add_index("node", lambda item: [item.spec.node_name])
    with pytest.raises(ValueError, match="the index 'node' exists already"):
        store.add_index("node", lambda item: [item.spec.node_name])
    with pytest.raises(KeyError):
        store.by("owner", "x")


def test_a_malformed_object_keeps_its_last_state_until_it_is_good_or_gone() -> None:
    store = Store[Pod]()
    events: list[Event[Pod]] = []
    store.subscribe(events.append)
    key = Key("ns", "a")
    store.put(pod("a"))
    store.mark_malformed(key, Malformed("bad"))
    assert store.get("ns", "a") == pod("a")
    assert set(store.malformed) == {key}
    store.put(pod("a", 2))
    assert not store.malformed
    store.mark_malformed(Key("ns", "b"), Malformed("bad"))
    assert sorted(store.known()) == [("ns", "a"), ("ns", "b")]
    store.discard(Key("ns", "b"))
    assert not store.malformed
    assert kinds(events) == [("ADDED", "a"), ("MODIFIED", "a")]


def test_records_and_manifests_have_the_same_identity() -> None:
    manifest = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid of a", "resourceVersion": "1"}
    }
    assert identity(manifest) == identity(pod("a"))
