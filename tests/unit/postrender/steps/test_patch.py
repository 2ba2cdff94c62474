"""Patches of three kinds."""

from typing import Any

import pytest

from postrender.errors import PostrenderError
from tests.support.streams import applied, config_map, objects, stream


def patched(given: dict[str, Any], **settings: Any) -> dict[str, Any]:
    (found,) = objects(applied(stream(given), {"patch": settings}))
    return found


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x"}, "spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "NodeSet"])
def test_a_strategic_patch_merges_containers_by_name_and_appends_others(kind: str) -> None:
    given = workload(
        kind, containers=[{"name": "a", "image": "a:1"}, {"name": "b"}], tolerations=[{"key": "x"}]
    )
    patch = {
        "metadata": {"labels": {"l": "m"}},
        "spec": {
            "replicas": 2,
            "template": {
                "spec": {
                    "containers": [{"name": "a", "tty": True}, {"$patch": "delete", "name": "b"}]
                }
            },
        },
    }
    found = patched(given, strategic=patch)
    assert found["metadata"] == {"name": "x", "labels": {"l": "m"}}
    assert found["spec"]["replicas"] == 2
    assert found["spec"]["template"]["spec"]["containers"] == [
        {"name": "a", "image": "a:1", "tty": True}
    ]
    assert found["spec"]["template"]["spec"]["tolerations"] == [{"key": "x"}]


def test_a_strategic_patch_merges_the_environment_of_slurmd() -> None:
    given = {
        "kind": "NodeSet",
        "metadata": {"name": "x"},
        "spec": {"slurmd": {"env": [{"name": "A", "value": "1"}]}},
    }
    found = patched(given, strategic={"spec": {"slurmd": {"env": [{"name": "B", "value": "2"}]}}})
    assert [it["name"] for it in found["spec"]["slurmd"]["env"]] == ["B", "A"]


def test_a_strategic_patch_of_a_container_that_is_none_is_refused_with_its_place() -> None:
    given = {"kind": "NodeSet", "metadata": {"name": "x"}, "spec": {"slurmd": "text"}}
    with pytest.raises(PostrenderError, match=r"NodeSet x: spec\.slurmd: a map stands where"):
        patched(given, strategic={"spec": {"slurmd": {"tty": True}}})


def test_a_merge_patch_replaces_lists_and_removes_by_null() -> None:
    given = config_map("x", data={"a": "1", "b": "2"})
    assert patched(given, merge={"data": {"a": None, "c": "3"}})["data"] == {"b": "2", "c": "3"}


def test_a_json_patch_changes_one_place() -> None:
    found = patched(
        config_map("x", data={"a": "1"}), json=[{"op": "replace", "path": "/data/a", "value": "2"}]
    )
    assert found["data"] == {"a": "2"}


def test_only_selected_objects_are_patched_also_within_a_list() -> None:
    given = {"kind": "List", "items": [config_map("a"), config_map("b")]}
    found = objects(
        applied(
            stream(given), {"patch": {"merge": {"data": {"x": "y"}}, "select": [{"name": "b"}]}}
        )
    )
    assert [it.get("data") for it in found] == [None, {"x": "y"}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"postrender.yaml: steps\[0\].patch needs one of strategic, merge and json, not none"),
        ({"merge": {"a": 1}, "json": [{"op": "remove", "path": "/a"}]}, "not merge and json"),
        (
            {"json": [{"op": "remove", "path": "/data/x"}]},
            r"line 3, ConfigMap x: json\[0\]: remove /data/x: /data doesn't exist",
        ),
        ({"merge": {"kind": None}}, "no Kubernetes object would be left"),
        (
            {"json": [{"op": "replace", "path": "", "value": [1]}]},
            "no Kubernetes object would be left",
        ),
        ({"strategic": {"metadata": {"labels": {"a": {}}, "name": {}}}}, "metadata.name"),
    ],
)
def test_what_cannot_be_patched_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PostrenderError, match=message):
        patched(config_map("x"), **settings)
