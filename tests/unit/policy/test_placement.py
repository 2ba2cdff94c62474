"""Which Kubernetes nodes a pod of DaemonSet mode belongs on."""

from typing import Any

import pytest

from sidecars.policy.placement import KubeNode, Place, Rules, tolerated, with_distinct_names
from sidecars.workloads.nodeset.naming import is_hostname

NODE = KubeNode("n1.example.com", {"zone": "a", "gpus": "8"})


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}
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
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1.example.com"]}]}), True),
        (required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), False),
    ],
)
def test_a_pod_fits_where_its_selector_and_its_required_affinity_say(spec: dict[str, Any], fits: bool) -> None:
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
    assert tolerated(("gpu", "yes", "NoExecute"), [toleration]) is yes


def test_a_taint_keeps_new_pods_away_and_ends_one_only_with_no_execute() -> None:
    rules = Rules.of({})
    soft = rules.place(KubeNode("n", {}, [("x", "", "NoSchedule")]))
    hard = rules.place(KubeNode("n", {}, [("x", "", "NoExecute")]))
    preferred = rules.place(KubeNode("n", {}, [("x", "", "PreferNoSchedule")]))
    found = [(place.should_run, place.may_stay) for place in (soft, hard, preferred)]
    assert found == [(False, True), (False, False), (True, True)]


def test_a_cordoned_node_gets_no_pod_and_keeps_the_one_that_it_has() -> None:
    place = Rules.of({}).place(KubeNode("n", {}, unschedulable=True))
    assert (place.should_run, place.may_stay) == (False, True)


def test_a_node_is_called_by_its_first_label_or_as_its_annotation_says() -> None:
    assert Rules.of({}).place(NODE).slurm_node == "n1"
    assert Rules.of({}).place(KubeNode("n1.a", {}, hostname="rack1")).slurm_node == "rack1"
    assert Rules.of({"hostNetwork": True}).place(NODE).slurm_node == "n1.example.com"


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a\n", "a" * 64])
def test_what_can_not_be_a_hostname_is_said_with_the_node_and_the_remedy(name: str) -> None:
    assert not is_hostname(name)
    if name:
        problem = Rules.of({}).place(KubeNode("n1", {}, hostname=name)).problem
        assert "n1" in problem
        assert "hostname-override" in problem


def test_of_two_places_with_one_name_the_settled_one_has_it() -> None:
    places = [Place("a.x", "a", True, True), Place("a.y", "a", True, True), Place("b.x", "b", True, True)]
    fresh = with_distinct_names(places, {})
    assert [name for name, place in fresh.items() if place.problem] == ["a.y"]
    assert "a.x" in fresh["a.y"].problem
    assert [name for name, place in with_distinct_names(places, {"a": "a.y"}).items() if place.problem] == ["a.x"]


def test_a_place_where_no_pod_belongs_takes_no_name() -> None:
    places = [Place("a.x", "a", False, False), Place("a.y", "a", True, True)]
    assert not any(place.problem for place in with_distinct_names(places, {}).values())
