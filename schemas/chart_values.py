"""The charts' values as `schemas/values` describes them: rules, descriptions for editors, and the
pages about them.

The sources are draft-07 in YAML. An object that lists `properties` and doesn't speak of
`additionalProperties` takes no others, so that typos are refused. Every chart takes `global`, as
Helm hands it to subcharts, and `enabled: true`, which charts with a dependency on it name in its
`condition`. Defaults on the pages come from the chart's values.yaml, the only place where they
stand. Seven words are additions to draft-07:

- `kubernetes: TYPE` includes Kubernetes' own type, over which the other words are merged.
- `remedy` is what to do about a value that the other words refuse: a sentence that begins with a
  verb.
- `example` is a value that shows how to set a map or a list.
- `section` is the title of the section of values.yaml and of the page that begins with this key.
- `described_at` names the key at which the page describes the items of a map, or the fields of a
  value.
- `kept`, in values-rules.json alone, has required keys that the chart's values.yaml has.
- `former` has keys of other charts or releases, each with its `remedy`, and in `accept` the values
  that are ignored.

Two files of a chart come from this. values-rules.json has all of it: the chart checks its values
with it in a template (charts/shared/_check.tpl), and editors check values files with it, because
values.yaml names it to YAML language servers. Helm checks values.schema.json, before any template
and in words of its own. So that file only describes, for Artifact Hub. Writes nothing.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from schemas import kubernetes_types, markdown, sources, values_file
from schemas.resource_fields import with_fields

SOURCE = Path(__file__).parent / "values"
DRAFT = "http://json-schema.org/draft-07/schema#"
CONDITION = {
    "accept": [True, None],
    "remedy": "Remove it. Only the `condition` of a dependency on this chart can name it.",
}
"""The root's `enabled`: Helm hands it to a subchart whose dependency has the condition
`CHART.enabled`.
"""

_EDITORS = (
    "An editor with a YAML language server checks a values file that begins with "
    "`# yaml-language-server: $schema=PATH`,\n"
    "where PATH is that of `charts/{chart}/values-rules.json`."
)
_MISSING = object()
_WIDTH = 160
_LARGE = 200
"""Characters of a part of the rules that is worth a definition."""
_TEXT = frozenset({"title", "description", "example"})
_MAPS, _CHILDREN = ("properties", "definitions"), ("items", "additionalProperties", "propertyNames")


def charts() -> list[str]:
    """Return the names of the charts that have a schema."""
    return sorted(path.stem for path in SOURCE.glob("*.yaml") if path.stem != "common")


def load(chart: str) -> sources.Schema:
    """Return the source of one chart's schema, references and fields of custom resources put in
    place.
    """
    schema: sources.Schema = with_fields(sources.load(SOURCE / f"{chart}.yaml"))
    return schema


def json_schema(chart: str) -> dict[str, Any]:
    """Return all that is known about the chart's values, as JSON Schema. Former keys are properties
    with the word `former`.
    """
    source = load(chart)
    source.pop("definitions", None)
    own = source.pop("properties")
    source["former"] = {"enabled": CONDITION, **source.get("former", {})}
    anything = {
        "description": "Values that Helm shares between charts. Not used.",
        "type": "object",
    }
    schema = _mapped(
        _mapped({**source, "properties": {"global": anything, **own}}, _completed),
        _without_reference,
    )
    return {"$schema": DRAFT, **schema, "definitions": kubernetes_types.definitions(schema)}


def rules_text(chart: str, chart_folder: Path) -> str:
    """Return the chart's values-rules.json, against which a template of the chart and editors check
    values. A required key with a default is in `kept` instead of `required`: a values file need not
    have it, and all values together must.
    """
    rules = _mapped(
        json_schema(chart),
        lambda schema: {word: schema[word] for word in schema if word not in {"title", "example"}},
    )
    return _json(_shared(_with_kept(rules, _defaults(chart_folder)))) + "\n"


def _with_kept(rules: sources.Schema, defaults: Any) -> sources.Schema:
    if not isinstance(defaults, dict):
        return rules
    result = dict(rules)
    if kept := [name for name in rules.get("required", ()) if name in defaults]:
        result["kept"] = kept
        result["required"] = [name for name in rules["required"] if name not in defaults]
        if not result["required"]:
            del result["required"]
    if "properties" in rules:
        result["properties"] = {
            name: _with_kept(child, defaults.get(name))
            for name, child in rules["properties"].items()
        }
    return result


def _json(value: Any, depth: int = 0) -> str:
    """Write JSON in which what fits into a line is one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + depth <= _WIDTH or not value or not isinstance(value, dict | list):
        return line
    margin = " " * (depth + 1)
    if isinstance(value, list):
        parts, ends = [_json(each, depth + 1) for each in value], "[]"
    else:
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}: {_json(each, depth + 1)}"
            for name, each in value.items()
        ]
        ends = "{}"
    body = ",\n".join(margin + part for part in parts)
    return f"{ends[0]}\n{body}\n{' ' * depth}{ends[1]}"


def _shared(rules: sources.Schema) -> sources.Schema:
    """Return the same rules, where each large part that occurs several times is a definition."""
    counts = Counter[str]()
    names: dict[str, str] = {}
    found: dict[str, sources.Schema] = {}

    def count(schema: Any) -> Any:
        counts[json.dumps(schema)] += 1
        return _children(schema, count)

    def refer(schema: Any) -> Any:
        text = json.dumps(schema)
        if (
            len(text) < _LARGE
            or counts[text] == 1
            or (isinstance(schema, dict) and "$ref" in schema)
        ):
            return _children(schema, refer)
        if text not in names:
            names[text] = f"shared{len(names) + 1}"
            found[names[text]] = _children(schema, refer)
        return {"$ref": f"#/definitions/{names[text]}"}

    count(rules)
    # A type of Kubernetes is never only a reference: the chart follows one reference, not a chain.
    types = {name: _children(each, refer) for name, each in rules["definitions"].items()}
    result: sources.Schema = _children({**rules, "definitions": {}}, refer)
    return {**result, "definitions": {**types, **found}}


