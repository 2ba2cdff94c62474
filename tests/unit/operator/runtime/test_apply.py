"""When an object is applied, and when it is left alone."""

from typing import Any

import pytest

from sidecars.operator.runtime.apply import APPLIED_HASH, MANAGED_BY, covers, stamped, with_former_image


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
