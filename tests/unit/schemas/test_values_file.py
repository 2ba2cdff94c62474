"""The comments of a chart's values.yaml."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas import chart_values, values_file

ROOT = Path(__file__).parents[3]

SCHEMA: dict[str, Any] = {
    "properties": {
        "replicas": {"description": "Number of pods. 0 is possible.", "type": "integer"},
        "policy": {"description": "Policy of the pods.", "enum": ["Always", "Never", None]},
        "pod": {
            "description": "The pods.",
            "type": "object",
            "properties": {
                "args": {"description": "Arguments.", "type": ["array", "null"], "example": ["-v"]},
                "files": {
                    "description": "Files.",
                    "type": "object",
                    "example": {"a.conf": "A=1\n\nB=2\n"},
                },
            },
        },
        "others": {
            "description": "Other pods.",
            "type": "object",
            "additionalProperties": {
                "properties": {"args": {"description": "Arguments.", "example": ["-v"]}}
            },
        },
    }
}

VALUES: dict[str, Any] = {
    "replicas": 1,
    "policy": "Never",
    "pod": {"args": [], "files": {}},
    "others": {"one": {"args": []}},
}


def test_each_key_has_its_description_the_possible_values_and_an_example() -> None:
    assert (
        values_file.text("a", SCHEMA, VALUES).partition("\n\n")[2]
        == """\
# Number of pods. 0 is possible.
replicas: 1

# Policy of the pods. One of: Always, Never.
policy: Never

# The pods.
pod:
  # Arguments.
  args: []
    # - -v
  # Files.
  files: {}
    # a.conf: |
    #   A=1
    #
    #   B=2

# Other pods.
others:
  one:
    # Arguments.
    args: []
"""
    )


def test_keys_stand_in_the_order_of_the_schema_and_a_section_begins_with_its_title() -> None:
    schema = {
        "properties": {
            "b": {
                "description": "B.",
                "section": "Begin here",
                "properties": {"y": {}, "x": {}},
                "type": "object",
            },
            "a": {"description": "A.", "section": "The rest"},
            "c": {"description": "C."},
        }
    }
    text = values_file.text("n", schema, {"a": 1, "c": 2, "b": {"own": 0, "x": 1, "y": 2}})
    assert text.partition("\n\n")[2].splitlines() == [
        "# --- Begin here ---",
        "",
        "# B.",
        "b:",
        "  y: 2",
        "  x: 1",
        "  own: 0",
        "",
        "# --- The rest ---",
        "",
        "# A.",
        "a: 1",
        "",
        "# C.",
        "c: 2",
    ]


def test_an_example_of_a_text_or_number_is_what_the_value_would_be() -> None:
    for example in ("slurm", 7, "CPUs=2 RealMemory=64000"):
        text = values_file.text(
            "a", {"properties": {"a": {"description": "A.", "example": example}}}, {"a": None}
        )
        assert yaml.safe_load(text.replace("a: null", "a:").replace("  # ", "    ")) == {
            "a": example
        }


def test_further_sentences_are_left_out_if_they_need_more_than_two_lines() -> None:
    schema = {
        "properties": {
            "a": {"description": "First sentence. " + "Second word " * 10 + ". " + "Third " * 30}
        }
    }
    lines = [
        line
        for line in values_file.text("a", schema, {"a": 1}).splitlines()[4:]
        if line.startswith("#")
    ]
    assert lines[0].startswith("# First sentence. Second word")
    assert len(lines) == 2
    assert "Third" not in " ".join(lines)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yes",
        "1.0",
        "a: b",
        "# no comment",
        "25%",
        "two\nlines\n",
        "quote \" and '",
        None,
        0,
        True,
        0.5,
        {},
        [],
    ],
)
def test_a_default_stays_what_it_is(value: Any) -> None:
    values = {"a": value, "pod": {"args": [value], "files": {"b": value}}}
    assert yaml.safe_load(values_file.text("a", SCHEMA, values)) == values


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_key_of_a_chart_has_a_comment(chart: str) -> None:
    lines = (ROOT / "charts" / chart / "values.yaml").read_text().splitlines()
    schema = chart_values.load(chart)
    values = yaml.safe_load("\n".join(lines))
    assert "\n".join([*lines, ""]) == chart_values.values_text(chart, ROOT / "charts" / chart)
    without = []
    for place, depth in described(schema, values):
        key = place.rpartition(".")[2]
        found = [
            at
            for at, line in enumerate(lines)
            if re.match(rf"{'  ' * depth}{re.escape(key)}:", line)
        ]
        without += [place for at in found if not lines[at - 1].startswith("  " * depth + "# ")]
    assert without == []


def described(
    schema: dict[str, Any], values: Any, path: str = "", depth: int = 0
) -> list[tuple[str, int]]:
    """The keys of values that the schema knows, with their depth."""
    found: list[tuple[str, int]] = []
    for key, value in values.items() if isinstance(values, dict) else ():
        child = schema.get("properties", {}).get(key)
        if child is not None:
            found.append((f"{path}{key}", depth))
            if values_file.only_object(child):
                found += described(child, value, f"{path}{key}.", depth + 1)
    return found
