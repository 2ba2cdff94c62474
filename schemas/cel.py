"""The part of CEL that the rules in `schemas/crds` use: from text to nested lists, and from these
to a Helm template.

A node is `[operator, operand, …]`, which can be written as JSON. An operand is a node, a text or a
number:

- `const VALUE`, `var NAME`, `list NODE…`
- `get NODE FIELD DEFAULT`: a field, or the default. `has NODE FIELD`: whether it is set.
- `not`, `and`, `or`, `if`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `+`
- `size NODE`, `string NODE` (of a number), `seconds NODE` (of a duration), `is_int NODE`, `matches
  NODE PATTERN`
- `all NODE NAME NODE` (of keys or items), `filter NODE NAME NODE`

The API server fills in the defaults of the schema before it evaluates rules, so each `get` carries
the default, and `has` of a field with a default is `true`.
"""

import json
import re
from typing import Any

from schemas import sources

Node = list[Any]
_TOKEN = re.compile(
    r"""\s*(?:(\d+)|('(?:[^'\\]|\\.)*')|([A-Za-z_]\w*)|(\.\?|&&|\|\||[=!<>]=|[-<>!?:.,()[\]+]))"""
)
_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">="), ("+",))
_WORDS = {"||": "or", "&&": "and"}
_FALLBACK = {"object": {}, "array": [], "string": "", "boolean": False, "integer": 0}


class CelError(sources.SchemaError):
    """A rule uses more of CEL than this module has."""


def parse(text: str, schema: sources.Schema) -> Node:
    """Return the node of a rule about `self`, which `schema` describes, and `oldSelf`, which it was
    before.
    """
    parser = _Parser(text, {"self": schema, "oldSelf": schema})
    node, _ = parser.ternary()
    if parser.peek():
        raise CelError(f"{text}: {parser.peek()!r} is unexpected")
    return node


class _Parser:
    """Each method returns a node and the schema of its value."""

    def __init__(self, text: str, names: dict[str, sources.Schema]) -> None:
        self._text, self._names, self._at = text, names, 0
        self._tokens: list[str] = []
        end = 0
        while match := _TOKEN.match(text, end):
            self._tokens.append(match[0].strip())
            end = match.end()
        if text[end:].strip():
            raise CelError(f"{text}: {text[end:]!r} can't be read")

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, *wanted: str) -> str:
        word = self.peek()
        if not word or (wanted and word not in wanted):
            raise CelError(f"{self._text}: {' or '.join(wanted)} is expected, not {word!r}")
        self._at += 1
        return word

    def _skip(self, wanted: str) -> bool:
        found = self.peek() == wanted
        self._at += found
        return found

    def ternary(self) -> tuple[Node, sources.Schema]:
        node, schema = self._binary(0)
        if not self._skip("?"):
            return node, schema
        first, schema = self.ternary()
        self._next(":")
        second, _ = self.ternary()
        return ["if", node, first, second], schema

    def _binary(self, level: int) -> tuple[Node, sources.Schema]:
        if level == len(_LEVELS):
            return self._unary()
        node, schema = self._binary(level + 1)
        while self.peek() in _LEVELS[level]:
            word = self._next()
            other, _ = self._binary(level + 1)
            node, schema = [_WORDS.get(word, word), node, other], {}
            if node[1:2] == [["type", ["var", "self"]]] and node[2] == ["var", "int"]:
                node = ["is_int", ["var", "self"]]
        return node, schema

    def _unary(self) -> tuple[Node, sources.Schema]:
        if self._skip("!"):
            return ["not", self._unary()[0]], {}
        node, schema = self._primary()
        while self.peek() in {".", ".?"}:
            node, schema = (
                self._optional(node, schema) if self._next() == ".?" else self._member(node, schema)
            )
        return node, schema

    def _optional(self, node: Node, schema: sources.Schema) -> tuple[Node, sources.Schema]:
        """`NODE.?a.b.orValue(x)`: fields that may be missing, each with a default."""
        while (name := self._next()) != "orValue":
            schema = schema.get("properties", {}).get(name, {})
            node = ["get", node, name, schema.get("default", {})]
            self._next(".")
        self._next("(")
        default, _ = self.ternary()
        self._next(")")
        node[3] = [] if default == ["list"] else default[1]
        return node, schema

    def _member(self, node: Node, schema: sources.Schema) -> tuple[Node, sources.Schema]:
        name = self._next()
        if not self._skip("("):
            child = schema.get("properties", {}).get(name, {})
            fallback = child.get("default", _FALLBACK.get(str(child.get("type")), ""))
            return ["get", node, name, fallback], child
        if name == "size":
            result: Node = ["size", node]
        elif name == "matches":
            result = ["matches", node, self.ternary()[0][1]]
        elif name in {"all", "filter"}:
            variable = self._next()
            self._next(",")
            self._names[variable] = schema.get("items", {"type": "string"})
            result = [name, node, variable, self.ternary()[0]]
        else:
            raise CelError(f"{self._text}: {name} is unknown")
        self._next(")")
        return result, {}

    def _primary(self) -> tuple[Node, sources.Schema]:
        word = self._next()
        if word == "(":
            result = self.ternary()
            self._next(")")
            return result
        if word == "[":
            items: list[Node] = []
            while not self._skip("]"):
                items.append(self.ternary()[0])
                if self.peek() != "]":
                    self._next(",")
            return ["list", *items], {}
        if word.isdecimal():
            return ["const", int(word)], {}
        if word.startswith("'"):
            return ["const", re.sub(r"\\(.)", r"\1", word[1:-1])], {}
        if word in {"true", "false"}:
            return ["const", word == "true"], {}
        if not self._skip("("):
            return ["var", word], self._names.get(word, {})
        node, schema = self.ternary()
        self._next(")")
        if word == "has":
            return (["const", True] if "default" in schema else ["has", node[1], node[2]]), {}
        if word == "duration":
            word = "seconds"
        if word not in {"size", "string", "type", "seconds"}:
            raise CelError(f"{self._text}: {word} is unknown")
        return [word, node], {}


