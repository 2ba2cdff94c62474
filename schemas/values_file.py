"""A chart's values.yaml with comments: the defaults of the file itself, described and ordered by
the chart's schema.

The file is the only place where defaults stand. Its comments come from the schema: the titles of
sections, the first sentences of a description, the possible values, and the example of an empty map
or list. An example that a key of the same name has already shown is left out.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from schemas import sources
from sidecars.contract.project import HOME, published

WIDTH = 120
LINES = 2
"""Lines of a comment into which further sentences must fit."""
REFERENCE = (f"{HOME}/blob/main/" if published() else "") + "docs/reference/values-{chart}.md"
_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z`0-9])")


def text(chart: str, schema: sources.Schema, defaults: Any) -> str:
    """Return the file. Reading it again gives `defaults`."""
    lines = [
        "# yaml-language-server: $schema=values-rules.json",
        f"# The default values of the chart {chart}. Set only those that you change.",
        f"# {REFERENCE.format(chart=chart)} describes all keys.",
        "# `make generate` writes the comments.",
    ]
    body = list(_lines(schema, defaults, 0, set()))
    if any("STEM" in line for line in body):
        lines.append("# STEM stands for the stem of all names, see `fullnameOverride`.")
    return "\n".join([*lines, *body]) + "\n"


def only_object(schema: sources.Schema) -> bool:
    """Return whether a value is a map, and nothing else but null."""
    types = schema.get("type", [])
    return not set([types] if isinstance(types, str) else types) - {"object", "null"}


def _lines(
    schema: sources.Schema, values: dict[str, Any], depth: int, shown: set[str]
) -> Iterator[str]:
    margin = "  " * depth
    described = [key for key in schema.get("properties", {}) if key in values]
    for key in [*described, *(key for key in values if key not in described)]:
        value = values[key]
        child = schema.get("properties", {}).get(key) or schema.get("additionalProperties") or {}
        if depth == 0:
            yield ""
        if title := child.get("section"):
            yield from (f"{margin}# --- {title} ---", "")
        yield from (f"{margin}# {line}" for line in _comment(child, WIDTH - len(margin) - 2))
        if (
            isinstance(value, dict)
            and value
            and only_object(child)
            and child.keys() & {"properties", "additionalProperties"}
        ):
            yield f"{margin}{key}:"
            yield from _lines(child, value, depth + 1, shown)
            continue
        yield from ((margin + line).rstrip() for line in _dumped({key: value}))
        example = child.get("example")
        if (
            example is not None
            and value in ({}, [], None, "")
            and (mark := f"{key} {json.dumps(example)}") not in shown
        ):
            shown.add(mark)
            yield from (f"{margin}  # {line}".rstrip() for line in _dumped(example))


def _comment(schema: sources.Schema, width: int) -> list[str]:
    """Return the first sentences of the description, and the possible values if it doesn't name
    them.
    """
    sentences = _SENTENCE.split(" ".join(schema.get("description", "").split()))
    choices = [choice for choice in schema.get("enum", ()) if isinstance(choice, str) and choice]
    named = " ".join(sentences)
    of = (
        ""
        if all(re.search(rf"\b{choice}\b", named) for choice in choices)
        else f" One of: {', '.join(choices)}."
    )
    lines = textwrap.wrap(sentences[0] + of, width, break_long_words=False, break_on_hyphens=False)
    for count in range(2, len(sentences) + 1):
        longer = textwrap.wrap(
            " ".join(sentences[:count]) + of, width, break_long_words=False, break_on_hyphens=False
        )
        if len(longer) > LINES:
            break
        lines = longer
    return lines


def _dumped(value: Any) -> list[str]:
    lines = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True
    ).splitlines()
    # YAML ends a document that is one plain word with a line of its own.
    return lines[:-1] if lines[-1] == "..." else lines


class _Dumper(yaml.SafeDumper):
    """Lists are indented, text of several lines is a block, and quotes are double quotes."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None if _is_plain(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _is_plain(value: str) -> bool:
    try:
        return bool(yaml.safe_load(value) == value)
    except yaml.YAMLError:
        return False


_Dumper.add_representer(str, _string)
_Dumper.add_representer(
    type(None), lambda dumper, _: dumper.represent_scalar("tag:yaml.org,2002:null", "null")
)
