"""Whether values files mention what a schema has, and whether fields arrive in custom resources."""

import pytest

from schemas import resource_fields
from tests.charts.coverage import lost, unmentioned

OBJECT = {
    "type": "object",
    "properties": {"a": {}, "b": {"type": "object", "properties": {"c": {}}}},
}


def test_keys_that_no_file_mentions_are_listed_by_their_paths() -> None:
    assert unmentioned(OBJECT, [{"a": None}]) == ["b"]
    assert unmentioned(OBJECT, [{"b": {}}, None]) == ["a", "b.c"]


def test_files_add_up() -> None:
    assert unmentioned(OBJECT, [{"a": 1, "b": {}}, {"b": {"c": 1}}]) == []


def test_what_may_be_a_text_counts_as_a_whole() -> None:
    image = {"type": ["string", "object"], "properties": {"tag": {}}}
    assert unmentioned({"properties": {"image": image}}, [{"image": "a:b"}]) == []


def test_a_value_whose_fields_another_key_describes_counts_as_a_whole() -> None:
    check = {"type": "object", "described_at": "NAME", "properties": {"script": {}}}
    assert unmentioned({"properties": {"disk": check, "gpu": check}}, [{"disk": {}}]) == ["gpu"]


WORKERS = {
    "spec": {
        "type": "object",
        "properties": {
            "controllerRef": {"type": "object", "x-values": False},
            "replicas": {"type": "integer"},
            "gpu": {"type": "object", "properties": {"count": {"type": "integer"}}},
        },
    }
}


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind with a field that values don't have, a plain one, and one in an object."""
    monkeypatch.setattr(resource_fields, "load", lambda kind: WORKERS)


@pytest.mark.usefixtures("workers")
def test_a_field_that_is_in_no_rendered_object_is_lost() -> None:
    other = {"kind": "LoginSet", "spec": {"replicas": 1, "gpu": {"count": 1}}}
    first = {"kind": "NodeSet", "spec": {"replicas": 0, "gpu": {"count": None}}}
    assert lost("NodeSet", [other, first]) == ["NodeSet.gpu.count"]
    assert lost("NodeSet", [first, {"kind": "NodeSet", "spec": {"gpu": {"count": 1}}}]) == []
