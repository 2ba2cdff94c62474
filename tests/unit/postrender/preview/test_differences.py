"""Which fields of objects differ."""

import pytest

from postrender.preview.differences import Change, changes, fields
from sidecars.workloads.resources import Manifest


def config_map(name: str = "a", **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "slurm"},
        "data": data,
    }


def test_objects_are_created_changed_and_deleted() -> None:
    before, after = (
        [config_map("a", k="1"), config_map("b")],
        [config_map("c"), config_map("a", k="2")],
    )
    assert changes(before, after) == [
        Change("create", "ConfigMap", "slurm", "c"),
        Change("change", "ConfigMap", "slurm", "a", ("data.k changes",)),
        Change("delete", "ConfigMap", "slurm", "b"),
    ]


def test_the_namespace_of_the_release_is_that_of_objects_without_one() -> None:
    bare = config_map()
    del bare["metadata"]["namespace"]
    assert changes([config_map()], [bare], "slurm") == []


def test_defaults_of_the_api_server_are_no_change_and_its_own_values_are() -> None:
    def service(**spec: str) -> Manifest:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec}

    live = service(k="1", added="by another")
    assert changes([live], [service(k="1")], live=True) == []
    assert len(changes([live], [service(k="1")])) == 1
    assert [it.fields for it in changes([live], [service(k="2")], live=True)] == [
        ("spec.k: 1 → 2",)
    ]


def test_a_key_of_a_config_map_that_is_removed_is_a_change() -> None:
    for live in (True, False):
        found = changes([config_map(k="1", former="2")], [config_map(k="1")], live=live)
        assert [it.fields for it in found] == [("data.former is removed",)]


def test_items_of_a_list_are_compared_by_name() -> None:
    before = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}
    after = {
        "containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}, {"name": "c"}]
    }
    assert list(fields(before, after)) == ["containers[b].image: 1 → 2", "containers[c] is added"]
    assert list(fields({"words": ["x"]}, {"words": ["y"]})) == ["words[0]: x → y"]
    assert list(fields({"words": ["x"]}, {"words": ["y", "z"]})) == ["words changes"]


def test_an_unset_field_is_no_change_and_another_type_is() -> None:
    assert list(fields({"a": None, "b": {}}, {"c": []})) == []
    assert list(fields({"a": 1}, {"a": True})) == ["a: 1 → True"]
    assert list(fields({"a": 1}, {})) == ["a is removed"]
    assert list(fields({}, {"a": 1})) == ["a is added: 1"]


def test_long_values_and_secrets_are_not_shown() -> None:
    assert list(fields({"a": "x\ny"}, {"a": "x\nz"})) == ["a changes"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "slurm"}}
    found = changes(
        [secret | {"data": {"k": "b2xk"}}], [secret | {"data": {"k": "bmV3", "m": "bmV3"}}]
    )
    assert [it.fields for it in found] == [("data.k changes", "data.m is added")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            {"env": [{"name": "A", "value": "hunter2"}]},
            {"env": [{"name": "A", "value": "hunter3"}]},
        ),
        ({"env": []}, {"env": [{"name": "A", "value": "hunter2"}]}),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "A", "value": "hunter2"}]}),
        ({"args": ["--key=hunter2"]}, {"args": ["--key=hunter3"]}),
        ({"command": ["a", "hunter2"]}, {"command": ["a", "hunter3"]}),
        (
            {"extraConf": "AccountingStoragePass=hunter2"},
            {"extraConf": "AccountingStoragePass=hunter3"},
        ),
        ({}, {"extraConf": 'AccountingStoragePass="hunter2 too"'}),
        ({"extraConf": "JobCompLoc=http://u:hunter2@db"}, {"extraConf": "KillWait=3"}),
        ({"password": "hunter2"}, {"password": "hunter3"}),
        ({"data": {"k": "hunter2"}}, {"data": {"k": "x", "other": "hunter3"}}),
    ],
)
def test_what_may_be_a_password_is_not_shown(before: Manifest, after: Manifest) -> None:
    for one, other in ((before, after), (after, before)):
        found = list(fields(one, other))
        assert found
        assert "hunter" not in " ".join(found)


def test_the_text_of_a_secret_is_compared_as_the_api_server_stores_it() -> None:
    stored = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "slurm"}}
    before = stored | {"type": "Opaque", "data": {"k": "b2xk"}}
    assert changes([before], [stored | {"stringData": {"k": "old"}}], live=True) == []
    found = changes(
        [before], [stored | {"data": {"k": "b2xk"}, "stringData": {"k": "new"}}], live=True
    )
    assert [it.fields for it in found] == [("data.k changes",)]


def test_labels_of_deployment_tools_are_no_change() -> None:
    after = config_map()
    after["metadata"]["labels"] = {"helm.sh/chart": "slurm-2"}
    assert changes([config_map()], [after]) == []
    after["metadata"]["labels"] = {"team": "hpc"}
    assert [it.fields for it in changes([config_map()], [after])] == [
        ("metadata.labels.team is added: hpc",)
    ]
