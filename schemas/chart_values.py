"""JSON Schemas of the charts' values out of `schemas/values`, and the pages about them.

The sources are draft-07 in YAML. Three things are added: an object that lists `properties` and doesn't speak of
`additionalProperties` takes no others, so that typos are refused; every chart takes `global`, as Helm hands it to
subcharts; defaults on the pages come from the chart's values.yaml, the only place where they stand. Writes nothing.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from schemas import markdown, sources

SOURCE = Path(__file__).parent / "values"
DRAFT = "http://json-schema.org/draft-07/schema#"
_MISSING = object()


def charts() -> list[str]:
    """Names of the charts that have a schema."""
    return sorted(path.stem for path in SOURCE.glob("*.yaml") if path.stem != "common")


def load(chart: str) -> sources.Schema:
    """The source of one chart's schema, references put in place."""
    return sources.load(SOURCE / f"{chart}.yaml")


def json_schema(chart: str) -> dict[str, Any]:
    """What Helm checks the chart's values against."""
    source = load(chart)
    source.pop("definitions", None)
    own = source.pop("properties")
    anything = {"description": "Values that Helm shares between charts. Not used.", "type": "object"}
    return {"$schema": DRAFT, **_closed({**source, "properties": {**own, "global": anything}})}


def json_text(chart: str) -> str:
    """The chart's values.schema.json."""
    return json.dumps(json_schema(chart), indent=2, ensure_ascii=False) + "\n"


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: _closed(child) for name, child in value.items()}
        elif key in {"items", "additionalProperties", "anyOf", "oneOf", "allOf", "if", "then", "else", "not"}:
            result[key] = _closed(value)
        else:
            result[key] = value
    if "properties" in schema and "object" in _types(schema) and "additionalProperties" not in schema:
        result["additionalProperties"] = False
    return result


def _types(schema: sources.Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


def page(chart: str, chart_folder: Path) -> str:
    """The reference page about the chart's values."""
    source = load(chart)
    defaults = yaml.safe_load((chart_folder / "values.yaml").read_text(encoding="utf-8")) or {}
    parts = [
        f"# Values of the chart {chart}",
        source["description"].strip(),
        markdown.field_table(_fields(source, defaults, "")),
    ]
    return markdown.page(f"schemas/values/{chart}.yaml and charts/{chart}/values.yaml", parts)


def _fields(schema: sources.Schema, defaults: Any, path: str) -> list[markdown.Field]:
    fields = []
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        default = defaults.get(name, _MISSING) if isinstance(defaults, dict) else _MISSING
        inner = _inner(child, default, here)
        text = child.get("description", "")
        if inner and not text:
            fields += inner
            continue
        shown = "" if inner or default is _MISSING or default is None else markdown.code(default)
        fields += [markdown.Field(here, markdown.type_of(child), shown, text), *inner]
    return fields


def _inner(schema: sources.Schema, defaults: Any, path: str) -> list[markdown.Field]:
    """The fields within an object or a map of objects; none within what may also be something else, like a string."""
    if set(_types(schema)) - {"object", "null"}:
        return []
    fields = _fields(schema, defaults, path)
    entries = schema.get("additionalProperties")
    if isinstance(entries, dict) and not set(_types(entries)) - {"object", "null"}:
        fields += _fields(entries, _MISSING, f"{path}.NAME")
    return fields
