"""The charts' values as `schemas/values` describes them: rules, descriptions for editors, and the pages about them.

The sources are draft-07 in YAML. An object that lists `properties` and doesn't speak of `additionalProperties` takes no
others, so that typos are refused. Every chart takes `global`, as Helm hands it to subcharts, and `enabled: true`, which
charts with a dependency on it name in its `condition`. Defaults on the pages come
from the chart's values.yaml, the only place where they stand. Five words are additions to draft-07:

- `kubernetes: TYPE` includes Kubernetes' own type, over which the other words are merged.
- `remedy` is what to do about a value that the other words refuse: a sentence that begins with a verb.
- `example` is a value that shows how to set a map or a list.
- `described_at` names the key at which the page describes the items of a map.
- `former` has keys of other charts or releases, each with its `remedy`, and in `accept` the values that are ignored.

Helm's own check of values.schema.json can't be taught to say any of this. So that file only describes, and the chart
checks its values with values-rules.json in a template (schemas/check.tpl). Writes nothing.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from schemas import kubernetes_types, markdown, sources, values_file

SOURCE = Path(__file__).parent / "values"
CHECK = Path(__file__).parent / "check.tpl"
GLOBAL = Path(__file__).parent / "global.tpl"
DRAFT = "http://json-schema.org/draft-07/schema#"
CONDITION = {
    "accept": [True, None],
    "remedy": "Remove it. Only the `condition` of a dependency on this chart can name it.",
}
"""The root's `enabled`: Helm hands it to a subchart whose dependency has the condition `CHART.enabled`."""

_MISSING = object()
_LARGE = 200
"""Characters of a part of the rules that is worth a definition."""
_TEXT = frozenset({"title", "description", "example"})
_MAPS, _CHILDREN = ("properties", "definitions"), ("items", "additionalProperties", "propertyNames")


def charts() -> list[str]:
    """Names of the charts that have a schema."""
    return sorted(path.stem for path in SOURCE.glob("*.yaml") if path.stem != "common")


def load(chart: str) -> sources.Schema:
    """The source of one chart's schema, references put in place."""
    return sources.load(SOURCE / f"{chart}.yaml")


def json_schema(chart: str) -> dict[str, Any]:
    """All that is known about the chart's values, as JSON Schema. Former keys are properties with the word `former`."""
    source = load(chart)
    source.pop("definitions", None)
    own = source.pop("properties")
    source["former"] = {"enabled": CONDITION, **source.get("former", {})}
    anything = {"description": "Values that Helm shares between charts. Not used.", "type": "object"}
    schema = _mapped(_mapped({**source, "properties": {"global": anything, **own}}, _completed), _without_reference)
    return {"$schema": DRAFT, **schema, "definitions": kubernetes_types.definitions(schema)}


def rules_text(chart: str) -> str:
    """The chart's values-rules.json: what a template of the chart checks the values against."""
    rules = _mapped(json_schema(chart), lambda schema: {word: schema[word] for word in schema if word not in _TEXT})
    return json.dumps(_shared(rules), indent=1, ensure_ascii=False) + "\n"


def _shared(rules: sources.Schema) -> sources.Schema:
    """The same rules, where each large part that occurs several times is a definition."""
    counts = Counter[str]()
    names: dict[str, str] = {}
    found: dict[str, sources.Schema] = {}

    def count(schema: Any) -> Any:
        counts[json.dumps(schema)] += 1
        return _children(schema, count)

    def refer(schema: Any) -> Any:
        text = json.dumps(schema)
        if len(text) < _LARGE or counts[text] == 1:
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
    """The chart's values.schema.json: what editors show. It refuses nothing."""
    schema = json_schema(chart)
    del schema["definitions"]
    return json.dumps(_mapped(schema, _described), indent=2, ensure_ascii=False) + "\n"


def check_text(chart: str) -> str:
    """The template with which the chart checks its values."""
    return CHECK.read_text(encoding="utf-8").replace("CHART", chart)


def global_text(chart: str) -> str | None:
    """The template with which the chart uses `global`; None if it doesn't."""
    uses = "global" in load(chart)["properties"]
    return GLOBAL.read_text(encoding="utf-8").replace("CHART", chart) if uses else None


def _mapped(schema: Any, change: Callable[[sources.Schema], sources.Schema | None]) -> Any:
    """A schema after a change of each schema in it, the innermost first."""
    if not isinstance(schema, dict):
        return schema
    return change(_children(schema, lambda child: _mapped(child, change)))


def _children(schema: Any, change: Callable[[Any], Any]) -> Any:
    """A schema after a change of each schema directly in it."""
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
    if name := schema.pop("kubernetes", None):
        if schema.keys() - _TEXT <= {"type"} and "null" in _types(schema):
            return {**{word: schema[word] for word in schema if word in _TEXT}, "$ref": f"#/definitions/{name}"}
        schema = sources.merged(kubernetes_types.definition(name), schema)
    if former := schema.pop("former", None):
        keys = {key: {"former": True, "enum": [], **_former(each)} for key, each in former.items()}
        schema["properties"] = {**schema["properties"], **keys}
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _without_reference(schema: sources.Schema) -> sources.Schema:
    """A schema without the type of Kubernetes that its own words replace."""
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
        result["properties"] = {name: child for name, child in schema["properties"].items() if child is not None}
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            result[word] = schema[word]
    return result


def _types(schema: sources.Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


def values_text(chart: str, chart_folder: Path) -> str:
    """The chart's values.yaml: its own defaults with comments."""
    return values_file.text(chart, load(chart), _defaults(chart_folder))


def _defaults(chart_folder: Path) -> Any:
    return yaml.safe_load((chart_folder / "values.yaml").read_text(encoding="utf-8")) or {}


def page(chart: str, chart_folder: Path) -> str:
    """The reference page about the chart's values."""
    source = load(chart)
    defaults = _defaults(chart_folder)
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
        if isinstance(default, dict) and default.get("repository") and default.get("tag"):
            default = f"{default['repository']}:{default['tag']}"
        shown = "" if inner or default is _MISSING or default is None else markdown.code(default)
        # Where a map has its own rows, they show what it contains.
        example = "" if inner or "example" not in child else markdown.flow(child["example"])
        fields += [markdown.Field(here, markdown.type_of(child), shown, text, example), *inner]
    return fields


def _inner(schema: sources.Schema, defaults: Any, path: str) -> list[markdown.Field]:
    """The fields within an object or a map of objects; none within what may also be something else, like a string."""
    if not values_file.only_object(schema):
        return []
    fields = _fields(schema, defaults, path)
    entries = schema.get("additionalProperties")
    if "described_at" not in schema and isinstance(entries, dict) and values_file.only_object(entries):
        fields += _fields(entries, _MISSING, f"{path}.NAME")
    return fields
