"""Our small part of JSON Schema, beside the library."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postrender import configuration, validation

SCHEMA = configuration.schema()
VALID: list[dict[str, Any]] = [
    {
        "labels": {
            "set": {"a": "b"},
            "select": [{"kind": ["A", "B"], "where": "x"}],
            "required": True,
        }
    },
    {"annotations": {"remove": ["a"], "pods": False}},
]
JUNK: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.sampled_from(["", "a", "A"])
    | st.just([])
    | st.just({})
)


def positions(value: Any, path: validation.Path = ()) -> list[validation.Path]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, item in inner for place in positions(item, (*path, key)))]


def put(value: Any, path: validation.Path, new: Any) -> Any:
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = put(value[path[0]], path[1:], new)
    return copied


@given(st.data())
def test_it_accepts_what_jsonschema_accepts(data: st.DataObject) -> None:
    value: Any = {"steps": VALID}
    for _ in range(data.draw(st.integers(0, 3))):
        path = data.draw(st.sampled_from(positions(value)))
        value = put(
            value,
            path,
            data.draw(
                JUNK
                | st.dictionaries(st.sampled_from(["kind", "set", "steps", "x"]), JUNK, max_size=2)
            ),
        )
    want = jsonschema.Draft202012Validator(SCHEMA).is_valid(value)
    assert (next(validation.faults(value, SCHEMA, SCHEMA), None) is None) is want


def test_the_schema_is_one_and_uses_nothing_else() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def keywords(schema: dict[str, Any]) -> set[str]:
        inner = [
            *schema.get("properties", {}).values(),
            schema.get("items", {}),
            schema.get("additionalProperties", {}),
        ]
        return schema.keys() | {
            name for it in inner if it and isinstance(it, dict) for name in keywords(it)
        }

    top = SCHEMA.keys() - {"$schema", "title", "$defs"}
    assert top | {it for d in SCHEMA["$defs"].values() for it in keywords(d)} <= validation.KEYWORDS
    assert json.dumps(SCHEMA)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ([], "must be a mapping"),
        ({"steps": [{"labels": {"set": {"a": 1}}}]}, "must be text"),
        ({"steps": [{"lables": {}}]}, "is unknown (did you mean 'labels'?); known: "),
        ({"steps": []}, "must not be empty"),
        ({}, "needs 'steps'"),
        (
            {"steps": [{"labels": {"set": {"a": "b"}}, "annotations": {"set": {"a": "b"}}}]},
            "must have one key, not labels, annotations",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_the_remedy(value: Any, want: str) -> None:
    assert want in " ".join(problem for _, problem in validation.faults(value, SCHEMA, SCHEMA))
