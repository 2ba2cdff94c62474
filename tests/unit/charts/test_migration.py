"""How values files of SchedMD's charts are compared with what they must become."""

from typing import Any

import pytest

from sidecars.workloads import names
from tests.charts import migration

BASE: dict[str, Any] = {
    "always": ["Controller/STEM"],
    "objects": {"Secret/STEM-key": {"key": "generated"}},
    "kinds": {
        "Controller": {"slurmKeyRef": {"name": "STEM-key"}},
        "NodeSet": {"replicas": 1, "template": {"spec": {"hostname": "KEY-"}}},
    },
}


def custom(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


CONTROLLER = custom("Controller", "slurm", {"slurmKeyRef": {"name": "slurm-key"}})


def found(expected: dict[str, Any], *manifests: dict[str, Any]) -> list[str]:
    return migration.object_problems(
        list(manifests), migration.wanted(expected, BASE, "slurm"), "slurm"
    )


def test_enough_files_describe_the_charts_from_1_0_to_1_2_each_with_one_kind_of_expectation() -> (
    None
):
    cases = migration.cases()
    assert len(cases) >= 60
    assert {"1.0", "1.1", "1.2"} <= {chart for case in cases for chart in case.expected["of"]}
    for case in cases:
        assert case.expected["about"].endswith("."), case.name
        assert len(case.expected.keys() & {"objects", "contains", "refused"}) <= 1, case.name


def test_what_is_empty_off_or_the_default_of_the_definition_means_the_same_as_nothing() -> None:
    spec = {
        "slurmKeyRef": {"name": "slurm-key"},
        "external": False,
        "ha": {"enabled": False, "backups": 3},
        "service": {},
    }
    assert found({}, custom("Controller", "slurm", spec, labels={"helm.sh/chart": "slurm-1"})) == []


def test_another_value_is_found_with_its_path() -> None:
    node_set = custom(
        "NodeSet", "slurm-worker-a", {"replicas": 2, "template": {"spec": {"hostname": "a-"}}}
    )
    assert found({"NodeSet/slurm-worker-a": {}}, CONTROLLER, node_set) == [
        "NodeSet/slurm-worker-a.replicas: 2, expected 1"
    ]


def test_a_value_too_many_is_found() -> None:
    spec = {"slurmKeyRef": {"name": "slurm-key"}, "clusterName": "a"}
    assert found({}, custom("Controller", "slurm", spec)) == [
        "Controller/slurm.clusterName: 'a', expected None"
    ]


def test_a_label_of_the_user_is_compared_and_one_of_the_chart_is_not() -> None:
    labels = {"app.kubernetes.io/part-of": "slurm", "team": "hpc"}
    assert found({}, custom("Controller", "slurm", CONTROLLER["spec"], labels=labels)) == [
        "Controller/slurm.metadata: {'labels': {'team': 'hpc'}}, expected None"
    ]


@pytest.mark.parametrize(
    ("expected", "manifests", "problem"),
    [
        ({}, [], "Controller/slurm: missing"),
        ({"Controller/slurm": None}, [CONTROLLER], "Controller/slurm: not expected"),
        (
            {},
            [custom("Controller", "slurm", CONTROLLER["spec"], namespace="other")],
            "Controller/slurm: in namespace other",
        ),
    ],
)
def test_an_object_too_many_too_few_or_elsewhere_is_found(
    expected: dict[str, Any], manifests: list[dict[str, Any]], problem: str
) -> None:
    assert found(expected, *manifests) == [problem]


def test_the_keys_of_a_generated_secret_are_compared_but_not_its_content() -> None:
    metadata = {"name": "slurm-key", "annotations": {names.GENERATE: "key"}}
    secret = {"kind": "Secret", "metadata": metadata, "data": {"key": "c2VjcmV0"}}
    assert found({"Secret/slurm-key": {}}, CONTROLLER, secret) == []
    assert found({"Secret/slurm-key": {"key": None, "other": "generated"}}, CONTROLLER, secret)


def test_a_refusal_must_have_exactly_the_expected_lines() -> None:
    received = [
        "Error: execution error at (x): the values can't be used:",
        "  a: wrong. Correct it.",
        "  b: wrong. Correct it.",
    ]
    assert (
        migration.refusal_problems(1, received, ["a: wrong. Correct it.", "b: wrong. Correct it."])
        == []
    )
    assert migration.refusal_problems(1, received, ["a: wrong. Correct it."]) == [
        "also reported: b: wrong. Correct it."
    ]
    assert "not reported: c" in migration.refusal_problems(1, received, ["c"])
    assert migration.refusal_problems(0, [], ["a"]) == ["taken, though it should be refused: ['a']"]
    assert migration.refusal_problems(1, ["Error: execution error at (x:1): a: b"], ["a: b"]) == []


HELM = "warning: cannot overwrite table with non table for slurm.image (map[tag:])"


def test_a_warning_of_helm_must_be_expected_and_an_expected_one_must_be_printed() -> None:
    received = [f"coalesce.go:286: {HELM}", f"coalesce.go:316: {HELM}"]
    assert migration.warning_problems(received, [HELM]) == []
    assert migration.warning_problems(received, []) == [f"unexpected: {HELM}"]
    assert migration.warning_problems([], [HELM]) == [f"not printed: {HELM}"]
