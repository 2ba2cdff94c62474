"""The steps `labels` and `annotations`."""

from typing import Any

import pytest

from tests.support.streams import applied, config_map, objects, stream


def test_keys_are_set_and_removed_and_others_stay() -> None:
    given = config_map("one", labels={"a": "1", "b": "2", "c": "3"})
    (found,) = objects(
        applied(stream(given), {"labels": {"set": {"b": "5", "d": "on"}, "remove": ["a", "x"]}})
    )
    assert found["metadata"]["labels"] == {"b": "5", "c": "3", "d": "on"}


def test_a_second_run_changes_nothing() -> None:
    wanted: dict[str, Any] = {"labels": {"set": {"b": "1e3"}, "remove": ["a"], "pods": True}}
    once = applied(
        stream(
            config_map("one", labels={"a": "1"}), {"kind": "Deployment", "metadata": {"name": "d"}}
        ),
        wanted,
    )
    assert applied(once, wanted).written() == once.written()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("NodeSet", ("spec", "template")),
        ("StatefulSet", ("spec", "template")),
        ("CronJob", ("spec", "jobTemplate", "spec", "template")),
    ],
)
def test_with_pods_the_pods_get_the_keys_too(kind: str, path: tuple[str, ...]) -> None:
    given = {"kind": kind, "metadata": {"name": "a"}, "spec": {"x": 1}}
    (alone,) = objects(applied(stream(given), {"annotations": {"set": {"k": "v"}}}))
    assert alone == {**given, "metadata": {"name": "a", "annotations": {"k": "v"}}}
    (found,) = objects(applied(stream(given), {"annotations": {"set": {"k": "v"}, "pods": True}}))
    assert found["spec"]["x"] == 1
    for part in path:
        found = found[part]
    assert found["metadata"] == {"annotations": {"k": "v"}}


def test_nothing_is_added_for_keys_that_are_only_removed() -> None:
    given = stream(config_map("one"), {"kind": "Deployment", "metadata": {"name": "d"}})
    text = given.written()
    assert applied(given, {"labels": {"remove": ["a"], "pods": True}}).written() == text


def test_helms_own_annotation_stays() -> None:
    name = "postrenderer.helm.sh/postrender-filename"
    given = {"kind": "A", "metadata": {"name": "a", "annotations": {name: "a.yaml", "x": "y"}}}
    (found,) = objects(applied(stream(given), {"annotations": {"remove": [name, "x"]}}))
    assert found["metadata"]["annotations"] == {name: "a.yaml"}
