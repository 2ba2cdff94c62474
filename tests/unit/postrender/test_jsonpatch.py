"""JSON patch and JSON merge patch, by the examples of their RFCs."""

from typing import Any

import pytest

from postrender import jsonpatch
from postrender.errors import PostrenderError


@pytest.mark.parametrize(
    ("value", "patch", "want"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_is_that_of_rfc_7386(value: Any, patch: Any, want: Any) -> None:
    assert jsonpatch.merged(value, patch) == want


@pytest.mark.parametrize(
    ("value", "operations", "want"),
    [
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux"}],
            {"baz": "qux", "foo": "bar"},
        ),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
        ),
        (
            {"foo": ["bar"]},
            [{"op": "add", "path": "/foo/-", "value": ["abc"]}],
            {"foo": ["bar", ["abc"]]},
        ),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        (
            {"foo": ["bar", "qux", "baz"]},
            [{"op": "remove", "path": "/foo/1"}],
            {"foo": ["bar", "baz"]},
        ),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"a": {"b": 1}},
            [{"op": "copy", "from": "/a", "path": "/c"}],
            {"a": {"b": 1}, "c": {"b": 1}},
        ),
        ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "qux"}], {"baz": "qux"}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}),
        ({"foo": 1}, [{"op": "replace", "path": "", "value": {"x": 1}}], {"x": 1}),
    ],
)
def test_a_json_patch_is_that_of_rfc_6902(
    value: Any, operations: list[dict[str, Any]], want: Any
) -> None:
    before = repr(value)
    assert jsonpatch.patched(value, operations) == want
    assert repr(value) == before


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "add", "path": "/x/y", "value": 1}, "/x doesn't exist"),
        ({"op": "add", "path": "/a/7", "value": 1}, "the list has 2 items"),
        ({"op": "add", "path": "/a/01", "value": 1}, "'01' is no position"),
        ({"op": "add", "path": "/b/c", "value": 1}, "/b is no mapping or list"),
        ({"op": "add", "path": "x", "value": 1}, "doesn't begin with /"),
        ({"op": "add", "path": "/x"}, "needs 'value'"),
        ({"op": "remove", "path": "/x"}, "/x doesn't exist"),
        ({"op": "remove", "path": ""}, "can't be removed"),
        ({"op": "replace", "path": "/x", "value": 1}, "/x doesn't exist"),
        ({"op": "replace", "path": "/b/c", "value": 1}, "/b/c doesn't exist"),
        ({"op": "test", "path": "/b", "value": 2}, "the object has another value"),
        ({"op": "test", "path": "/b", "value": True}, "the object has another value"),
        ({"op": "move", "path": "/a"}, "needs 'from'"),
        ({"op": "move", "from": "/a", "path": "/a/0"}, "can't be moved into itself"),
        ({"op": "copy", "from": "/a/-", "path": "/c"}, "'-' is no position"),
    ],
)
def test_an_operation_that_cannot_be_applied_is_named_with_its_reason(
    operation: dict[str, Any], message: str
) -> None:
    with pytest.raises(PostrenderError) as caught:
        jsonpatch.patched({"a": [1, 2], "b": 1}, [operation])
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"json[0]: {operation['op']} {operation['path']}: ")


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
@pytest.mark.parametrize("path", ["/data/password", "/data", ""])
def test_a_test_that_fails_shows_no_value_of_the_object(kind: str, path: str) -> None:
    secret = {"kind": kind, "data": {"password": "aHVudGVyMg=="}}
    with pytest.raises(PostrenderError) as caught:
        jsonpatch.patched(secret, [{"op": "test", "path": path, "value": "b3RoZXI="}])
    assert "the object has another value" in str(caught.value)
    assert "aHVudGVyMg==" not in str(caught.value)
