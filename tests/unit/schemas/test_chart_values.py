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
    return jsonschema.Draft7Validator(chart_values.json_schema(chart)).is_valid(
        sources.merged(defaults, values)
    )


def rules_of(chart: str) -> dict[str, Any]:
    """The content of the chart's values-rules.json."""
    rules: dict[str, Any] = json.loads(chart_values.rules_text(chart, ROOT / "charts" / chart))
    return rules


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
        {
            "global": {
                "imageRegistry": "registry.example:5000/mirror",
                "imagePullSecrets": ["a", {"name": "b"}],
            }
        },
        {"global": {"imageRepository": "registry.example:5000/team/slurm"}},
        {"global": {"imageRepository": "[fd00::1]:5000/team"}},
        {"global": {"imageRepository": None}},
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
        {"global": {"imageRepository": "https://registry.example/team"}},
        {"global": {"imageRepository": "registry.example/team/slurmd:26.05"}},
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
def test_each_pattern_has_a_remedy_because_nobody_understands_a_regular_expression(
    chart: str,
) -> None:
    patterns = [
        schema for schema in schemas(chart_values.json_schema(chart)) if "pattern" in schema
    ]
    assert [schema["pattern"] for schema in patterns if not schema.get("remedy")] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_remedy_is_a_sentence(chart: str) -> None:
    remedies = {
        schema["remedy"]
        for schema in schemas(chart_values.json_schema(chart))
        if "remedy" in schema
    }
    assert [
        remedy for remedy in remedies if not (remedy[0].isupper() and remedy.endswith("."))
    ] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_the_schema_that_helm_reads_refuses_nothing_because_its_messages_are_not_ours(
    chart: str,
) -> None:
    described = json.loads(chart_values.description_text(chart))
    words = {word for schema in schemas(described) for word in schema}
    assert words <= {
        "$schema",
        "title",
        "description",
        "properties",
        "items",
        "additionalProperties",
    }


@pytest.mark.parametrize("chart", chart_values.charts())
def test_the_rules_that_the_chart_checks_refuse_what_the_schema_refuses(chart: str) -> None:
    rules = rules_of(chart)
    jsonschema.Draft7Validator.check_schema(rules)
    assert not jsonschema.Draft7Validator(rules).is_valid({"no such key": 1})
    assert not any("example" in schema for schema in schemas(rules))


@pytest.mark.parametrize("chart", chart_values.charts())
def test_an_editor_checks_values_files_against_the_rules_and_shows_descriptions(chart: str) -> None:
    folder = ROOT / "charts" / chart
    text = chart_values.values_text(chart, folder)
    assert text.startswith("# yaml-language-server: $schema=values-rules.json\n")
    rules = rules_of(chart)
    validator = jsonschema.Draft7Validator(rules)
    files = [*folder.glob("ci/*.yaml"), *folder.glob("examples/*.yaml"), folder / "values.yaml"]
    for path in files:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        assert [error.message for error in validator.iter_errors(values)] == [], path
    described = [rule for rule in rules["properties"].values() if not rule.get("former")]
    assert all("description" in rule or "$ref" in rule for rule in described)


@pytest.mark.parametrize(
    "values",
    [
        {"controler": {}},
        {"restapi": {"replicas": "four"}},
        {"imagePullPolicy": "Sometimes"},
        {"nodesets": {"a": {"powerSaving": {"price": 0}}}},
        {"nodesets": {"a": {"autoscaling": {"min": 1}}}},
    ],
)
def test_an_editor_refuses_what_the_chart_refuses(values: dict[str, Any]) -> None:
    assert not jsonschema.Draft7Validator(rules_of("slurm")).is_valid(values)


def test_a_required_key_with_a_default_may_be_missing_in_a_values_file_and_not_in_the_chart() -> (
    None
):
    rules = rules_of("slurm")
    assert "required" not in rules
    assert {"controller", "nodesetDefaults"} <= set(rules["kept"])
    storage = rules["properties"]["accounting"]["properties"]["storageConfig"]
    assert (storage["kept"], "required" in storage) == (["host", "passwordKeyRef"], False)
    assert not taken("slurm", {"accounting": {"storageConfig": {"host": None}}})