def template(node: Node) -> str:
    """Return a node as an expression of a Helm template, without outer parentheses. `self` is the
    variable `$self`.
    """
    word, *operands = node
    if word == "const":
        value = operands[0]
        return f"`{value}`" if isinstance(value, str) else json.dumps(value)
    if word == "var":
        return f"${operands[0]}"
    if word in {"get", "has"}:
        parent, name = operands[:2]
        parent = _inner(parent) if parent[0] == "var" else f"({template(parent)} | default dict)"
        return (
            f'hasKey {parent} "{name}"'
            if word == "has"
            else f'dig "{name}" {_literal(operands[2])} {parent}'
        )
    if word in _TEMPLATES:
        return _TEMPLATES[word].format(
            *(_inner(each) if isinstance(each, list) else f"`{each}`" for each in operands)
        )
    if word in {"==", "!="}:
        left, right = operands
        if _is_number(left) or _is_number(right):
            return f"{_COMPARED[word]} (float64 {_inner(left)}) (float64 {_inner(right)})"
        return f"{_COMPARED[word]} {_inner(left)} {_inner(right)}"
    if word in _COMPARED:
        return f"{_COMPARED[word]} (float64 {_inner(operands[0])}) (float64 {_inner(operands[1])})"
    raise CelError(f"{word} has no expression in templates")


def _inner(node: Node) -> str:
    text = template(node)
    return text if node[0] in {"const", "var"} else f"({text})"


def _literal(value: Any) -> str:
    if value in ({}, []) and not isinstance(value, bool):
        return "dict" if value == {} else "list"
    return json.dumps(value)


def _is_number(node: Node) -> bool:
    return node[0] in {"size", "seconds"} or (node[0] == "const" and type(node[1]) is int)


_COMPARED = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_TEMPLATES = {
    "not": "not {0}",
    "and": "and {0} {1}",
    "or": "or {0} {1}",
    "if": "ternary {1} {2} {0}",
    "+": "add {0} {1}",
    "size": "len {0}",
    "string": "toString (int64 {0})",
    "seconds": 'include "slurm.rules.seconds" {0}',
    "is_int": "kindIs `float64` {0}",
    "matches": "regexMatch {1} (toString {0})",
}
