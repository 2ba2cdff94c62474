"""When an object is applied, and when it is left alone."""

from typing import Any

import pytest

from sidecars.kube import Conflict, Manifest
from sidecars.operator.runtime.apply import (
    APPLIED_HASH,
    MANAGED_BY,
    NEW,
    NameTakenError,
    covers,
    stamped,
    with_former_image,
)
from tests.support.operator_parts import NAMESPACE, Parts


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": {"b": [1, 2], "c": None}}, {"a": {"b": [1, 2]}}),
        ([{"name": "x", "added": True}], [{"name": "x"}]),
        ("text", "text"),
    ],
)
def test_what_others_added_is_no_difference(live: Any, wanted: Any) -> None:
    assert covers(live, wanted)


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": None}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": [2, 1]}, {"a": [1, 2]}),
        ({"a": 1}, {"a": {"b": 1}}),
        (None, {"a": 1}),
    ],
)
def test_a_changed_missing_or_reordered_value_is_a_difference(live: Any, wanted: Any) -> None:
    assert not covers(live, wanted)


def test_the_stamp_changes_with_the_content_and_keeps_what_was_there() -> None:
    manifest = {"kind": "Service", "metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"port": 1}}
    one, two = stamped(manifest), stamped({**manifest, "spec": {"port": 2}})
    assert one["metadata"]["labels"] == {"x": "y", MANAGED_BY: "slurm-operator"}
    assert one["metadata"]["annotations"][APPLIED_HASH] != two["metadata"]["annotations"][APPLIED_HASH]
    assert one["metadata"]["annotations"] == stamped(manifest)["metadata"]["annotations"]


def deployment(sidecar: str, daemon: str = "login:1", replicas: int = 1, cpu: str = "1") -> dict[str, Any]:
    """A Deployment with a sidecar of ours."""
    daemons = [{"name": "login", "image": daemon, "resources": {"limits": {"cpu": cpu}}}]
    pod = {"initContainers": [{"name": "initconf", "image": sidecar}], "containers": daemons}
    return {
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"replicas": replicas, "template": {"metadata": {}, "spec": pod}},
    }


def test_another_release_of_our_image_alone_changes_no_pod() -> None:
    live = stamped(deployment("ours:1"))
    assert with_former_image(deployment("ours:2"), live, "ours:2") == deployment("ours:1")
    scaled = deployment("ours:2", replicas=3)
    assert with_former_image(scaled, live, "ours:2") == deployment("ours:1", replicas=3)
    written_otherwise = stamped(deployment("ours:1", cpu="1000m"))
    written_otherwise["spec"] = deployment("ours:1", cpu="1")["spec"]
    assert with_former_image(deployment("ours:2", cpu="1000m"), written_otherwise, "ours:2") == deployment(
        "ours:1", cpu="1000m"
    )


def test_our_new_image_comes_along_with_another_change() -> None:
    live = stamped(deployment("ours:1"))
    other = deployment("ours:2", daemon="login:2")
    assert with_former_image(other, live, "ours:2") == other
    assert with_former_image(deployment("ours:2"), None, "ours:2") == deployment("ours:2")
    assert with_former_image(deployment("users:2"), live, "ours:2") == deployment("users:2")


def service(owner: str = "uid-of-login", **metadata: Any) -> Manifest:
    """Service `login` of a LoginSet with that uid."""
    owners = [{"kind": "LoginSet", "name": "login", "uid": owner, "controller": True}]
    names = {"namespace": NAMESPACE, "name": "login"}
    return {"kind": "Service", "metadata": names | {"ownerReferences": owners} | metadata, "spec": {"a": "b"}}


def live(manifest: Manifest, **metadata: Any) -> Manifest:
    """The object as the API server stores it."""
    return {**manifest, "metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "7", **metadata}}


@pytest.mark.looptime
async def test_an_object_that_does_not_exist_is_created_and_never_taken_over() -> None:
    parts = Parts()
    assert await parts.runtime.applier.apply(service())
    [body] = parts.requests.of("apply", "Service")
    assert body["metadata"]["resourceVersion"] == NEW
    assert len(parts.requests.made) == 1


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (live({"kind": "Service", "metadata": {"namespace": NAMESPACE, "name": "login"}}), "created by another client"),
        (live(service(owner="another")), "belongs to LoginSet login"),
        (live(service(), ownerReferences=[{"kind": "Pod", "name": "x", "uid": "x"}]), "created by another client"),
        (live(service(owner="another"), labels={MANAGED_BY: "slurm-operator"}), "belongs to LoginSet login"),
    ],
)
async def test_an_object_of_another_owner_is_named_and_not_written_to(found: Manifest, words: str) -> None:
    parts = Parts()
    parts.requests.refusals["apply Service"] = Conflict(409, "Conflict", "the object has been modified")
    parts.requests.stored["Service", "login"] = found
    with pytest.raises(NameTakenError, match=words) as caught:
        await parts.runtime.applier.apply(service())
    assert caught.value.reason == "NameTaken"
    assert caught.value.retried
    assert f"Service {NAMESPACE}/login" in str(caught.value)
    assert len(parts.requests.of("apply", "Service")) == 1


@pytest.mark.looptime
async def test_an_object_with_our_label_and_another_controller_is_not_written_to() -> None:
    parts = Parts()
    parts.runtime.caches.services.store.put(live(service(owner="another"), labels={MANAGED_BY: "slurm-operator"}))
    with pytest.raises(NameTakenError, match="belongs to LoginSet login"):
        await parts.runtime.applier.apply(service())
    assert parts.requests.made == []


@pytest.mark.looptime
@pytest.mark.parametrize(
    "found",
    [
        live(service(), labels={}),
        live(service(), ownerReferences=[], labels={MANAGED_BY: "slurm-operator"}),
        live(
            service(),
            ownerReferences=[
                {"kind": "LoginSet", "name": "login", "uid": "uid-of-login"},
                {"kind": "LoginSet", "name": "b", "uid": "other"},
            ],
        ),
    ],
)
async def test_an_object_of_ours_is_changed_by_its_uid(found: Manifest) -> None:
    parts = Parts()
    parts.runtime.caches.services.store.put(found)
    assert await parts.runtime.applier.apply(service())
    [body] = parts.requests.of("apply", "Service")
    assert body["metadata"]["uid"] == "u"
    assert "resourceVersion" not in body["metadata"]


@pytest.mark.looptime
async def test_an_object_as_desired_costs_no_request() -> None:
    parts = Parts()
    parts.runtime.caches.services.store.put(live(stamped(service())))
    assert not await parts.runtime.applier.apply(service())
    assert parts.requests.made == []
