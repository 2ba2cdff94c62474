"""YAML that each parser takes for the same values."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from postrender import reading, writing
from postrender.errors import PostrenderError

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=30
) | st.sampled_from(
    [
        "y",
        "on",
        "1e3",
        "0o14",
        "~",
        "null",
        "1:30",
        "- a",
        "a: b",
        "#",
        "a #b",
        " a",
        "a\n",
        "a\n\n",
        "\n",
        "|",
        "a\n b",
        "=",
        "<<",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "a:",
        ":a",
        "'a",
        '"a',
        "a\tb",
        "\ta",
        "a\n\tb\n",
        "---",
        "...",
        "a\n---\nb",
        "2026-11-23",
        "é\nü\n",
    ]
)
SCALARS = (
    TEXTS
    | st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)


@given(OBJECTS)
def test_what_is_written_is_read_as_it_was(value: dict[str, Any]) -> None:
    text = writing.document(value)
    assert json.dumps(reading.load(text)) == json.dumps(value)


@given(OBJECTS)
def test_pyyaml_and_writing_again_agree(value: dict[str, Any]) -> None:
    text = writing.document(value)
    assert yaml.safe_load(text) == value
    assert writing.document(reading.load(text)) == text


def test_the_text_is_as_people_write_it() -> None:
    value = {
        "kind": "Pod",
        "metadata": {"labels": {"a.b/c": "d", "on": "y", "v": "1e3"}, "empty": {}},
        "spec": {
            "containers": [
                {"image": "registry:5000/a/b@sha256:0", "args": ["-c", "sleep 1\n", []]}
            ],
            "nested": [[1, 2], {}],
        },
        "data": {"a": "x\ny\n", "b": "x\n\ny", "c": "x\n\n", "d": "x \ny"},
    }
    assert writing.document(value) == (
        "kind: Pod\n"
        "metadata:\n"
        "  labels:\n"
        "    a.b/c: d\n"
        '    "on": "y"\n'
        '    v: "1e3"\n'
        "  empty: {}\n"
        "spec:\n"
        "  containers:\n"
        "  - image: registry:5000/a/b@sha256:0\n"
        "    args:\n"
        '    - "-c"\n'
        "    - |\n"
        "      sleep 1\n"
        "    - []\n"
        "  nested:\n"
        "  - - 1\n"
        "    - 2\n"
        "  - {}\n"
        "data:\n"
        "  a: |\n"
        "    x\n"
        "    y\n"
        "  b: |-\n"
        "    x\n"
        "\n"
        "    y\n"
        "  c: |+\n"
        "    x\n"
        "\n"
        '  d: "x \\ny"\n'
    )


def test_a_key_too_long_for_one_line_is_an_explicit_one() -> None:
    value = {"a": [{"k" * 2000: {"b": 1}}, {"l" * 2000: [1]}], "m" * 2000: "x"}
    text = writing.document(value)
    assert reading.load(text) == yaml.safe_load(text) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), {1: 2}])
def test_what_no_kubernetes_object_can_contain_is_refused(value: Any) -> None:
    with pytest.raises(PostrenderError):
        writing.document({"a": value})


def test_what_aliases_made_endless_or_immense_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    with pytest.raises(PostrenderError, match="nested too deeply"):
        writing.document(endless)
    many: Any = ["x" * 1000]
    for _ in range(6):
        many = [many] * 10
    with pytest.raises(PostrenderError, match="more than 64 MiB"):
        writing.document({"a": many})
