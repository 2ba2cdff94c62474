"""The rules of the custom resources that the API server enforces: which of them an object breaks.

`make generate` writes rules.json and, for changes, changes.json, with the rules of schemas/crds,
and the bounds of single fields, as nested lists (schemas/cel.py).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Place = tuple[str | int, ...]
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def broken(kind: str, value: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield each rule that an object breaks: the place in it, and the rule in words. The object's
    fields have the right types.
    """
    for rule in _rules().get(kind, ()):
        for place, part in _parts(value, tuple(rule["path"]), ()):
            if not evaluate(rule["rule"], {"self": part}):
                yield (*place, *filter(None, [rule["field"]])), rule["message"]


def messages(kind: str, value: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield the same, with the place in the words."""
    for place, rule in broken(kind, value):
        yield place, f"{_text(place) or 'metadata.name'}: {rule}"


def refused_changes(
    kind: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield each rule about a change of `spec` that this one breaks: the field, and the rule in
    words. Both specs are without defaults.
    """
    for rule in _changes().get(kind, ()):
        if not evaluate(rule["rule"], {"self": after, "oldSelf": before}):
            yield ".".join(filter(None, [*rule["path"], rule["field"]])), rule["message"]


def _text(place: Place) -> str:
    parts = (f"[{it}]" if isinstance(it, int) else f".{it}" for it in place)
    return "".join(parts).removeprefix(".")


@cache
def _changes() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(
        (Path(__file__).parent / "changes.json").read_bytes()
    )
    return found


@cache
def _rules() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(
        (Path(__file__).parent / "rules.json").read_bytes()
    )
    return found


def _parts(value: Any, path: tuple[str, ...], place: Place) -> Iterator[tuple[Place, Any]]:
    """Yield the values at a path, `*` for each item of a list. None for what is not set or null."""
    if value is None:
        return
    if not path:
        yield place, value
    elif path[0] == "*":
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _parts(item, path[1:], (*place, index))
    elif isinstance(value, Mapping):
        yield from _parts(value.get(path[0]), path[1:], (*place, path[0]))


def evaluate(node: list[Any], names: Mapping[str, Any]) -> Any:
    """Return the value of a node, where `names` has the values of variables."""
    word, *operands = node
    if word == "const":
        return operands[0]
    if word == "var":
        return names[operands[0]]
    if word == "list":
        return [evaluate(it, names) for it in operands]
    first = evaluate(operands[0], names)
    if word in {"get", "has"}:
        found = first.get(operands[1]) if isinstance(first, Mapping) else None
        if word == "has":
            return found is not None
        return operands[2] if found is None else found
    if word == "matches":
        return re.search(_pattern(operands[1]), str(first), re.ASCII) is not None
    if word in {"all", "filter"}:
        _, name, inner = operands
        kept = [item for item in first if evaluate(inner, {**names, name: item})]
        return kept if word == "filter" else len(kept) == len(first)
    if word in {"and", "or"}:
        return evaluate(operands[1], names) if bool(first) == (word == "and") else first
    if word == "if":
        return evaluate(operands[1] if first else operands[2], names)
    if word in _UNARY:
        return _UNARY[word](first)
    return _BINARY[word](first, evaluate(operands[1], names))


@cache
def _pattern(text: str) -> str:
    """Return a pattern of RE2. Python's `$` also matches before a last line end, and its `)*` would
    try all ways to repeat.
    """
    return text.replace("$", r"\Z").replace(r")*\Z", r")*+\Z")


def _seconds(text: str) -> float:
    return sum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([a-zµ]+)", text)
    )


_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "not": lambda a: not a,
    "size": len,
    "string": str,
    "seconds": _seconds,
    "is_int": lambda a: isinstance(a, int),
}
_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
}
