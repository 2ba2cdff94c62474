"""Markdown of the generated reference pages."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sidecars.contract.explained import Explained

DOCS = Path(__file__).parent.parent / "docs"
LONGEST_JSON = 60
"""In characters. A longer map or list is easier to read as YAML."""


@dataclass(frozen=True)
class Field:
    """One line of a table of fields. `default` and `description` are Markdown, `example` is a
    value.
    """

    path: str
    type: str
    default: str
    description: str
    example: Any = None


def page(source: str, parts: list[str]) -> str:
    """Return a whole page, generated from `source`."""
    note = f"<!-- Generated from {source} by `make generate`. Edit that instead. -->"
    return "\n\n".join([note, *parts]) + "\n"


def field_table(fields: list[Field]) -> str:
    """Return a table with a line per field."""
    lines = ["| Field | Type | Default | Meaning |", "|---|---|---|---|"]
    lines += [f"| `{f.path}` | {f.type} | {f.default} | {_one_line(_meaning(f))} |" for f in fields]
    return "\n".join(lines)


def long_examples(fields: list[Field]) -> list[str]:
    """Return a section for each example that a table can only link to: a script on one line would
    be another script.
    """
    parts = []
    for field in fields:
        if _has_lines(field.example):
            value = field.example
            for key in reversed(field.path.split(".")):
                value = {key: value}
            parts += [f"### {_heading(field)}", f"```yaml\n{block(value)}```"]
    return parts


def block(value: Any) -> str:
    """Return a value as YAML, texts of several lines as they are."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)


def linked(text: str) -> str:
    """Prepare a text for a page in docs/reference. A page that it names as `docs/PAGE.md` becomes a
    link with its title.
    """

    def link(found: re.Match[str]) -> str:
        title = re.search(r"^# (.*)$", (DOCS / found[1]).read_text(encoding="utf-8"), re.MULTILINE)
        target = (
            found[1].removeprefix("reference/")
            if found[1].startswith("reference/")
            else f"../{found[1]}"
        )
        return f"[{title[1] if title else found[1]}]({target})"

    return re.sub(r"(?<!\S)docs/([-a-z/]+\.md)", link, text)


def explained(head: str, words: Iterable[Explained], prefix: str = "") -> str:
    """Return a table with a line per word: its meaning, and what to do."""
    rows = [f"| `{prefix}{word.value}` | {word.cause} | {word.remedy} |" for word in words]
    return "\n".join([f"| {head} | meaning | what to do |", "|---|---|---|", *rows])


def _meaning(field: Field) -> str:
    if field.example is None:
        return field.description
    anchor = re.sub(r"[^\w\- ]", "", _heading(field).lower()).replace(" ", "-")
    example = f"[below](#{anchor})" if _has_lines(field.example) else flow(field.example)
    return f"{field.description.strip()} Example: {example}"


def _heading(field: Field) -> str:
    return f"Example of `{field.path}`"


def _has_lines(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_lines, value.values()))
    return (
        any(map(_has_lines, value))
        if isinstance(value, list)
        else isinstance(value, str) and "\n" in value
    )


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _string)


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
    """Return a value as code, or a reference to the chart's values.yaml if it has several lines."""
    text = value if isinstance(value, str) and value else json.dumps(value)
    if isinstance(value, list | dict) and len(text) > LONGEST_JSON:
        return flow(value)
    return "see values.yaml" if "\n" in text or "`" in text else f"`{text}`"


def flow(value: Any) -> str:
    """Return a value as YAML on one line, as code."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=100_000, allow_unicode=True
    )
    return f"`{text.removesuffix('...' + chr(10)).strip()}`"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
