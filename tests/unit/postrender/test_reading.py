"""Values as Kubernetes' own parser takes them."""

from typing import Any

import pytest

from postrender import reading
from postrender.errors import YamlError


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("y", True),
        ("On", True),
        ("n", False),
        ("OFF", False),
        ("yEs", "yEs"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("1e3", 1000.0),
        ("1E-2", 0.01),
        (".5", 0.5),
        ("1.", 1.0),
        ("+12", 12),
        ("-0x1F", -31),
        ("0o14", 12),
        ("014", 12),
        ("09", 9.0),
        ("0b101", 5),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2026-11-23", "2026-11-23"),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ("1.2.3", "1.2.3"),
        ("12e4567", "12e4567"),
        ("9" * 5000, "9" * 5000),
        (".inf", float("inf")),
        ("0x", "0x"),
        ("+", "+"),
        (".", "."),
        ("1e", "1e"),
        ("'y'", "y"),
        ('"1e3"', "1e3"),
        ("!!str 1", "1"),
        ('!!int "3"', 3),
        ("!!float 3", 3.0),
        ("!!bool y", True),
        ("=", "="),
    ],
)
def test_a_scalar_is_what_kubernetes_takes_it_for(text: str, want: Any) -> None:
    got = reading.load(f"a: {text}\n")["a"]
    assert got == want
    assert type(got) is type(want)


def test_keys_become_strings() -> None:
    assert reading.load("1: a\ny: b\n0x10: c\n") == {"1": "a", "true": "b", "16": "c"}


def test_merged_keys_stand_back_behind_own_ones() -> None:
    text = (
        "a: &a {x: 1, y1: 2}\nb: &b {x: 3, z: 4}\nc:\n  x: 5\n  <<: [*a, *b]\nd:\n  <<: [*a, *b]\n"
    )
    value = reading.load(text)
    assert value["c"] == {"x": 5, "y1": 2, "z": 4}
    assert value["d"] == {"x": 1, "y1": 2, "z": 4}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is set twice"),
        ("a:\n  b: [1\n", 2, "expected ',' or ']'"),
        ("a: !secret x\n", 1, "the tag !secret"),
        ("a: 1\nb: !!binary aGk=\n", 2, "the tag tag:yaml.org,2002:binary"),
        ("a: !!int x\n", 1, "can't be used for this value"),
        ("a: !!set {x: null}\n", 1, "the tag tag:yaml.org,2002:set"),
        ("a: 1\n? [b]\n: 1\n", 2, "a key that is no string"),
        ("a: 1\nb: \x01\n", 2, "U+0001"),
        ("a: 1\n...\nb: 2\n", 3, "expected"),
        ("a: *b\n", 1, "undefined alias"),
        ("a: 1\n<<: 3\n", 2, "`<<` merges mappings only"),
        ("a: &a [*a]\n", 1, "an alias that contains itself"),
        ("[" * 5000 + "]" * 5000, 1, "nested too deeply"),
        ("[" * 200000, 1, "nested too deeply"),
        ("- " * 200000, 1, "nested too deeply"),
    ],
)
def test_bad_yaml_is_refused_with_its_line(text: str, line: int, problem: str) -> None:
    with pytest.raises(YamlError) as caught:
        reading.load(text)
    assert problem in caught.value.problem
    assert caught.value.line == line


@pytest.mark.parametrize(
    "tag", ["!!binary", "!!int", "!!bool", "!!float", "!!timestamp", "!!null", "!ours"]
)
def test_a_tag_that_does_not_fit_is_refused_without_the_value(tag: str) -> None:
    with pytest.raises(YamlError) as caught:
        reading.load(f"password: {tag} aHVudGVyMg\n")
    assert "remove it" in caught.value.problem
    assert "aHVudGVyMg" not in caught.value.problem


def test_aliases_of_aliases_are_refused_before_they_fill_the_memory() -> None:
    levels = "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(10)
    )
    with pytest.raises(YamlError, match="aliases contain aliases"):
        reading.load(f"a: &a [x]\n{levels}")


def test_the_line_of_a_value_is_that_of_its_key() -> None:
    node = reading.compose("a:\n  b:\n  - c: 1\n  - c: 2\n")
    assert reading.line_of(node, ("a", "b", 1, "c")) == 4
    assert reading.line_of(node, ("a", "b", 0)) == 3
    assert reading.line_of(node, ("a", "absent")) == 1


def test_both_parsers_of_pyyaml_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    text = "a: [1e3, y, {b: 'on'}]\nc: |\n  d\n  e\nf: &x {g: 0o14}\nh: *x\n"
    want = reading.load(text)

    class Pure(yaml.SafeLoader):
        resolve = reading._Loader.resolve

    monkeypatch.setattr(reading, "_Loader", Pure)
    assert (
        reading.load(text)
        == want
        == {"a": [1000.0, True, {"b": "on"}], "c": "d\ne\n", "f": {"g": 12}, "h": {"g": 12}}
    )
    with pytest.raises(YamlError) as caught:
        reading.load("a: 1\nb: \x01\n")
    assert caught.value.line == 2
    with pytest.raises(YamlError):
        reading.load("a: [1\n")