def description_text(chart: str) -> str:
    """Return the chart's values.schema.json, which Artifact Hub shows. It refuses nothing."""
    schema = json_schema(chart)
    del schema["definitions"]
    return _json(_mapped(schema, _described)) + "\n"


def _mapped(schema: Any, change: Callable[[sources.Schema], sources.Schema | None]) -> Any:
    """Return a schema after a change of each schema in it, the innermost first."""
    if not isinstance(schema, dict):
        return schema
    return change(_children(schema, lambda child: _mapped(child, change)))


def _children(schema: Any, change: Callable[[Any], Any]) -> Any:
    """Return a schema after a change of each schema directly in it."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for word in _MAPS:
        if word in result:
            result[word] = {name: change(child) for name, child in result[word].items()}
    for word in _CHILDREN:
        if word in result:
            result[word] = change(result[word])
    return result


def _completed(schema: sources.Schema) -> sources.Schema:
    schema.pop("described_at", None)
    schema.pop("section", None)
    if name := schema.pop("kubernetes", None):
        if schema.keys() - _TEXT <= {"type"} and "null" in _types(schema):
            return {
                **{word: schema[word] for word in schema if word in _TEXT},
                "$ref": f"#/definitions/{name}",
            }
        schema = sources.merged(kubernetes_types.definition(name), schema)
    if former := schema.pop("former", None):
        keys = {key: {"former": True, "enum": [], **_former(each)} for key, each in former.items()}
        schema["properties"] = {**schema["properties"], **keys}
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _without_reference(schema: sources.Schema) -> sources.Schema:
    """Return a schema without the type of Kubernetes that its own words replace."""
    described = schema.keys() & {"properties", "items"}
    return {word: schema[word] for word in schema if not (described and word == "$ref")}


def _former(source: Any) -> sources.Schema:
    if isinstance(source, str):
        return {"remedy": source}
    return {"remedy": source["remedy"], "enum": source["accept"]}


def _described(schema: sources.Schema) -> sources.Schema | None:
    if schema.get("former"):
        return None
    result = {word: schema[word] for word in schema if word in {"$schema", "title", "description"}}
    if "properties" in schema:
        result["properties"] = {
            name: child for name, child in schema["properties"].items() if child is not None
        }
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            result[word] = schema[word]
    return result


def _types(schema: sources.Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


def values_text(chart: str, chart_folder: Path) -> str:
    """Return the chart's values.yaml: its own defaults with comments."""
    return values_file.text(chart, load(chart), _defaults(chart_folder))


def _defaults(chart_folder: Path) -> Any:
    return yaml.safe_load((chart_folder / "values.yaml").read_text(encoding="utf-8")) or {}


def page(chart: str, chart_folder: Path) -> str:
    """Return the reference page about the chart's values."""
    source = load(chart)
    defaults = _defaults(chart_folder)
    fields = _fields(source, defaults, "")
    parts = [
        f"# Values of the chart {chart}",
        markdown.linked(source["description"].strip()),
        _EDITORS.format(chart=chart),
        *_tables(source, fields),
    ]
    if examples := markdown.long_examples(fields):
        parts += ["## Examples", *examples]
    return markdown.page(f"schemas/values/{chart}.yaml and charts/{chart}/values.yaml", parts)


def _tables(source: sources.Schema, fields: list[markdown.Field]) -> list[str]:
    """Return the title of each section, and in it a heading and a table for each key."""
    titles = {key: child.get("section", "") for key, child in source["properties"].items()}
    level = "##"
    parts = []
    for key, of in itertools.groupby(fields, lambda field: field.path.split(".")[0]):
        if title := titles[key]:
            level = "###"
            parts.append(f"## {title}")
        parts += [f"{level} `{key}`", markdown.field_table(list(of))]
    return parts


def _fields(schema: sources.Schema, defaults: Any, path: str) -> list[markdown.Field]:
    fields = []
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        default = defaults.get(name, _MISSING) if isinstance(defaults, dict) else _MISSING
        inner = _inner(child, default, here)
        text = markdown.linked(child.get("description", ""))
        if isinstance(default, dict) and default.get("repository") and default.get("tag"):
            default = f"{default['repository']}:{default['tag']}"
        shown = "" if inner or default is _MISSING or default is None else markdown.code(default)
        # Where a map has its own rows, they show what it contains.
        example = None if inner else child.get("example")
        fields += [markdown.Field(here, markdown.type_of(child), shown, text, example), *inner]
    return fields


def _inner(schema: sources.Schema, defaults: Any, path: str) -> list[markdown.Field]:
    """Return the fields within an object or a map of objects. A value that may also be something
    else, such as a string, has none.
    """
    if not values_file.only_object(schema):
        return []
    if "described_at" in schema and "properties" in schema:
        return []
    fields = _fields(schema, defaults, path)
    entries = schema.get("additionalProperties")
    if (
        "described_at" not in schema
        and isinstance(entries, dict)
        and values_file.only_object(entries)
    ):
        fields += _fields(entries, _MISSING, f"{path}.NAME")
    return fields
