"""When an object is applied, and when it is left alone."""

from typing import Any

import pytest

from sidecars.operator.apply import APPLIED_HASH, MANAGED_BY, covers, stamped


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
