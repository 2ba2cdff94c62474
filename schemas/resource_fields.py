"""One description of a field of a custom resource, and what the other places know of it.

`schemas/crds` describes each field once, as OpenAPI. Two words are ours, and no API server sees
them:

- `x-values` is what the values of a chart differ in. `false`: values don't have the field, the
  chart sets it. Else words of `chart_values`, which are merged over what follows from the field;
  `null` removes a word. With `kubernetes` nothing but the description follows from the field. Three
  words are for `x-values` alone: `over` is Kubernetes' type over which all of it is merged, `more`
  has sentences for the end of the description, and `before` names the field of the same object
  before which this one stands.
- `x-record` is what the Python record differs in, see `records`.

What follows for values: the same rules, and `null` for what isn't required. What the API server
calls the default is the value `null` there. An example in the description is left out where
`x-values` has an `example`, which is shown with its key.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from schemas import sources
from schemas.sources import Schema

SOURCE = Path(__file__).parent / "crds"
TEMPLATE = Path(__file__).parent / "fields.tpl"
CHART = "slurm"
PASSED = ("Controller", "Accounting", "RestApi", "LoginSet", "NodeSet", "Token")
"""Kinds whose fields values of CHART have, which passes them on by their description."""

OURS = frozenset({"x-values", "x-record"})
_WORDS = ("minimum", "maximum", "pattern", "maxLength", "minItems", "maxItems")
_EXAMPLE = re.compile(r",\s+for\s+example\s+`[^`]*`(\s+or\s+`[^`]*`)?")
_DEFAULT = re.compile(r"\bDefault:")


def load(kind: str) -> Schema:
    """Return the source of one kind, references put in place."""
    return sources.load(SOURCE / f"{kind.lower()}.yaml")


def mapped(schema: Any, change: Callable[[Schema], Any]) -> Any:
    """Return a schema of a resource after a change of each schema in it, the innermost first."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    if "properties" in result:
        result["properties"] = {
            name: mapped(child, change) for name, child in result["properties"].items()
        }
    for word in ("items", "additionalProperties"):
        if word in result:
            result[word] = mapped(result[word], change)
    return change(result)


def for_values(schema: Schema, *, required: bool = False) -> Schema:
    """Return the schema of a field in the values of a chart: JSON Schema with the words of
    `chart_values`.
    """
    own = dict(schema.get("x-values", {}))
    more = own.pop("more", "")
    over = {"kubernetes": own.pop("over")} if "over" in own else {}
    result = {} if "kubernetes" in own else _derived(schema, required=required)
    if "description" in schema:
        result["description"] = _description(schema["description"], "example" in own)
    result = sources.merged(result, {**own, **over})
    result = {word: value for word, value in result.items() if value is not None}
    if result.get("required") == [] and "kubernetes" not in result:
        del result["required"]
    if more:
        result["description"] = f"{result['description'].rstrip()} {more}"
    return result


def _derived(schema: Schema, *, required: bool) -> Schema:
    result = {word: schema[word] for word in _WORDS if word in schema}
    if "enum" in schema:
        return {"enum": [*schema["enum"], *([] if required else [None])]}
    types = ["integer", "string"] if schema.get("x-kubernetes-int-or-string") else [schema["type"]]
    types += [] if required else ["null"]
    result["type"] = types if len(types) > 1 else types[0]
    if required and "minLength" in schema:
        result["minLength"] = schema["minLength"]
    if "properties" in schema:
        result |= _object(schema)
    if "items" in schema:
        result["items"] = for_values(schema["items"], required=True)
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = for_values(schema["additionalProperties"])
    return result


def _object(schema: Schema) -> Schema:
    """Return the fields of an object that values have, and which of them must be set."""
    fields = values_of(schema)
    needed = schema.get("x-values", {}).get("required")
    if needed is None:
        needed = [
            name
            for name in schema.get("required", ())
            if name in fields and "default" not in fields[name]
        ]
    properties = {
        name: for_values(child, required=name in needed) for name, child in fields.items()
    }
    return {"properties": _ordered(properties)} | ({"required": needed} if needed else {})


def values_of(schema: Schema) -> dict[str, Schema]:
    """Return the fields of an object that values have, by name."""
    fields = schema.get("properties", {})
    return {name: child for name, child in fields.items() if child.get("x-values") is not False}


def _description(text: str, has_example: bool) -> str:
    text = _DEFAULT.sub("`null` (default):", text)
    return _EXAMPLE.sub("", text) if has_example else text


def with_fields(schema: Any) -> Any:
    """Return a schema of values in which `fields: KIND` or `fields: KIND.FIELD` has become the
    fields of that object, or of the items of that list. The properties beside it are merged over
    those of the same name. Others are at the end, or before the field that `before` names.
    """
    if isinstance(schema, list):
        return [with_fields(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {word: with_fields(child) for word, child in schema.items()}
    if isinstance(result.get("fields"), str):
        place = result.pop("fields")
        own = result.get("properties", {})
        result["properties"] = _ordered(sources.merged(_object(_at(place))["properties"], own))
    return result


def _ordered(properties: dict[str, Schema]) -> dict[str, Schema]:
    """Return the properties in their order, those with the word `before` before the one that it
    names.
    """
    names = [name for name, child in properties.items() if "before" not in child]
    for name, child in properties.items():
        if "before" in child:
            names.insert(names.index(child["before"]), name)
    return {
        name: {word: value for word, value in properties[name].items() if word != "before"}
        for name in names
    }


def _at(place: str) -> Schema:
    kind, *names = place.split(".")
    schema: Schema = load(kind)["spec"]
    for name in names:
        field = schema["properties"][name]
        schema = field.get("items", field)
    return schema


def template_text() -> str:
    """Return the template with which the chart `slurm` passes fields on."""
    lines = [
        f'  "{place}" (list {" ".join(f"{name!r}" for name in names)})'.replace("'", '"')
        for kind in PASSED
        for place, names in objects(load(kind)["spec"], kind)
    ]
    return TEMPLATE.read_text(encoding="utf-8").replace("PLACES", "\n".join(lines))


def objects(schema: Schema, place: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each object of a resource that values have, by its place such as `NodeSet.gpu`, and the
    names of its fields that values have. Not the items of lists, which the chart passes as they
    are.
    """
    fields = values_of(schema)
    if fields:
        yield place, list(fields)
    for name, child in fields.items():
        if "kubernetes" not in child.get("x-values", {}):
            yield from objects(child, f"{place}.{name}")