@pytest.mark.parametrize("chart", chart_values.charts())
def test_a_reference_leads_to_a_rule_in_one_step_because_the_chart_follows_only_one(
    chart: str,
) -> None:
    rules = rules_of(chart)
    assert [name for name, rule in rules["definitions"].items() if "$ref" in rule] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_a_reference_has_no_words_beside_it_because_the_chart_would_ignore_them(chart: str) -> None:
    rules = rules_of(chart)
    beside = [rule.keys() - {"description"} for rule in schemas(rules) if "$ref" in rule]
    assert [words for words in beside if words != {"$ref"}] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_row_of_the_page_has_a_description_and_maps_and_lists_have_an_example(
    chart: str,
) -> None:
    page = chart_values.page(chart, ROOT / "charts" / chart)
    rows = [
        re.split(r"(?<!\\) \| ", line.strip("| "))
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    paths = {row[0].strip("`") for row in rows}
    assert [row[0] for row in rows if len(row) != 4 or not row[3].strip()] == []
    explained = {path for path in paths if any(other.startswith(f"{path}.") for other in paths)}
    structured = [
        row
        for row in rows
        if re.search("object|array", row[1]) and row[0].strip("`") not in explained
    ]
    assert [row[0] for row in structured if not re.search(r" Example: (`|\[)", row[3])] == []


@pytest.mark.parametrize("chart", chart_values.charts())
def test_each_example_is_valid(chart: str) -> None:
    schema = chart_values.json_schema(chart)
    with_example = [each for each in schemas(schema) if "example" in each]
    assert with_example
    for each in with_example:
        rule = {**each, "definitions": schema["definitions"]}
        problems = [
            error.message for error in jsonschema.Draft7Validator(rule).iter_errors(each["example"])
        ]
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
    image = "`{repository: registry.invalid/slurm-charts/sidecars, tag: '', digest: ''}`"
    assert f"| `operator.image` | string or object | {image} |" in page
    assert "| `operator.leaderElection` | boolean | `true` |" in page
    assert "`operator.image.repository`" not in page


@pytest.mark.parametrize("chart", chart_values.charts())
def test_a_block_of_yaml_on_the_page_has_the_example_of_its_key_as_it_is(chart: str) -> None:
    page = chart_values.page(chart, ROOT / "charts" / chart)
    blocks = re.findall(
        r"^### Example of `([^`]+)`\n\n```yaml\n(.*?)```$", page, re.MULTILINE | re.DOTALL
    )
    linked = re.findall(r"Example: \[below\]\(#example-of-([a-z]+)\)", page)
    assert [path.replace(".", "").lower() for path, _ in blocks] == linked
    for path, block in blocks:
        schema, value = chart_values.load(chart), yaml.safe_load(block)
        for key in path.split("."):
            schema, value = schema["properties"][key], value[key]
        assert value == schema["example"]


BEGIN = {
    "slurm": ["nodesets", "loginsets", "partitions", "users"],
    "slurm-operator": ["operator"],
    "slurm-exporter": ["cluster", "exporter"],
    "slurm-bridge": ["cluster", "clusterNamespace", "tenants"],
}
"""What a new installation sets, by chart."""


@pytest.mark.parametrize("chart", BEGIN)
def test_the_values_begin_with_what_a_new_installation_sets_and_end_with_additions(
    chart: str,
) -> None:
    keys = list(yaml.safe_load(chart_values.values_text(chart, ROOT / "charts" / chart)))
    assert keys[: len(BEGIN[chart])] == BEGIN[chart]
    assert keys[-1] == "extraObjects"


@pytest.mark.parametrize("chart", chart_values.charts())
def test_the_page_has_the_sections_and_the_order_of_the_values(chart: str) -> None:
    text, page = (
        chart_values.values_text(chart, ROOT / "charts" / chart),
        chart_values.page(chart, ROOT / "charts" / chart),
    )
    assert re.findall(
        r"^## ([^`].*)$", page.partition("\n## Examples\n")[0], re.MULTILINE
    ) == re.findall(r"^# --- (.*) ---$", text, re.MULTILINE)
    rows = re.findall(r"^\| `([^.`]+)` \|", page, re.MULTILINE)
    keys = list(yaml.safe_load(text))
    assert [key for key in rows if key in keys] == keys
    headings = re.findall(r"^##+ `([^`]+)`$", page, re.MULTILINE)
    assert [key for key in headings if key in keys] == keys, "a heading for each, to link to"


def test_a_script_on_the_page_keeps_its_lines() -> None:
    page = chart_values.page("slurm", ROOT / "charts" / "slurm")
    assert "#!/bin/sh\n" in page
    assert not re.search(r"#!/bin/\w+ (?!-)", page)


def test_the_page_links_the_pages_that_descriptions_name() -> None:
    bridge = chart_values.page("slurm-bridge", ROOT / "charts" / "slurm-bridge")
    title = (ROOT / "docs/bridge-install.md").read_text().splitlines()[0].removeprefix("# ")
    assert f"[{title}](../bridge-install.md) describes" in bridge
    metrics = chart_values.page("slurm-exporter", ROOT / "charts" / "slurm-exporter")
    assert "(metrics.md) describes" in metrics
    for chart in chart_values.charts():
        assert " docs/" not in chart_values.page(chart, ROOT / "charts" / chart)


@pytest.mark.parametrize(
    ("chart", "daemon"),
    [
        ("slurm-operator", "operator"),
        ("slurm-bridge", "controllers"),
        ("slurm-exporter", "exporter"),
        ("slurm", "restapi.podSpec"),
        ("slurm", "nodesets.gpu.podSpec"),
    ],
)
def test_tolerations_that_compare_numbers_are_taken_with_the_number_as_text(
    chart: str, daemon: str
) -> None:
    def with_value(value: str | int) -> dict[str, Any]:
        found: dict[str, Any] = {
            "tolerations": [{"key": "sla", "operator": "Gt", "value": value, "effect": "NoExecute"}]
        }
        for part in reversed(daemon.split(".")):
            found = {part: found}
        return found

    assert taken(chart, with_value("950"))
    assert not taken(chart, with_value(950)), "the API server refuses it"
