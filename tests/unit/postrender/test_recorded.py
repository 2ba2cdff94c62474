"""The recorded streams of both Helms: what has no step to do with stays, what has is changed
alone.
"""

from typing import Any

import pytest

from postrender.report import Run
from postrender.stream import FILE_ANNOTATION, Stream
from tests.support.recorded_streams import FOLDER, HELMS
from tests.support.streams import applied

KINDS = {
    "helm3": [
        "CustomResourceDefinition", "Secret", "ConfigMap", "ConfigMap", "Deployment", "", "",
        "List",
    ],
    "helm4": [
        "ConfigMap", "ServiceAccount", "Pod", "Secret", "ConfigMap", "ConfigMap", "Deployment",
    ],
}  # fmt: skip
STEPS: list[dict[str, Any]] = [
    {"labels": {"set": {"team": "on"}, "select": [{"kind": "Deployment"}], "required": True}},
    {"images": {"rewrite": {"ghcr.io": "registry.example.com"}}},
    {
        "patch": {
            "merge": {"data": {"number": "1e4"}},
            "select": [{"name": "in-a-list", "kind": "ConfigMap"}],
        }
    },
]


@pytest.fixture(params=sorted(HELMS))
def helm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def recorded(helm: str) -> Stream:
    return Stream.read((FOLDER / f"{helm}.yaml").read_bytes())


def test_every_document_is_understood(helm: str) -> None:
    stream = recorded(helm)
    assert [it.head.kind for it in stream.documents] == KINDS[helm]
    assert {it.source.partition("/")[0] for it in stream.documents} == {"shapes"}
    names = [it.name for it in stream.objects()]
    assert names.count("in-a-list") == 2
    assert "second-of-its-file" in names


def test_a_stream_stays_as_it_is_without_a_step_and_with_steps_that_select_nothing(
    helm: str,
) -> None:
    text = (FOLDER / f"{helm}.yaml").read_bytes()
    assert recorded(helm).written() == text
    assert (
        applied(
            recorded(helm), {"labels": {"set": {"a": "b"}, "select": [{"name": "x*"}]}}
        ).written()
        == text
    )
    severity = dict.fromkeys(("secret-object",), "ignore")
    assert (
        applied(
            recorded(helm), {"check": {}}, {"secrets": {"severity": severity}}, run=Run()
        ).written()
        == text
    )


def test_only_what_is_selected_changes_and_a_second_run_changes_nothing(helm: str) -> None:
    before = recorded(helm)
    after = applied(recorded(helm), *STEPS)
    assert len(after.documents) == len(before.documents)
    changed = [
        (old.head.kind, old.head.name)
        for old, new in zip(before.documents, after.documents, strict=True)
        if old.text.strip() != new.text.strip()
    ]
    in_a_list = ("ConfigMap", "in-a-list") if helm == "helm4" else ("List", "")
    assert sorted(changed) == sorted([("Deployment", "plain"), in_a_list])
    assert (
        applied(applied(recorded(helm), *STEPS), *STEPS).written()
        == applied(recorded(helm), *STEPS).written()
    )


def test_helm_4_finds_the_file_of_each_object(helm: str) -> None:
    for it in applied(
        recorded(helm), *STEPS, {"annotations": {"set": {"a": "b"}, "remove": [FILE_ANNOTATION]}}
    ).objects():
        assert (FILE_ANNOTATION in it.metadata.get("annotations", {})) is (helm == "helm4")
