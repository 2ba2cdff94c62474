"""The rules of custom resources: Helm refuses values that would break one, before anything is
installed.
"""

import json
import re
from pathlib import Path

import pytest
import yaml

from schemas import cel_rules, definitions

CHART = Path(__file__).parents[3] / "charts" / "slurm"
SUITE = CHART / "tests" / "rules_test.yaml"
IMPOSSIBLE = {
    "a reference can't leave its namespace, remove this field": "references of the values have no "
    "namespace",
    "slurmKeyRef is required unless external is true": "the chart always sets it",
    "jwtKeyRef is required unless external is true": "the chart always sets it",
    "jwtKeyRef is required": "the chart always sets it",
    "storageConfig is required unless external is true": "the chart always sets it",
    "sssdConfRef.name is required": "the chart always sets it",
    "ssh.sssdConfRef.name is required when ssh.enabled is true": "the chart always sets it",
}
"""Rules that no values of the chart can break, each with the reason."""
NAMES = "the name of a Controller, an Accounting, a RestApi or a LoginSet"
"""The chart derives all of these names from one, and has one test for their rules."""


@pytest.mark.parametrize("kind", definitions.KINDS)
def test_helm_refuses_values_that_break_a_rule(kind: str) -> None:
    tests = {test["it"] for test in yaml.safe_load(SUITE.read_text(encoding="utf-8"))["tests"]}
    assert NAMES in tests
    own_name = re.compile(rf"the name of an? {kind} must")
    rules = {
        it.message
        for it in cel_rules.rules(kind)
        if kind == "NodeSet" or not own_name.match(it.message)
    }
    assert rules - IMPOSSIBLE.keys() - tests == set()


def test_a_rule_about_a_change_is_left_out() -> None:
    assert not [
        it
        for kind in definitions.KINDS
        for it in cel_rules.rules(kind)
        if "after deployment" in it.message
    ]


def test_the_chart_checks_each_rule_of_what_it_renders_but_those_of_references() -> None:
    text = cel_rules.template_text()
    rules = [it for kind in cel_rules.RENDERED for it in cel_rules.rules(kind)]
    assert {
        it.message
        for it in rules
        if it.message not in text and it.message.replace('"', '\\"') not in text
    } == {"a reference can't leave its namespace, remove this field"}


def test_rules_of_the_definitions_have_no_remedies_which_kubernetes_does_not_know() -> None:
    assert '"remedy":' not in json.dumps(definitions.custom_resource_definitions())
    assert {it.remedy for it in cel_rules.rules("NodeSet") if it.path[-1:] != ("namespace",)} - {
        "Correct the values."
    }
