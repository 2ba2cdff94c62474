"""Whether values files mention what a schema knows."""

from tests.charts.coverage import unmentioned

OBJECT = {"type": "object", "properties": {"a": {}, "b": {"type": "object", "properties": {"c": {}}}}}


def test_keys_that_no_file_mentions_are_listed_by_their_paths() -> None:
    assert unmentioned(OBJECT, [{"a": None}]) == ["b"]
    assert unmentioned(OBJECT, [{"b": {}}, None]) == ["a", "b.c"]


def test_files_add_up() -> None:
    assert unmentioned(OBJECT, [{"a": 1, "b": {}}, {"b": {"c": 1}}]) == []


def test_what_may_be_a_text_counts_as_a_whole() -> None:
    image = {"type": ["string", "object"], "properties": {"tag": {}}}
    assert unmentioned({"properties": {"image": image}}, [{"image": "a:b"}]) == []
