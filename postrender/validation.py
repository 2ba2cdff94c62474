"""Checks a value against a JSON schema, with the part of JSON Schema that our own schema uses.

`jsonschema` would do, but takes longer to import than a whole run may last, and brings a library in
Rust.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

KEYWORDS = frozenset(
    {
        "$ref", "additionalProperties", "description", "enum", "items", "maxProperties", "minItems",
        "minLength", "minProperties", "pattern", "properties", "required", "type",
    }
)  # fmt: skip
"""Those that a schema may use, beside `$defs` at its top."""

Path = tuple[str | int, ...]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float), "null": (type(None),),
}  # fmt: skip
_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
}


def faults(
    value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: Path = ()
) -> Iterator[tuple[Path, str]]:
    """Yield each fault and its place."""
    if "$ref" in schema:
        schema = root["$defs"][str(schema["$ref"]).removeprefix("#/$defs/")]
    types = schema.get("type", list(_TYPES))
    types = [types] if isinstance(types, str) else types
    if not any(_is(value, it) for it in types):
        wanted = " or ".join(_NAMES.get(it, f"a {it}") for it in types)
        yield path, f"must be {wanted}"
        return
    if "enum" in schema and not any(
        value == it and type(value) is type(it) for it in schema["enum"]
    ):
        yield path, f"is {value!r}, and must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, dict):
        yield from _mapping(value, schema, root, path)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield path, "must not be empty"
        for index, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), root, (*path, index))
    elif isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield path, "must not be empty"
        elif "pattern" in schema and not re.search(schema["pattern"], value):
            yield path, f"is {value!r}, and must match {schema['pattern']}"


def _mapping(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], path: Path
) -> Iterator[tuple[Path, str]]:
    known = schema.get("properties", {})
    other = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield path, f"needs {name!r}"
    if len(value) < schema.get("minProperties", 0):
        yield path, "must not be empty"
    if len(value) > schema.get("maxProperties", len(value)):
        yield path, f"must have one key, not {', '.join(value)}"
    for name, item in value.items():
        if name in known:
            yield from faults(item, known[name], root, (*path, name))
        elif other is False:
            yield (
                (*path, name),
                f"is unknown{_meant(name, known)}; known: {', '.join(sorted(known))}",
            )
        elif isinstance(other, Mapping):
            yield from faults(item, other, root, (*path, name))


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (not isinstance(value, bool) or name == "boolean")


def _meant(name: str, known: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
