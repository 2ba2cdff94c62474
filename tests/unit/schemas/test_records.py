"""The Python records of custom resources, as text. That they have the fields and defaults of the
CRDs is a test of the records.
"""

import ast
from typing import Any

import pytest

from schemas import definitions, records, resource_fields, sources


def lines(monkeypatch: pytest.MonkeyPatch, **properties: Any) -> list[str]:
    """The fields of the record of a kind with these properties in its spec."""
    spec = {"type": "object", "description": "Desired.", "required": ["must"], **properties}
    monkeypatch.setattr(definitions, "KINDS", ("Kind",))
    monkeypatch.setattr(resource_fields, "load", lambda kind: {"spec": {**spec}})
    [record] = [
        each
        for each in ast.parse(records.text()).body
        if isinstance(each, ast.ClassDef) and each.name == "KindSpec"
    ]
    return [ast.unparse(each) for each in record.body if isinstance(each, ast.AnnAssign)]


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({"type": "string"}, "aB: str = ''"),
        ({"type": "string", "nullable": True}, "aB: str | None = None"),
        ({"type": "string", "default": "x"}, "aB: str = 'x'"),
        ({"type": "string", "format": "date-time"}, "aB: datetime | None = None"),
        ({"type": "string", "enum": ["A", "B"], "default": "A"}, "aB: Literal['A', 'B'] = 'A'"),
        ({"type": "integer"}, "aB: int | None = None"),
        ({"type": "integer", "default": 10000}, "aB: int = 10000"),
        ({"type": "integer", "x-record": {"default": 0}}, "aB: int = 0"),
        ({"type": "boolean", "default": False}, "aB: bool = False"),
        ({"type": "array", "items": {"type": "string"}}, "aB: list[str] = []"),
        (
            {"type": "array", "nullable": True, "items": {"type": "string"}},
            "aB: list[str] | None = None",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "aB: Mapping[str, str] | None = None",
        ),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "aB: Json = {}"),
        ({"x-kubernetes-int-or-string": True, "default": "25%"}, "aB: int | str = '25%'"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "aB: AB = AB()"),
        (
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
            "aB: AB | None = None",
        ),
        (
            {"type": "string", "x-record": {"type": "Json", "default": None}},
            "aB: Json | None = None",
        ),
    ],
)
def test_a_field_has_the_type_and_the_default_of_its_description(
    schema: dict[str, Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = lines(monkeypatch, properties={"aB": schema, "must": {"type": "integer"}})
    assert found == [line.replace("aB:", "a_b:"), "must: int"]


def test_two_objects_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def holder(kind: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"ha": {"type": "object", "properties": {"x": {"type": kind}}}},
        }

    with pytest.raises(sources.SchemaError, match="two different objects are the record Ha"):
        lines(
            monkeypatch,
            properties={
                "one": holder("string"),
                "two": holder("integer"),
                "must": {"type": "integer"},
            },
        )
