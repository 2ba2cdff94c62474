"""Reads schemas in YAML and resolves references to shared definitions.

A mapping with `$ref: FILE#/NAME` (or `#/NAME` for the same file) stands for the definition NAME of
that file, with the mapping's other keys merged over it: mappings key by key, anything else as a
whole.
"""

import functools
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]


class SchemaError(Exception):
    """A schema can't be read. The message names the file and the place in it."""


def load(path: Path) -> Schema:
    """Return the schema of one file, with every reference put in place."""
    files = _Files()
    return {key: _resolved(value, path, (), files) for key, value in files[path].items()}


def merged(base: Schema, over: Schema) -> Schema:
    """`over` merged over `base`: mappings key by key, anything else as a whole. Neither is
    changed.
    """
    result = dict(base)
    for key, value in over.items():
        ours = result.get(key)
        result[key] = (
            merged(ours, value) if isinstance(ours, dict) and isinstance(value, dict) else value
        )
    return result


@functools.cache
def _parsed(text: str) -> Any:
    """Return the content of a file that several schemas refer to. Not to be changed."""
    return yaml.load(text, yaml.CSafeLoader)


class _Files(dict[Path, Schema]):
    """The contents of the files that one schema consists of: thousands of references lead to a few
    of them.
    """

    def __missing__(self, path: Path) -> Schema:
        self[path] = _mapping(path)
        return self[path]


def _mapping(path: Path) -> Schema:
    try:
        content = _parsed(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SchemaError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise SchemaError(f"{path}: not a mapping")
    return content


def _resolved(value: Any, path: Path, trail: tuple[str, ...], files: _Files) -> Any:
    if isinstance(value, list):
        return [_resolved(item, path, trail, files) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" not in value:
        return {key: _resolved(item, path, trail, files) for key, item in value.items()}
    reference = value["$ref"]
    file_name, separator, name = str(reference).partition("#/")
    target_path = path.parent / file_name if file_name else path
    step = f"{target_path.name}#/{name}"
    if step in trail:
        raise SchemaError(f"{path}: {reference} refers to itself")
    definitions = files[target_path]
    if not separator or name not in definitions:
        raise SchemaError(f"{path}: nothing is defined at {reference}")
    over = {key: item for key, item in value.items() if key != "$ref"}
    target = _resolved(definitions[name], target_path, (*trail, step), files)
    return merged(target, _resolved(over, path, trail, files))
