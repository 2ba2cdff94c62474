"""Which fields of a live object an upgrade doesn't change."""

from typing import Any

import pytest

from postrender.preview.ownership import retained
from postrender.preview.report import preview
from postrender.preview.state import State
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams


def fields(value: Any) -> Any:
    """A value as `fieldsV1` records it."""
    return (
        {f"f:{key}": fields(item) for key, item in value.items()} if isinstance(value, dict) else {}
    )


def live(manifest: Manifest, *managers: tuple[str, str, dict[str, Any]]) -> Manifest:
    """An object with what its managers own: name, operation, and a value with the fields."""
    found = [
        {"manager": name, "operation": how, "fieldsV1": fields(value)}
        for name, how, value in managers
    ]
    return {**manifest, "metadata": {**manifest["metadata"], "managedFields": found}}


def config_map(**data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "slurm"},
        "data": data,
    }


@pytest.mark.parametrize("operation", ["Update", "Apply"])
def test_what_another_client_has_added_stays_and_what_helm_has_set_is_removed(
    operation: str,
) -> None:
    found = live(
        config_map(ours="1", theirs="2", former="3"),
        ("helm", operation, {"data": {"ours": "1", "former": "3"}}),
        ("kubectl-edit", "Update", {"data": {"theirs": "2"}}),
    )
    assert retained(config_map(ours="4"), found)["data"] == {"ours": "4", "theirs": "2"}


def test_an_object_that_helm_has_never_set_keeps_all_of_its_fields() -> None:
    found = live(config_map(theirs="2"), ("kubectl", "Update", {"data": {"theirs": "2"}}))
    assert retained(config_map(ours="1"), found)["data"] == {"ours": "1", "theirs": "2"}


def test_without_a_record_all_fields_count_as_those_of_helm() -> None:
    assert retained(config_map(ours="1"), config_map(theirs="2"))["data"] == {"ours": "1"}


def test_a_map_that_the_chart_no_longer_has_is_removed_whole_by_helm_3_and_in_parts_by_helm_4() -> (
    None
):
    had = {"slurmd": {"image": "a", "resources": {"limits": {"cpu": 1}}}, "replicas": 1}
    for operation, left in (
        ("Update", {}),
        ("Apply", {"slurmd": {"resources": {"limits": {"cpu": 1}}}}),
    ):
        nodeset = {**streams.nodeset(), "spec": had}
        found = live(
            nodeset,
            ("helm", operation, {"spec": {"slurmd": {"image": "a"}, "replicas": 1}}),
            ("kubectl", "Update", {"spec": {"slurmd": {"resources": {"limits": {"cpu": 1}}}}}),
        )
        assert retained({**nodeset, "spec": {"replicas": 2}}, found)["spec"] == {
            "replicas": 2,
            **left,
        }


def test_a_number_of_workers_that_another_client_has_set_stays() -> None:
    nodeset = {**streams.nodeset(), "spec": {"replicas": 5}}
    after = {**nodeset, "spec": {"replicas": 2}}
    scaled = {"spec": {"replicas": 5}}
    ours: dict[str, Any] = {"spec": {"slurmd": {}}}
    found = live(nodeset, ("helm", "Update", ours), ("kubectl", "Update", scaled))
    assert retained(after, found)["spec"] == {"replicas": 5}
    found = live(nodeset, ("helm", "Update", ours | scaled))
    assert retained(after, found)["spec"] == {"replicas": 2}
    found = live(nodeset, ("helm", "Apply", scaled), ("kubectl", "Update", scaled))
    assert retained(after, found)["spec"] == {"replicas": 2}


@pytest.mark.parametrize(("former", "left"), [(2, 5), (1, 2), (None, 2)])
def test_a_number_that_another_client_has_set_is_changed_where_the_charts_own_changes(
    former: int | None, left: int
) -> None:
    """Helm 3 sends the difference between two renders of the chart."""
    nodeset = {**streams.nodeset(), "spec": {"replicas": 5}}
    found = live(nodeset, ("kubectl", "Update", {"spec": {"replicas": 5}}))
    released = {**nodeset, "spec": {} if former is None else {"replicas": former}}
    after = {**nodeset, "spec": {"replicas": 2}}
    assert retained(after, found, released)["spec"] == {"replicas": left}


def test_hooks_of_the_chart_are_no_change() -> None:
    test = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "slurm-helm-test", "annotations": {"helm.sh/hook": "test"}},
    }
    before = [*streams.known_keys(), streams.controller(), streams.nodeset()]
    found = preview(before, [*before, test], streams.SITE, State(1.0, live=True), "slurm")
    assert found.changes == ()


def test_other_objects_are_as_in_the_stream_because_their_defaults_count_as_helms() -> None:
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"type": "NodePort"},
    }
    given = {**service, "spec": {"ports": []}}
    assert retained(given, live(service, ("kubectl", "Update", {"spec": {"type": ""}}))) == given


def test_a_preview_reports_what_helm_removes_and_nothing_of_what_it_leaves() -> None:
    after = [*streams.known_keys(), streams.controller(), streams.nodeset()]
    nodeset = streams.nodeset(extraConf="Weight=2")
    state = State(1.0, live=True)
    added = live(
        nodeset, ("helm", "Update", {"spec": {"replicas": 2}}), ("kubectl-edit", "Update", {})
    )
    assert preview([*after[:-1], added], after, streams.SITE, state, "slurm").changes == ()
    ours = live(nodeset, ("helm", "Update", {"spec": {"replicas": 2, "extraConf": "Weight=2"}}))
    [change] = preview([*after[:-1], ours], after, streams.SITE, state, "slurm").changes
    assert change.fields == ("spec.extraConf is removed",)
