"""YAML → values, as Kubernetes' own parser takes it (go.yaml.in/yaml/v2, which sigs.k8s.io/yaml
uses).

It differs from PyYAML's constructor: `y` and `on` are booleans, `1e3` is a number and `0o14` is 12,
`1:30` and dates are strings, keys become strings. Refused are duplicate keys, unknown tags, and
keys that are lists or mappings.
"""

import re
from itertools import accumulate
from math import inf, isfinite
from typing import Any

import yaml

from postrender.errors import YamlError

try:
    from yaml import CSafeLoader as _Base
except ImportError:  # PyYAML without libyaml: slower, the same result
    from yaml import SafeLoader as _Base  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_STR, _MAP, _SEQ = f"{_TAG}str", f"{_TAG}map", f"{_TAG}seq"
_MERGE = f"{_TAG}merge"
_OTHER = "!"
"""Of every plain scalar that is no string; `scalar` returns the value."""

_WORDS: dict[str, Any] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_INTEGER = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]{0,19}|0))", re.ASCII
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)

NODES = 5_000_000
"""Values of a document at most, with each alias counted as what it stands for."""

DEEPEST = 10_000
"""Levels at most that libyaml is given."""


class _Loader(_Base):
    """Composes nodes only."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            if not implicit[0]:
                return _STR
            return _MERGE if value == "<<" else _STR if isinstance(scalar(value), str) else _OTHER
        return _MAP if kind is yaml.MappingNode else _SEQ


def scalar(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    plain = text if text[0] == "." else text.replace("_", "")
    if (found := _INTEGER.fullmatch(plain)) is not None:
        sign, *digits = found.groups()
        number = next(
            int(it, base) for it, base in zip(digits, (16, 2, 8, 10), strict=True) if it is not None
        )
        number = -number if sign == "-" else number
        if -(2**63) <= number < 2**64:
            return number
    value = float(plain) if _FLOAT.fullmatch(plain) else inf
    return value if isfinite(value) else text


def compose(text: str) -> yaml.Node | None:
    """Return the nodes of one document, with their lines, or None for one without content. Raises
    YamlError.
    """
    loader = None
    if _nests_too_deeply(text):
        raise YamlError(1, "nested too deeply")
    try:
        loader = _Loader(text)
        node: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.context, error.problem) if part]
        last = text.rstrip().count("\n") + 1
        raise YamlError(
            min(mark.line + 1, last) if mark else 1, ", ".join(parts) or "invalid YAML"
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(
            line, f"the character U+{_code(error.character):04X} can't be part of YAML"
        ) from None
    except RecursionError:
        raise YamlError(1, "nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    return node


def load(text: str) -> Any:
    """Return the value of one document, or None for one without content. Raises YamlError."""
    node = compose(text)
    if node is None:
        return None
    try:
        return _Values().of(node)
    except RecursionError:
        raise YamlError(
            node.start_mark.line + 1, "nested too deeply, or an alias that contains itself"
        ) from None


def line_of(node: yaml.Node | None, path: tuple[str | int, ...]) -> int:
    """Return the line of the value at `path`, or of the deepest part of the path that exists.

    A number after a text is one of its lines, from 1.
    """
    line = node.start_mark.line + 1 if node is not None else 1
    for part in path:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    found, line = value, key.start_mark.line + 1
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            found = node.value[part]
            line = found.start_mark.line + 1
        if found is None:
            if isinstance(part, int) and isinstance(node, yaml.ScalarNode) and node.style == "|":
                line += part
            break
        node = found
    return line


def _nests_too_deeply(text: str) -> bool:
    """Return whether libyaml's recursion could end the process."""
    if text.count("[") + text.count("{") + text.count("- -") < DEEPEST:
        return False
    levels = accumulate(
        {"[": 1, "{": 1}.get(bracket, -1) for bracket in re.findall(r"[\[\]{}]", text)
    )
    return max(levels, default=0) > DEEPEST or f"{'- ' * DEEPEST}" in text


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "\0")


class _Values:
    def __init__(self) -> None:
        self.count = 0

    def of(self, node: yaml.Node) -> Any:
        self.count += 1
        if self.count > NODES:
            raise YamlError(
                node.start_mark.line + 1,
                f"more than {NODES} values, because aliases contain aliases",
            )
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.MappingNode):
            _expect(node, _MAP)
            return self._mapping(node)
        _expect(node, _SEQ)
        return [self.of(item) for item in node.value]

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if not isinstance(source, yaml.MappingNode):
                        raise YamlError(key.start_mark.line + 1, "`<<` merges mappings only")
                    merged = self._mapping(source) | merged
                continue
            name = _key(key)
            if name in own:
                raise YamlError(
                    key.start_mark.line + 1, f"the key {name!r} is set twice: remove one of them"
                )
            own[name] = self.of(value)
        return merged | own if merged else own


def _expect(node: yaml.Node, tag: str) -> None:
    if node.tag != tag:
        raise YamlError(
            node.start_mark.line + 1, f"the tag {node.tag} isn't known in Kubernetes: remove it"
        )


def _scalar(node: yaml.ScalarNode) -> Any:
    if node.tag in (_STR, _MERGE):
        return node.value
    value = scalar(node.value)
    if node.tag == _OTHER:
        return value
    wanted = {f"{_TAG}int": (int,), f"{_TAG}float": (int, float), f"{_TAG}bool": (bool,)}.get(
        node.tag
    )
    if (
        wanted is None
        or not isinstance(value, wanted)
        or (isinstance(value, bool) and bool not in wanted)
    ):
        raise YamlError(
            node.start_mark.line + 1, f"the tag {node.tag} can't be used for this value: remove it"
        )
    return float(value) if node.tag == f"{_TAG}float" else value


def _key(node: yaml.Node) -> str:
    value = _scalar(node) if isinstance(node, yaml.ScalarNode) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise YamlError(node.start_mark.line + 1, "a key that is no string: quote it")
