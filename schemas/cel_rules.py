"""The rules of the custom resources for the checks of the chart `slurm` and the post-renderer,
without an API server.

Both come from the rules (CEL) in `schemas/crds`. Rules about a change, which name `oldSelf`, need
the object in the cluster: only previews of the post-renderer have it. The bounds of single fields
(`minimum`, `pattern` and the like) are for the post-renderer alone: the chart has them in the rules
of its values.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from schemas import cel, definitions, resource_fields, sources

TEMPLATE = Path(__file__).parent / "rules.tpl"
RENDERED = ("NodeSet", "Token")
"""Kinds whose fields come from several values, and so can break rules. The chart checks what it
renders of them.
"""


@dataclass(frozen=True)
class Rule:
    """One rule about the value at `path`: fields from the object, and `*` for each item of a list.
    None about no value.

    `field` is the part of the value that the rule is about; "" for the whole.
    """

    kind: str
    path: tuple[str, ...]
    field: str
    node: cel.Node
    message: str
    remedy: str


def rules(kind: str) -> Iterator[Rule]:
    """Yield the rules of a kind that concern one state of the object."""
    source = resource_fields.load(kind)
    metadata = {"type": "object", "properties": {"name": {"type": "string"}}}
    root = {"type": "object", "properties": {"spec": source["spec"], "metadata": metadata}}
    yield from _of({**root, "x-kubernetes-validations": source.get("rules", [])}, kind, ())


def bounds(kind: str) -> Iterator[Rule]:
    """Yield the bounds of single fields of a kind's spec, as rules."""
    yield from _bounds(resource_fields.load(kind)["spec"], kind, ("spec",))


def rules_and_bounds(kind: str) -> Iterator[Rule]:
    """Yield all that concerns one state of an object of this kind, beside types and required
    fields.
    """
    yield from rules(kind)
    yield from bounds(kind)


def changes(kind: str) -> Iterator[Rule]:
    """Yield the rules of a kind about a change of its spec."""
    schema = resource_fields.load(kind)["spec"]
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"]:
            yield _rule(rule, schema, kind, ("spec",))


def _of(schema: sources.Schema, kind: str, path: tuple[str, ...]) -> Iterator[Rule]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"]:
            yield _rule(rule, schema, kind, path)
    for name, child in schema.get("properties", {}).items():
        yield from _of(child, kind, (*path, name))
    if "items" in schema:
        yield from _of(schema["items"], kind, (*path, "*"))


def _bounds(schema: sources.Schema, kind: str, path: tuple[str, ...]) -> Iterator[Rule]:
    for word, (node, message) in _BOUNDS.items():
        if word in schema:
            text = message.format(_listed(schema[word]))
            yield Rule(kind, path, "", node(schema[word]), text, "Correct the values.")
    for name, child in schema.get("properties", {}).items():
        yield from _bounds(child, kind, (*path, name))
    if "items" in schema:
        yield from _bounds(schema["items"], kind, (*path, "*"))


def _listed(bound: Any) -> str:
    return ", ".join(map(str, bound)) if isinstance(bound, list) else str(bound)


def _one_of(values: Sequence[Any]) -> cel.Node:
    first, *others = (["==", _SELF, ["const", value]] for value in values)
    return reduce(lambda left, right: ["or", left, right], others, first)


_SELF: cel.Node = ["var", "self"]
_BOUNDS: Mapping[str, tuple[Callable[[Any], cel.Node], str]] = {
    "minimum": (lambda it: [">=", _SELF, ["const", it]], "must be {} or more"),
    "maximum": (lambda it: ["<=", _SELF, ["const", it]], "must be {} or less"),
    "enum": (_one_of, "must be one of {}"),
    "pattern": (lambda it: ["matches", _SELF, it], "must match {}"),
    "minLength": (lambda it: [">=", ["size", _SELF], ["const", it]], "must not be empty"),
    "maxLength": (
        lambda it: ["<=", ["size", _SELF], ["const", it]],
        "must have {} characters or fewer",
    ),
    "minItems": (lambda it: [">=", ["size", _SELF], ["const", it]], "must have {} items or more"),
    "maxItems": (lambda it: ["<=", ["size", _SELF], ["const", it]], "must have {} items or fewer"),
}
"""By JSON Schema's word: the rule that it is, and the rule in words."""


def _rule(
    rule: Mapping[str, str], schema: sources.Schema, kind: str, path: tuple[str, ...]
) -> Rule:
    return Rule(
        kind,
        path,
        rule.get("fieldPath", "").removeprefix("."),
        cel.parse(rule["rule"], schema),
        " ".join(rule["message"].split()),
        rule.get("remedy", "Correct the values."),
    )


def json_text(of: Callable[[str], Iterator[Rule]] = rules_and_bounds) -> str:
    """Return the post-renderer's rules.json, or with `changes` its changes.json. It has the rules
    of each kind, each with `path`, `field`, `rule` and `message`.
    """
    found = {
        kind: [
            {"path": it.path, "field": it.field, "message": it.message, "rule": it.node}
            for it in of(kind)
        ]
        for kind in definitions.KINDS
    }
    lines = [
        f" {json.dumps(kind)}: [\n" + ",\n".join(f"  {json.dumps(each)}" for each in those) + "\n ]"
        for kind, those in found.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def template_text() -> str:
    """Return the template with which the chart `slurm` checks the resources that it renders."""
    return TEMPLATE.read_text(encoding="utf-8") + "".join(_define(kind) for kind in RENDERED)


def _define(kind: str) -> str:
    blocks = [block for rule in rules(kind) if (block := _block(rule))]
    head = f'\n{{{{- define "slurm.rules.{kind}" -}}}}\n{{{{- $object := first . -}}}}\n'
    return f"{head}{{{{- $place := last . -}}}}\n{''.join(blocks)}{{{{- end }}}}\n"


def _block(rule: Rule) -> str:
    if rule.path[-1:] == ("namespace",):
        return ""  # the chart renders no reference with a namespace
    keys = "".join(f'"{name}" ' for name in rule.path)
    self = f"dig {keys}nil $object" if rule.path else "$object"
    fields = [*rule.path[1:], *filter(None, [rule.field])]
    place = f'(printf "%s.{".".join(fields)}" $place)' if fields else "$place"
    node, head, tail = rule.node, "", ""
    if node[0] == "all":
        head, tail = f"{{{{- range ${node[2]}, $_ := $self }}}}", "{{- end }}"
        node = node[3]
    texts = f"{place} {_text(rule.message)} {_text(rule.remedy)}"
    line = f'include "slurm-charts.check.line" (list {texts})'
    return (
        f"{{{{- $self := {self} -}}}}\n"
        f'{{{{- if not (kindIs "invalid" $self) }}}}{head}{{{{ if not ({cel.template(node)}) '
        f"-}}}}\n"
        f"{{{{- {line} -}}}}\n"
        f"{{{{- end }}}}{tail}{{{{- end -}}}}\n"
    )


def _text(text: str) -> str:
    return f"`{text}`" if '"' in text else json.dumps(re.sub(r"\s+", " ", text))
