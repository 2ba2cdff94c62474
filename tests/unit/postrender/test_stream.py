"""Documents of a stream: byte for byte, in order, with their place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postrender.errors import PostrenderError
from postrender.stream import FILE_ANNOTATION, LARGEST, Stream, same

HELM_3 = """---
# Source: slurm/templates/a.yaml
kind: ConfigMap
metadata: {name: one}
---
# Source: slurm/templates/b.yaml
# HIDDEN: The Secret output has been suppressed
---
# Source: slurm/templates/c.yaml
kind: List
items:
- kind: Service
  metadata: {name: two}
- kind: Secret
  metadata:
    name: three
"""
HELM_4 = """kind: Service
metadata:
  name: one
  annotations:
    postrenderer.helm.sh/postrender-filename: 'slurm/templates/a.yaml'
---
kind: Pod
metadata:
  name: two
  annotations:
    helm.sh/hook: test
    postrenderer.helm.sh/postrender-filename: 'slurm/templates/b.yaml'
"""
PIECES = [
    "---\n",
    "--- \n",
    "---",
    "--- # x\n",
    "a: 1\n",
    "kind: ConfigMap\n",
    "# c\n",
    "\n",
    "  - x\n",
    "....\n",
    "é: '\n",
    "a",
    "\r\n",
    "----\n",
    "# Source: x/y.yaml\n",
    "--- {a: b}\n",
    "'---\n'",
    " ---\n",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5)).map("".join))
def test_a_stream_that_no_step_changes_is_written_as_it_was(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    if data.strip() and b"\0" not in data:
        assert Stream.read(data).written() == data


def test_documents_have_number_line_and_source() -> None:
    three, four = Stream.read(HELM_3.encode()), Stream.read(HELM_4.encode())
    assert [(it.number, it.line, it.source) for it in three.documents] == [
        (1, 1, "slurm/templates/a.yaml"),
        (2, 5, "slurm/templates/b.yaml"),
        (3, 8, "slurm/templates/c.yaml"),
    ]
    assert [(it.number, it.line, it.source) for it in four.documents] == [
        (1, 1, "slurm/templates/a.yaml"),
        (2, 6, "slurm/templates/b.yaml"),
    ]


def test_the_objects_of_a_list_are_objects_of_the_stream_and_comments_are_none() -> None:
    found = list(Stream.read(HELM_3.encode()).objects())
    assert [(it.kind, it.name) for it in found] == [
        ("ConfigMap", "one"),
        ("Service", "two"),
        ("Secret", "three"),
    ]
    assert (
        found[2].place("metadata", "name")
        == "document 3 (slurm/templates/c.yaml), line 16, Secret three"
    )
    assert found[0].place() == "document 1 (slurm/templates/a.yaml), line 3, ConfigMap one"


def test_only_the_changed_document_is_written_anew_and_keeps_its_comments_before_it() -> None:
    stream = Stream.read(HELM_3.encode())
    item = list(stream.objects())[1]
    item.replace({**item.value, "spec": {"on": "y"}})
    before, changed = stream.written().decode().split("# Source: slurm/templates/c.yaml\n")
    assert before == HELM_3.split("# Source: slurm/templates/c.yaml\n")[0]
    assert changed == (
        "kind: List\n"
        "items:\n"
        "- kind: Service\n"
        "  metadata:\n"
        "    name: two\n"
        "  spec:\n"
        '    "on": "y"\n'
        "- kind: Secret\n"
        "  metadata:\n"
        "    name: three\n"
    )


def test_a_document_that_is_replaced_by_an_equal_object_keeps_its_text() -> None:
    stream = Stream.read(HELM_3.encode())
    for it in stream.objects():
        it.replace(dict(reversed(it.value.items())))
    assert stream.written() == HELM_3.encode()


def test_a_change_that_is_taken_back_keeps_the_text() -> None:
    stream = Stream.read(HELM_3.encode())
    document = stream.documents[0]
    original = document.value
    assert original is not None
    document.replace({**original, "data": {}})
    assert stream.written() != HELM_3.encode()
    document.replace(dict(original))
    assert stream.written() == HELM_3.encode()


def test_new_objects_have_the_source_of_the_document_that_they_come_from() -> None:
    made = {"kind": "Pod", "metadata": {"name": "new"}}
    three, four = Stream.read(HELM_3.rstrip("\n").encode()), Stream.read(HELM_4.encode())
    three.insert_after(three.documents[2], [made])
    four.insert_after(four.documents[0], [made, made])
    assert three.written().decode() == (
        f"{HELM_3}---\n# Source: slurm/templates/c.yaml\nkind: Pod\nmetadata:\n  name: new\n"
    )
    assert [
        it.metadata.get("annotations", {}).get(FILE_ANNOTATION)
        for it in Stream.read(four.written()).objects()
    ] == [
        "slurm/templates/a.yaml",
        "slurm/templates/a.yaml",
        "slurm/templates/a.yaml",
        "slurm/templates/b.yaml",
    ]


def test_the_document_after_a_removed_first_one_stands_at_the_beginning() -> None:
    stream = Stream.read(HELM_4.encode())
    stream.insert_after(stream.documents[0], [{"kind": "Pod", "metadata": {"name": "new"}}])
    stream.remove(stream.documents[0])
    assert [it.name for it in Stream.read(stream.written()).objects()] == ["new", "two"]


@pytest.mark.parametrize("text", ["", "\n", " \n"])
def test_nothing_is_never_written(text: str) -> None:
    with pytest.raises(PostrenderError, match="nothing would be left"):
        Stream.read(text.encode()).written()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"---\n# Source: a/b.yaml\na: 1\n---\n# Source: a/c.yaml\nb: \xff\n",
            r"document 2 \(a/c.yaml\), line 6: no UTF-8 text \(byte 0xff\)",
        ),
        (b"a: 1\n---\nb: \0\n", "document 2, line 3: binary data"),
        (b"\x7fELF\x02\x01\x01\0", "document 1, line 1: binary data"),
        (b"a: 1\n---\n" + b"x" * LARGEST, "document 2, line 3: the stream is larger than 64 MiB"),
    ],
    ids=["no UTF-8", "NUL", "program", "too large"],
)
def test_what_is_no_stream_is_refused_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(PostrenderError, match=message):
        Stream.read(data)


def test_a_fault_in_a_document_names_its_place() -> None:
    stream = Stream.read(b"---\n# Source: a/b.yaml\nkind: A\n---\n# Source: a/c.yaml\nkind: {\n")
    with pytest.raises(PostrenderError, match=r"document 2 \(a/c.yaml\), line 6: .*expected"):
        list(stream.objects())
    with pytest.raises(
        PostrenderError, match=r"document 1, line 1: a Kubernetes object is a mapping, not a list"
    ):
        list(Stream.read(b"- a\n").objects())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kind: NodeSet\nmetadata: 3\n", "line 2, NodeSet : metadata is a number"),
        (
            "kind: NodeSet\nmetadata:\n  name: a\n  annotations: [b]\n",
            "line 4, NodeSet a: metadata.annotations is a list",
        ),
        ("kind: NodeSet\nmetadata:\n  labels: b\n", "line 3, NodeSet : metadata.labels is text"),
        ("kind: Secret\nmetadata:\n  name: a\ndata: hidden\n", "line 4, Secret a: data is text"),
        (
            "kind: List\nitems:\n- kind: ConfigMap\n  data: [a]\n",
            "line 4, ConfigMap : data is a list",
        ),
    ],
)
def test_an_object_without_the_mappings_that_all_steps_read_is_refused(
    text: str, fault: str
) -> None:
    stream = Stream.read(text.encode())
    with pytest.raises(PostrenderError, match=rf"document 1, {fault}: make it a mapping"):
        list(stream.objects())


def test_values_of_different_types_are_not_the_same() -> None:
    assert same({"a": [1, "x"], "b": None}, {"b": None, "a": [1, "x"]})
    for one, other in (
        (1, True),
        (1, 1.0),
        ([], {}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1], [1, 2]),
        (None, ""),
    ):
        assert not same(one, other)


def test_the_place_of_a_document_is_its_first_line_with_content() -> None:
    found = Stream.read(b"a: 1\n---\n# of this one\n\n# more\nb: 2\n---\n# alone\n").documents
    assert [it.place() for it in found] == [
        "document 1, line 1",
        "document 2, line 6",
        "document 3, line 7",
    ]
