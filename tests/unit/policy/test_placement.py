"""Which Kubernetes nodes a pod of DaemonSet mode belongs on."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from sidecars.objects import Node, Taint
from sidecars.policy.placement import Place, Rules, tolerated, with_distinct_names
from sidecars.workloads import names
from sidecars.workloads.nodeset.naming import is_hostname
from tests.support.builders import kube_node

NODE = kube_node("n1.example.com", {"labels": {"zone": "a", "gpus": "8"}})


def called(hostname: str) -> dict[str, Any]:
    return {"annotations": {names.HOSTNAME_OVERRIDE: hostname}}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }
    return {"affinity": affinity}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "a", "gpus": "4"}}, False),
        (required(label("zone", "In", "a", "b")), True),
        (required(label("zone", "NotIn", "a")), False),
        (required(label("rack", "NotIn", "a")), True),
        (required(label("zone", "Exists")), True),
        (required(label("zone", "DoesNotExist")), False),
        (required(label("gpus", "Gt", "4")), True),
        (required(label("gpus", "Lt", "4")), False),
        (required(label("zone", "Gt", "4")), False),
        (required(label("zone", "In", "b"), label("gpus", "In", "8")), True),
        (required({}), False),
        (required(), False),
        (
            required(
                {
                    "matchFields": [
                        {"key": "metadata.name", "operator": "In", "values": ["n1.example.com"]}
                    ]
                }
            ),
            True,
        ),
        (
            required(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
            ),
            False,
        ),
    ],
)
def test_a_pod_fits_where_its_selector_and_its_required_affinity_allow(
    spec: dict[str, Any], fits: bool
) -> None:
    place = Rules.of(spec).place(NODE)
    assert (place.should_run, place.may_stay) == (fits, fits)


@pytest.mark.parametrize(
    ("toleration", "yes"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "yes"}, False),
    ],
)
def test_a_toleration_tolerates_what_it_names(toleration: dict[str, Any], yes: bool) -> None:
    assert tolerated(Taint("gpu", "NoExecute", "yes"), [toleration]) is yes


@pytest.mark.parametrize(
    ("operator", "value", "taint", "yes"),
    [
        ("Gt", "950", "951", True),
        ("Gt", "950", "950", False),
        ("Gt", "-5", "-4", True),
        ("Lt", "950", "949", True),
        ("Lt", "950", "1000", False),
        ("Lt", "950", "0949", False),
        ("Lt", "ten", "9", False),
        ("Gt", "1", "9223372036854775808", False),
        ("Lt", "950", "950", False),
        ("Near", "950", "950", False),
    ],
)
def test_a_toleration_compares_numbers(operator: str, value: str, taint: str, yes: bool) -> None:
    toleration = {"key": "sla", "operator": operator, "value": value}
    assert tolerated(Taint("sla", "NoSchedule", taint), [toleration]) is yes
    assert not tolerated(Taint("other", "NoSchedule", taint), [toleration])


def test_a_taint_keeps_new_pods_away_and_ends_one_only_with_no_execute() -> None:
    rules = Rules.of({})
    soft = rules.place(kube_node("n", taints=[{"key": "x", "effect": "NoSchedule"}]))
    hard = rules.place(kube_node("n", taints=[{"key": "x", "effect": "NoExecute"}]))
    preferred = rules.place(kube_node("n", taints=[{"key": "x", "effect": "PreferNoSchedule"}]))
    found = [(place.should_run, place.may_stay) for place in (soft, hard, preferred)]
    assert found == [(False, True), (False, False), (True, True)]


def test_a_cordoned_node_gets_no_pod_and_keeps_the_one_that_it_has() -> None:
    place = Rules.of({}).place(kube_node("n", unschedulable=True))
    assert (place.should_run, place.may_stay) == (False, True)


def test_a_node_is_called_by_its_first_label_or_as_its_annotation_sets() -> None:
    assert Rules.of({}).place(NODE).slurm_node == "n1"
    assert Rules.of({}).place(kube_node("n1.a", called("rack1"))).slurm_node == "rack1"
    assert Rules.of({"hostNetwork": True}).place(NODE).slurm_node == "n1.example.com"


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a\n", "a" * 64])
def test_what_can_not_be_a_hostname_is_reported_with_the_node_and_the_remedy(name: str) -> None:
    assert not is_hostname(name)
    if name:
        problem = Rules.of({}).place(kube_node("n1", called(name))).problem
        assert "n1" in problem
        assert "hostname-override" in problem


def test_nodes_that_are_named_by_their_addresses_have_distinct_names_in_slurm() -> None:
    nodes = [kube_node(name) for name in ("10.0.10.23", "10.0.10.24", "10.0.9.23", "7")]
    places = with_distinct_names(map(Rules.of({}).place, nodes), {})
    assert [(it.slurm_node, it.problem) for it in places.values()] == [
        ("10-0-10-23", ""),
        ("10-0-10-24", ""),
        ("10-0-9-23", ""),
        ("7", ""),
    ]
    host = Rules.of({"hostNetwork": True}).place(nodes[0])
    assert host.slurm_node == "10.0.10.23"
    override = kube_node("10.0.10.23", called("gpu-1"))
    assert Rules.of({}).place(override).slurm_node == "gpu-1"


def test_of_two_places_with_one_name_the_settled_one_has_it() -> None:
    places = [
        Place("a.x", "a", True, True),
        Place("a.y", "a", True, True),
        Place("b.x", "b", True, True),
    ]
    fresh = with_distinct_names(places, {})
    assert [name for name, place in fresh.items() if place.problem] == ["a.y"]
    assert "a.x" in fresh["a.y"].problem
    assert [
        name for name, place in with_distinct_names(places, {"a": "a.y"}).items() if place.problem
    ] == ["a.x"]


def named(
    *nodes: Node, settled: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[str, bool]]:
    """The name of each in Slurm, and whether it has a problem."""
    found = with_distinct_names(map(Rules.of({}).place, nodes), settled)
    return [
        (found[it.metadata.name].slurm_node, bool(found[it.metadata.name].problem)) for it in nodes
    ]


def test_of_nodes_with_one_first_label_the_later_ones_have_their_whole_names() -> None:
    one, other, third = kube_node("gpu.a"), kube_node("gpu.b"), kube_node("gpu.c.example")
    assert named(other, one, third) == [
        ("gpu-b", False),
        ("gpu", False),
        ("gpu-c-example", False),
    ]
    # Whoever has a name keeps it: a worker isn't replaced because of another Kubernetes node.
    now = {"gpu": "gpu.b", "gpu-a": "gpu.a"}
    assert named(one, other, settled=now) == [("gpu-a", False), ("gpu", False)]
    assert named(one, settled={"gpu-a": "gpu.a"}) == [("gpu-a", False)]


def test_a_whole_name_that_is_taken_or_no_hostname_leaves_the_conflict() -> None:
    taken = kube_node("gpu-b")
    assert named(kube_node("gpu.a"), kube_node("gpu.b"), taken) == [
        ("gpu", False),
        ("gpu", True),
        ("gpu-b", False),
    ]
    long = kube_node(f"gpu.{'b' * 60}")
    assert named(kube_node("gpu.a"), long) == [("gpu", False), ("gpu", True)]
    # Who sets a name gets that one or none.
    override = kube_node("x.b", called("gpu"))
    assert named(kube_node("gpu.a"), override) == [("gpu", False), ("gpu", True)]


def test_a_place_where_no_pod_belongs_takes_no_name() -> None:
    places = [Place("a.x", "a", False, False), Place("a.y", "a", True, True)]
    assert not any(place.problem for place in with_distinct_names(places, {}).values())
