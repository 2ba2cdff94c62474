"""Kind and name without parsing: right, or left to the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postrender import reading
from postrender.errors import YamlError
from postrender.scan import Head, head_of

PLAIN = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\n  labels:\n    a: b\ndata:\n  "
    "kind: x\n"
)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"---\n# Source: a/b.yaml\n{PLAIN}",
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("ConfigMap", '"ConfigMap"').replace("one", "'one'"),
        PLAIN.replace("  labels", "  annotations:\n    name: other\n  labels"),
        PLAIN + "list:\n- name: a\n- name: b\n",
        PLAIN + "text: |\n  kind: Other\n   name: x\n",
    ],
)
def test_documents_as_charts_write_them_are_not_parsed(text: str) -> None:
    assert head_of(text) == Head("ConfigMap", "one")


@pytest.mark.parametrize("text", ["", "---\n", "---\n# a\n\n  # b\n", "# Source: a\n"])
def test_a_document_without_content_has_no_kind(text: str) -> None:
    assert head_of(text) == Head("", "")


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("kind: ConfigMap", '"kind": ConfigMap'),
        PLAIN.replace("kind: ConfigMap", "kind: !!str ConfigMap"),
        PLAIN.replace("kind: ConfigMap", "kind: ConfigMap # note"),
        PLAIN.replace("kind: ConfigMap", "kind: Config\n  Map"),
        PLAIN.replace("kind: ConfigMap", "kind:\n  ConfigMap"),
        PLAIN.replace("kind: ConfigMap", "kind : ConfigMap"),
        PLAIN.replace("kind: ConfigMap", "? kind\n: ConfigMap"),
        PLAIN.replace("kind: ConfigMap", '"k\\x69nd": ConfigMap'),
        PLAIN.replace("kind: ConfigMap", "<<: {kind: ConfigMap}"),
        PLAIN.replace("kind: ConfigMap", "kind: Other\nkind: ConfigMap"),
        PLAIN.replace("metadata:\n  name: one\n", "metadata: {name: one}\n").replace(
            "  labels:\n    a: b\n", ""
        ),
        PLAIN.replace("  name: one", "  name: one\n    two"),
        PLAIN.replace("  name: one", '  "n\\x61me": one'),
        PLAIN.replace("  name: one", "  name: &a one"),
        PLAIN.replace("  name: one", "  name: 1e3"),
        PLAIN.replace("  name: one", "  name: on"),
        PLAIN.replace(
            "  name: one", "  annotations:\n    x: 'a\n  name: other\n    '\n  \"n\\x61me\": one"
        ),
        "".join(f"  {line}\n" for line in PLAIN.splitlines()),
        '  kind: Secret\n  x: "\nkind: ConfigMap\nmetadata:\n  name: one\n  "\n',
        '{"kind": "ConfigMap", "metadata": {"name": "one"}}\n',
        "--- {kind: ConfigMap, metadata: {name: one}}\n",
        PLAIN.replace("kind: ConfigMap", "x: a\x85kind: ConfigMap"),
        "- kind: ConfigMap\n",
        f"%YAML 1.1\n---\n{PLAIN}",
    ],
)
def test_any_other_spelling_is_left_to_the_parser(text: str) -> None:
    assert head_of(text) is None


LINES = [
    "kind: A",
    "kind: B",
    '"kind": C',
    "kind: 'D'",
    "kind : E",
    "? kind",
    ": F",
    "metadata:",
    "metadata: {name: a}",
    "  name: a",
    "  name: b",
    '  "name": c',
    "  'name' : d",
    "    name: e",
    "  labels:",
    "    x: y",
    "  x: |",
    "  x: 'z",
    "  '",
    'x: "',
    '"',
    "y: >-",
    "  text",
    "- name: f",
    "# comment",
    "",
    "---",
    "<<: *a",
    "a: &a {kind: G}",
    "  <<: {name: g}",
    "\tname: h",
    "kind: y",
    "  name: 0x1",
    "  name:",
    "    i",
    "kind:",
    "  Z",
    "  name: j # k",
    "\r",
    "spec: {",
    "}",
    "x: [",
    "]",
    "  x: {name: l,",
    "  name: m}",
]


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_whatever_the_lines_a_head_that_is_given_is_the_parsers(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    head = head_of(text)
    if head is None:
        return
    try:
        value = reading.load(text)
    except YamlError:
        return
    assert value is None or isinstance(value, dict)
    assert head == Head.of(value)
