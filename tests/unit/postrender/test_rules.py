"""Rules of custom resources that are evaluated without an API server.

The resources are those that a real API server accepts and refuses (tests/integration/test_crds.py).
"""

from typing import Any

import pytest

from postrender import rules
from postrender.errors import PostrenderError
from postrender.expand.cluster import typed
from schemas import cel_rules, definitions, sources
from tests.support.custom_resources import (
    CHANGES_REFUSED,
    CHANGES_TAKEN,
    NAMES,
    REFUSED,
    TAKEN,
    Spec,
    resource,
)

MESSAGES = {(kind, rule.message) for kind in definitions.KINDS for rule in cel_rules.rules(kind)}
BY_RULE = [
    (kind, spec, part) for kind, spec, part in REFUSED if any(part in text for _, text in MESSAGES)
]


@pytest.mark.parametrize(("kind", "changes"), TAKEN)
def test_a_resource_that_the_api_server_accepts_breaks_no_rule(kind: str, changes: Spec) -> None:
    assert list(rules.broken(kind, resource(kind, changes))) == []


def _is_read(manifest: dict[str, Any]) -> bool:
    """Whether the types and the required fields are right."""
    try:
        typed(manifest)
    except PostrenderError:
        return False
    return True


@pytest.mark.parametrize(("kind", "changes"), [(kind, changes) for kind, changes, _ in REFUSED])
def test_a_resource_that_the_api_server_refuses_is_refused_without_it(
    kind: str, changes: Spec
) -> None:
    refused = resource(kind, changes)
    assert not _is_read(refused) or list(rules.broken(kind, refused))


@pytest.mark.parametrize(("kind", "changes", "part"), BY_RULE)
def test_a_resource_that_the_api_server_refuses_by_a_rule_breaks_that_rule(
    kind: str, changes: Spec, part: str
) -> None:
    assert [text for _, text in rules.broken(kind, resource(kind, changes)) if part in text]


@pytest.mark.parametrize(("kind", "good", "bad"), NAMES)
def test_a_name_that_the_api_server_refuses_breaks_the_rule_of_names(
    kind: str, good: str, bad: str
) -> None:
    assert list(rules.broken(kind, resource(kind, {}, good))) == []
    assert [place for place, _ in rules.broken(kind, resource(kind, {}, bad))] == [()]


def changed(kind: str, before: Spec, after: Spec) -> set[str]:
    """The rules that a merge patch breaks."""
    old = resource(kind, before)["spec"]
    new = {key: it for key, it in sources.merged(old, after).items() if it is not None}
    return {message for _, message in rules.refused_changes(kind, old, new)}


@pytest.mark.parametrize(("kind", "before", "after"), CHANGES_TAKEN)
def test_a_change_that_the_api_server_accepts_breaks_no_rule(
    kind: str, before: Spec, after: Spec
) -> None:
    assert changed(kind, before, after) == set()


@pytest.mark.parametrize(("kind", "before", "after", "part"), CHANGES_REFUSED)
def test_a_change_that_the_api_server_refuses_breaks_the_rule(
    kind: str, before: Spec, after: Spec, part: str
) -> None:
    [message] = changed(kind, before, after)
    assert part in message


def test_each_rule_is_broken_by_a_resource_that_the_api_server_refuses() -> None:
    bad = [resource(kind, changes) for kind, changes, _ in BY_RULE]
    bad += [resource(kind, {}, name) for kind, _, name in NAMES]
    assert {
        (it["kind"], text) for it in bad for _, text in rules.broken(it["kind"], it)
    } >= MESSAGES


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("NodeSet", {"replicas": -1}, "spec.replicas: must be 0 or more"),
        ("NodeSet", {"replicas": 65_537}, "spec.replicas: must be 65536 or less"),
        (
            "NodeSet",
            {"scalingMode": "statefulset"},
            "spec.scalingMode: must be one of StatefulSet, DaemonSet",
        ),
        (
            "NodeSet",
            {"health": {"skip": ["disk", "A"]}},
            "spec.health.skip[1]: must match ^[a-z]([-a-z0-9]*[a-z0-9])?$",
        ),
        (
            "Controller",
            {"topologies": 9 * [{"name": "a", "tree": {"labels": ["l"]}}]},
            "spec.topologies: must have 8 items or fewer",
        ),
        (
            "Controller",
            {"clusterName": 41 * "c"},
            "spec.clusterName: must have 40 characters or fewer",
        ),
        (
            "Controller",
            {"prologScriptRefs": [{"name": ""}]},
            "spec.prologScriptRefs[0].name: must not be empty",
        ),
    ],
)
def test_a_value_beyond_a_bound_is_named_with_its_place_and_the_bound(
    kind: str, changes: Spec, message: str
) -> None:
    assert message in {text for _, text in rules.messages(kind, resource(kind, changes))}


@pytest.mark.timeout(10)
def test_many_words_that_might_be_one_or_several_are_read_in_one_pass() -> None:
    wish = {"powerSaving": {"enabled": True, "node": 2_000 * "a=a" + '"'}}
    assert ("spec", "powerSaving", "node") in dict(
        rules.broken("NodeSet", resource("NodeSet", wish))
    )


def test_the_place_is_that_of_the_value_or_of_the_field_that_the_rule_names() -> None:
    topologies = [{"name": "a", "block": {"label": "l"}}, {"name": "b"}]
    assert [
        place
        for place, _ in rules.broken(
            "Controller", resource("Controller", {"topologies": topologies})
        )
    ] == [("spec", "topologies", 1)]
    assert [place for place, _ in rules.broken("Token", resource("Token", {"lifetime": "1s"}))] == [
        ("spec", "lifetime")
    ]


def test_an_object_of_another_kind_has_no_rules() -> None:
    assert list(rules.broken("Pod", {"kind": "Pod"})) == []


@pytest.mark.timeout(10)
def test_a_long_text_with_many_quotes_is_read_in_one_pass() -> None:
    changes = {"extraConf": 'A="b" ' * 1000 + "foo"}
    assert [place for place, _ in rules.broken("NodeSet", resource("NodeSet", changes))] == [
        ("spec", "extraConf")
    ]
    line_end = {"health": {"checks": {"a\n": "#!/bin/sh"}}}
    assert [place[-1] for place, _ in rules.broken("NodeSet", resource("NodeSet", line_end))] == [
        "checks"
    ]
