"""CEL of the rules, as nested lists and as expressions of Helm templates."""

import pytest

from schemas import cel

SCHEMA = {
    "type": "object",
    "properties": {
        "mode": {"type": "string", "default": "StatefulSet"},
        "min": {"type": "integer"},
        "inner": {"type": "object", "properties": {"name": {"type": "string"}}},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"on": {"type": "boolean"}}},
        },
    },
}
SELF = ["var", "self"]
MODE = ["get", SELF, "mode", "StatefulSet"]
NAME = ["get", ["get", SELF, "inner", {}], "name", "x"]


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (
            "self.mode == 'a' || !has(self.min)",
            ["or", ["==", MODE, ["const", "a"]], ["not", ["has", SELF, "min"]]],
        ),
        ("has(self.mode)", ["const", True]),
        ("true ? 1 : self.min", ["if", ["const", True], ["const", 1], ["get", SELF, "min", 0]]),
        ("self.min <= 2", ["<=", ["get", SELF, "min", 0], ["const", 2]]),
        ("self.?inner.name.orValue('x') != ''", ["!=", NAME, ["const", ""]]),
        (
            "size(self.?items.orValue([])) == 0",
            ["==", ["size", ["get", SELF, "items", []]], ["const", 0]],
        ),
        ("self.matches('^\\\\s\\'$')", ["matches", SELF, "^\\s'$"]),
        ("type(self) == int", ["is_int", SELF]),
        (
            "duration(self) >= duration('1m')",
            [">=", ["seconds", SELF], ["seconds", ["const", "1m"]]],
        ),
        (
            "self.items.filter(it, it.on).size()",
            [
                "size",
                ["filter", ["get", SELF, "items", []], "it", ["get", ["var", "it"], "on", False]],
            ],
        ),
        (
            "[self.min, 1] == []",
            ["==", ["list", ["get", SELF, "min", 0], ["const", 1]], ["list"]],
        ),
        (
            "self.mode == oldSelf.mode",
            ["==", MODE, ["get", ["var", "oldSelf"], "mode", "StatefulSet"]],
        ),
        (
            "1 + 2 == 3 && true",
            ["and", ["==", ["+", ["const", 1], ["const", 2]], ["const", 3]], ["const", True]],
        ),
    ],
)
def test_a_rule_is_read_with_the_defaults_of_its_fields(text: str, node: cel.Node) -> None:
    assert cel.parse(text, SCHEMA) == node


@pytest.mark.parametrize(
    "text",
    [
        "self.map(x, x)",
        "self.mode ==",
        "timestamp(self)",
        "self.mode % 2",
        "true true",
        "[1",
        "[1 2]",
        "has(self.min",
    ],
)
def test_what_is_not_known_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(cel.CelError) as refusal:
        cel.parse(text, SCHEMA)
    assert text in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("!has(self.min)", 'not (hasKey $self "min")'),
        ("self.mode == 'a'", 'eq (dig "mode" "StatefulSet" $self) `a`'),
        ("self.min < 3", 'lt (float64 (dig "min" 0 $self)) (float64 3)'),
        ("size(self.mode) != 0", 'ne (float64 (len (dig "mode" "StatefulSet" $self))) (float64 0)'),
        (
            "self.?inner.name.orValue('') == 'a'",
            'eq (dig "name" "" (dig "inner" dict $self | default dict)) `a`',
        ),
        (
            "self.mode.matches('^a$')",
            'regexMatch `^a$` (toString (dig "mode" "StatefulSet" $self))',
        ),
    ],
)
def test_a_rule_is_an_expression_of_a_template(text: str, expression: str) -> None:
    assert cel.template(cel.parse(text, SCHEMA)) == expression


def test_a_rule_about_chosen_items_has_no_expression() -> None:
    with pytest.raises(cel.CelError, match="filter has no expression"):
        cel.template(cel.parse("self.items.filter(it, it.on).size() <= 1", SCHEMA))
