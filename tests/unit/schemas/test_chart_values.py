"""JSON Schemas of charts' values, and the pages about them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from schemas import chart_values, markdown, sources

ROOT = Path(__file__).parents[3]


def taken(chart: str, values: dict[str, Any]) -> bool:
    """Whether the schema takes the values over the chart's defaults."""
    defaults = yaml.safe_load((ROOT / "charts" / chart / "values.yaml").read_text())
    return jsonschema.Draft7Validator(chart_values.json_schema(chart)).is_valid(sources.merged(defaults, values))


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
        {"operator": {"securityContext": {"capabilities": {"drop": ["ALL"]}}}},
        {"operator": {"affinity": None, "tolerations": [{"operator": "Exists"}]}},
        {"webhook": {"validating": {"failurePolicy": "Fail"}}, "certManager": {"enabled": True}},
        {"global": {"theirs": 1}},
        {"global": {"imageRegistry": "registry.example:5000/mirror", "imagePullSecrets": ["a", {"name": "b"}]}},
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
        {"operator": {"securityContext": {"capability": {"drop": ["ALL"]}}}},
        {"operator": {"tolerations": [{"operator": "Exits"}]}},
        {"operator": {"resources": {"limit": {"cpu": 1}}}},
        {"operator": {"image": {"repo": "a"}}},
        {"operator": {"serviceAccount": {"created": True}}},
        {"operator": {"replicas": "two"}},
        {"operator": {"healthPort": 65536}},
        {"operator": {"nodesetWorkers": 0}},
        {"operator": {"logLevel": "loud"}},
        {"imagePullPolicy": "Sometimes"},
        {"imagePullSecrets": [{}]},
        {"global": {"imageRegistry": "https://registry.example"}},
        {"global": {"imagePullSecrets": [{}]}},
    ],
)
def test_typos_and_wrong_types_are_refused(values: dict[str, Any]) -> None:
    assert not taken("slurm-operator", values)


@pytest.mark.parametrize(
    "values",
    [
        {"slurmKeyRef": {}, "jwtHs256KeyRef": None, "priorityClassName": None},
        {"nodesets": {"a": {"useResourceLimits": True, "taintKubeNodes": False}}},
        {"loginsets": {"a": {"sssdConf": None}}},
    ],
)
def test_former_keys_are_taken_while_they_mean_nothing(values: dict[str, Any]) -> None:
    assert taken("slurm", values)


@pytest.mark.parametrize(
    "values",
    [
        {"slurmKeyRef": {"name": "a"}},
        {"priorityClassName": "a"},
        {"nodesets": {"a": {"useResourceLimits": False}}},
        {"nodesets": {"a": {"image": "a:b"}}},
    ],
)
def test_former_keys_are_refused_when_they_mean_something(values: dict[str, Any]) -> None:
    assert not taken("slurm", values)


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_pattern_has_a_remedy_because_nobody_understands_a_regular_expression(chart: str) -> None:
    patterns = [schema for schema in schemas(chart_values.json_schema(chart)) if "pattern" in schema]
    assert [schema["pattern"] for schema in patterns if not schema.get("remedy")] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_remedy_is_a_sentence(chart: str) -> None:
    remedies = {schema["remedy"] for schema in schemas(chart_values.json_schema(chart)) if "remedy" in schema}
    assert [remedy for remedy in remedies if not (remedy[0].isupper() and remedy.endswith("."))] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_the_schema_that_helm_reads_refuses_nothing_because_its_messages_are_not_ours(chart: str) -> None:
    described = json.loads(chart_values.description_text(chart))
    words = {word for schema in schemas(described) for word in schema}
    assert words <= {"$schema", "title", "description", "properties", "items", "additionalProperties"}


@pytest.mark.parametrize("chart", chart_values.charts())
def test_the_rules_that_the_chart_checks_refuse_what_the_schema_refuses(chart: str) -> None:
    rules = json.loads(chart_values.rules_text(chart))
    jsonschema.Draft7Validator.check_schema(rules)
    assert not jsonschema.Draft7Validator(rules).is_valid({"no such key": 1})
    assert not any("description" in schema for schema in schemas(rules))


@pytest.mark.parametrize("chart", chart_values.charts())
def test_a_reference_leads_to_a_rule_in_one_step_because_the_chart_follows_only_one(chart: str) -> None:
    rules = json.loads(chart_values.rules_text(chart))
    assert [name for name, rule in rules["definitions"].items() if "$ref" in rule] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_a_reference_has_no_words_beside_it_because_the_chart_would_ignore_them(chart: str) -> None:
    rules = json.loads(chart_values.rules_text(chart))
    assert [rule for rule in schemas(rules) if "$ref" in rule and len(rule) > 1] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_row_of_the_page_has_a_description_and_maps_and_lists_have_an_example(chart: str) -> None:
    page = chart_values.page(chart, ROOT / "charts" / chart)
    rows = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in page.splitlines() if line.startswith("| `")]
    paths = {row[0].strip("`") for row in rows}
    assert [row[0] for row in rows if len(row) != 4 or not row[3].strip()] == []
    explained = {path for path in paths if any(other.startswith(f"{path}.") for other in paths)}
    structured = [row for row in rows if re.search("object|array", row[1]) and row[0].strip("`") not in explained]
    assert [row[0] for row in structured if " Example: `" not in row[3]] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_example_is_valid(chart: str) -> None:
    schema = chart_values.json_schema(chart)
    with_example = [each for each in schemas(schema) if "example" in each]
    assert with_example
    for each in with_example:
        rule = {**each, "definitions": schema["definitions"]}
        problems = [error.message for error in jsonschema.Draft7Validator(rule).iter_errors(each["example"])]
        assert problems == [], each["example"]


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all schemas in it."""
    if isinstance(schema, dict):
        yield schema
        for word in ("properties", "definitions"):
            for child in schema.get(word, {}).values():
                yield from schemas(child)
        for word in ("items", "additionalProperties", "propertyNames"):
            yield from schemas(schema.get(word))


def test_a_default_is_shown_in_full_unless_it_has_several_lines() -> None:
    assert markdown.code([{"key": "k" * 80}]) == f"`[{{key: {'k' * 80}}}]`"
    assert markdown.code("w" * 80) == f"`{'w' * 80}`"
    assert markdown.code("[domain]\nid = ldap\n") == "see values.yaml"


def test_the_page_takes_defaults_from_the_chart() -> None:
    page = chart_values.page("slurm-operator", ROOT / "charts" / "slurm-operator")
    image = "`{repository: ghcr.io/slurm-charts/sidecars, tag: '', digest: ''}`"
    assert f"| `operator.image` | string or object | {image} |" in page
    assert "| `operator.leaderElection` | boolean | `true` |" in page
    assert "`operator.image.repository`" not in page
