"""Markdown of the generated reference pages."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from sidecars.contract.explained import Explained

LONGEST_JSON = 60
"""In characters. A longer map or list is easier to read as YAML."""


@dataclass(frozen=True)
class Field:
    """One line of a table of fields. `default`, `description` and `example` are Markdown."""

    path: str
    type: str
    default: str
    description: str
    example: str = ""


def page(source: str, parts: list[str]) -> str:
    """A whole page, generated from `source`."""
    note = f"<!-- Generated from {source} by `make generate`. Edit that instead. -->"
    return "\n\n".join([note, *parts]) + "\n"


def field_table(fields: list[Field]) -> str:
    """A table with a line per field."""
    lines = ["| Field | Type | Default | Meaning |", "|---|---|---|---|"]
    lines += [f"| `{f.path}` | {f.type} | {f.default} | {_one_line(_meaning(f))} |" for f in fields]
    return "\n".join(lines)


def explained(head: str, words: Iterable[Explained], prefix: str = "") -> str:
    """A table with a line per word: what it means, and what to do."""
    rows = [f"| `{prefix}{word.value}` | {word.cause} | {word.remedy} |" for word in words]
    return "\n".join([f"| {head} | meaning | what to do |", "|---|---|---|", *rows])


def _meaning(field: Field) -> str:
    return f"{field.description.strip()} Example: {field.example}" if field.example else field.description


def type_of(schema: dict[str, Any]) -> str:
    """Type of a field's value, in one or two words."""
    if "enum" in schema:
        return ", ".join("null" if value is None else code(value) for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    types = schema.get("type", "any")
    if isinstance(types, list):
        types = " or ".join(name for name in types if name != "null")
    return str(types)


def code(value: Any) -> str:
    """A value as code, or a reference to the chart's values.yaml if it has several lines."""
    text = value if isinstance(value, str) and value else json.dumps(value)
    if isinstance(value, list | dict) and len(text) > LONGEST_JSON:
        return flow(value)
    return "see values.yaml" if "\n" in text or "`" in text else f"`{text}`"


def flow(value: Any) -> str:
    """A value as YAML on one line, as code."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=100_000, allow_unicode=True)
    return f"`{text.removesuffix('...' + chr(10)).strip()}`"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
