"""What follows from the description of a field, for the values of a chart."""

from typing import Any

import pytest

from schemas import chart_values, definitions, resource_fields
from schemas.resource_fields import for_values


def test_an_optional_field_can_be_null_and_keeps_its_rules() -> None:
    number = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "default": 2}
    assert for_values(number) == {"type": ["integer", "null"], "minimum": 1, "maximum": 9}
    text = {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a*$"}
    assert for_values(text) == {"type": ["string", "null"], "maxLength": 5, "pattern": "^a*$"}
    assert for_values({"type": "string", "maxLength": 6, "enum": ["Drain", "Refuse"]}) == {
        "enum": ["Drain", "Refuse", None]
    }
    assert for_values({"x-kubernetes-int-or-string": True, "default": "25%"}) == {
        "type": ["integer", "string", "null"]
    }


def test_a_required_field_without_a_default_cannot_be_null() -> None:
    schema = {
        "type": "object",
        "required": ["start", "enabled"],
        "properties": {
            "start": {"type": "string", "minLength": 1},
            "enabled": {"type": "boolean", "default": False},
        },
    }
    assert for_values(schema) == {
        "type": ["object", "null"],
        "required": ["start"],
        "properties": {
            "start": {"type": "string", "minLength": 1},
            "enabled": {"type": ["boolean", "null"]},
        },
    }


def test_items_cannot_be_null_and_values_of_a_map_can() -> None:
    listed = {"type": "array", "nullable": True, "maxItems": 3, "items": {"type": "string"}}
    assert for_values(listed)["items"] == {"type": "string"}
    assert for_values({"type": "object", "additionalProperties": {"type": "string"}}) == {
        "type": ["object", "null"],
        "additionalProperties": {"type": ["string", "null"]},
    }


def test_the_words_for_values_alone_are_merged_over_those_of_the_field() -> None:
    field = {
        "type": "string",
        "pattern": "^a+$",
        "x-values": {"pattern": "^a*$", "remedy": "Set a."},
    }
    assert for_values(field) == {
        "type": ["string", "null"],
        "pattern": "^a*$",
        "remedy": "Set a.",
    }
    assert for_values(field | {"x-values": {"pattern": None}}) == {"type": ["string", "null"]}
    opaque = {"type": "object", "x-values": {"kubernetes": "Container", "type": "object"}}
    assert for_values(opaque) == {"kubernetes": "Container", "type": "object"}


@pytest.mark.parametrize(
    ("description", "own", "expected"),
    [
        ("A. Default: 3.", {}, "A. `null` (default): 3."),
        ("A, for example `x`. B.", {}, "A, for example `x`. B."),
        ("A, for\nexample `x` or `y`. B.", {"example": ["x"]}, "A. B."),
        ("A.\n", {"more": "B."}, "A. B."),
        ("A.", {"description": "C.", "more": "B."}, "C. B."),
    ],
)
def test_a_description_is_worded_for_values(
    description: str, own: dict[str, Any], expected: str
) -> None:
    field = {"type": "string", "description": description, "x-values": own}
    assert for_values(field)["description"] == expected


def test_keys_of_values_alone_stand_before_the_field_that_they_name_or_at_the_end() -> None:
    schema = {
        "type": "object",
        "fields": "NodeSet.partition",
        "properties": {
            "configMap": {"type": "object"},
            "first": {"before": "enabled", "type": "string"},
            "enabled": {"description": "Other words."},
        },
    }
    found = resource_fields.with_fields({"items": schema})["items"]
    assert list(found["properties"]) == ["first", "enabled", "config", "configMap"]
    assert found["properties"]["first"] == {"type": "string"}
    assert found["properties"]["enabled"] == {
        "type": ["boolean", "null"],
        "description": "Other words.",
    }
    assert "fields" not in found


def test_a_field_that_the_chart_sets_is_in_no_values_and_in_no_list_of_the_template() -> None:
    nodeset = chart_values.load("slurm")["properties"]["nodesetDefaults"]["properties"]
    assert not {"controllerRef", "template", "forceRemoval"} & nodeset.keys()
    places = dict(resource_fields.objects(resource_fields.load("NodeSet")["spec"], "NodeSet"))
    assert "sssdConfRef" not in places["NodeSet.ssh"]
    assert not {"tolerations", "runtimeClassName"} & set(places["NodeSet.gpu"])
    assert "startAheadSeconds" in places["NodeSet.powerSaving"]
    assert "NodeSet.autoscaling.windows" not in places


@pytest.mark.parametrize("kind", definitions.KINDS)
def test_no_word_of_ours_reaches_an_api_server(kind: str) -> None:
    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        return set(value).union(*map(keys, value.values())) if isinstance(value, dict) else set()

    assert not keys(definitions.definition(kind)) & {"x-values", "x-record", "remedy", "$ref"}
