"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386). Inputs are never changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from postrender.errors import PostrenderError
from postrender.stream import same

_NEEDS = {
    "add": "value",
    "replace": "value",
    "test": "value",
    "move": "from",
    "copy": "from",
    "remove": "path",
}
"""The operations, each with what it needs beside `path`."""


def merged(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch to a value: null removes, mappings merge, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), item)
    return result


def put(value: Any, path: Sequence[str | int], new: Any) -> Any:
    """Return a copy of a value with `new` at `path`. Mappings on the way that are absent are
    added.
    """
    if not path:
        return new
    inner = value if isinstance(value, dict) else {}
    return {**inner, path[0]: put(inner.get(path[0]), path[1:], new)}


def patched(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return a value after the operations. Raises PostrenderError that names the operation, for one
    that can't be applied.

    The error shows no value of the object, which may be a password.
    """
    for index, operation in enumerate(operations):
        try:
            value = _applied(value, operation)
        except PostrenderError as error:
            raise PostrenderError(
                f"json[{index}]: {operation.get('op')} {operation.get('path')}: {error}"
            ) from None
    return value


def _applied(value: Any, operation: Mapping[str, Any]) -> Any:
    op, path = str(operation["op"]), _pointer(str(operation["path"]))
    if _NEEDS[op] not in operation:
        raise PostrenderError(f"needs {_NEEDS[op]!r}")
    if op == "add":
        return _add(value, path, operation["value"])
    if op == "remove":
        return _remove(value, path)
    if op == "replace":
        _get(value, path)
        return _set(value, path, operation["value"])
    if op == "test":
        found = _get(value, path)
        if not same(found, operation["value"]):
            raise PostrenderError("the object has another value")
        return value
    source = _pointer(str(operation["from"]))
    found = _get(value, source)
    if op == "copy":
        return _add(value, path, found)
    if path[: len(source)] == source and path != source:
        raise PostrenderError(f"{operation['from']} can't be moved into itself")
    return _add(_remove(value, source), path, found)


def _pointer(text: str) -> tuple[str, ...]:
    if text and not text.startswith("/"):
        raise PostrenderError(f"{text!r} doesn't begin with /")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


def _get(value: Any, path: Sequence[str]) -> Any:
    for depth, part in enumerate(path):
        if isinstance(value, dict):
            if part not in value:
                raise PostrenderError(f"/{'/'.join(path[: depth + 1])} doesn't exist")
            value = value[part]
        else:
            value = value[_index(value, part, path[: depth + 1])]
    return value


def _index(value: Any, part: str, path: Sequence[str], more: int = 0) -> int:
    where = f"/{'/'.join(path)}"
    if not isinstance(value, list):
        raise PostrenderError(f"{where} doesn't exist")
    if not part.isdecimal() or (part != "0" and part.startswith("0")):
        raise PostrenderError(f"{where}: {part!r} is no position in a list")
    if int(part) >= len(value) + more:
        raise PostrenderError(f"{where}: the list has {len(value)} items")
    return int(part)


def _add(value: Any, path: tuple[str, ...], new: Any) -> Any:
    if not path:
        return new
    holder = _get(value, path[:-1])
    if isinstance(holder, list):
        index = len(holder) if path[-1] == "-" else _index(holder, path[-1], path, more=1)
        return _set(value, path[:-1], [*holder[:index], new, *holder[index:]])
    if not isinstance(holder, dict):
        raise PostrenderError(f"/{'/'.join(path[:-1])} is no mapping or list")
    return _set(value, path[:-1], {**holder, path[-1]: new})


def _remove(value: Any, path: tuple[str, ...]) -> Any:
    _get(value, path)
    if not path:
        raise PostrenderError("the whole object can't be removed")
    holder = _get(value, path[:-1])
    if isinstance(holder, list):
        index = int(path[-1])
        return _set(value, path[:-1], [*holder[:index], *holder[index + 1 :]])
    return _set(value, path[:-1], {key: item for key, item in holder.items() if key != path[-1]})


def _set(value: Any, path: Sequence[str], new: Any) -> Any:
    """Return a value with `new` at a path that exists."""
    if not path:
        return new
    copied = value.copy()
    key: Any = int(path[0]) if isinstance(value, list) else path[0]
    copied[key] = _set(value[key], path[1:], new)
    return copied
