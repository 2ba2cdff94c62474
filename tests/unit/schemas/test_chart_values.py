"""JSON Schemas of charts' values, and the pages about them."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from schemas import chart_values

ROOT = Path(__file__).parents[3]


def taken(chart: str, values: dict[str, Any]) -> bool:
    return jsonschema.Draft7Validator(chart_values.json_schema(chart)).is_valid(values)


@pytest.mark.parametrize("chart", chart_values.charts())
def test_the_defaults_of_a_chart_fit_its_schema(chart: str) -> None:
    values = yaml.safe_load((ROOT / "charts" / chart / "values.yaml").read_text()) or {}
    schema = chart_values.json_schema(chart)
    jsonschema.Draft7Validator.check_schema(schema)
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(values)] == []


@pytest.mark.parametrize(
    "values",
    [
        {"operator": {"image": {"repository": "a", "tag": None}}},
        {"operator": {"image": "a:b"}},
        {"operator": {"namespaces": "a,b"}},
        {"operator": {"namespaces": ["a"]}},
        {"operator": {"nodeSelector": None}},
        {"operator": {"securityContext": {"anything": {"goes": 1}}}},
        {"webhook": {"validating": {"failurePolicy": "Fail"}}, "certManager": {"enabled": True}},
        {"global": {"theirs": 1}},
        {"extraObjects": [{"kind": "A"}, "kind: B"]},
    ],
)
def test_what_means_something_is_taken(values: dict[str, Any]) -> None:
    assert taken("slurm-operator", values)


@pytest.mark.parametrize(
    "values",
    [
        {"operators": {}},
        {"operator": {"replica": 1}},
        {"operator": {"image": {"repo": "a"}}},
        {"operator": {"serviceAccount": {"created": True}}},
        {"operator": {"replicas": "two"}},
        {"operator": {"healthPort": 65536}},
        {"operator": {"nodesetWorkers": 0}},
        {"operator": {"logLevel": "loud"}},
        {"imagePullPolicy": "Sometimes"},
        {"imagePullSecrets": [{}]},
    ],
)
def test_typos_and_wrong_types_are_refused(values: dict[str, Any]) -> None:
    assert not taken("slurm-operator", values)


def test_the_page_takes_defaults_from_the_chart() -> None:
    page = chart_values.page("slurm-operator", ROOT / "charts" / "slurm-operator")
    assert "| `operator.image` | string or object | see values.yaml |" in page
    assert "| `operator.leaderElection` | boolean | `true` |" in page
    assert "`operator.image.repository`" not in page
