"""Which Kubernetes nodes can never run a pod."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from sidecars.bridge.core.feasible import NOTHING, Needs, needs_of, unfit
from sidecars.bridge.core.manifests import Node, Toleration
from sidecars.contract import bridge


def node(*taints: dict[str, str], **allocatable: str) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": "k1"},
            "spec": {"taints": taints},
            "status": {"allocatable": allocatable},
        },
        Node,
    )


def tolerating(**values: str) -> Needs:
    return needs_of([msgspec.convert(values, Toleration)], {})


PRESSURE = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "red", "effect": "NoExecute"}
SLA = {"key": "sla", "value": "950", "effect": "NoSchedule"}


@pytest.mark.parametrize("taint", [PRESSURE, TEAM])
def test_a_node_with_a_taint_that_the_pod_does_not_tolerate_is_none_for_it(taint: Any) -> None:
    assert unfit(NOTHING, node(taint)) == (
        f"it has the taint {taint['key']}:{taint['effect']}, which the pod doesn't tolerate"
    )


@pytest.mark.parametrize(
    "needs",
    [
        tolerating(operator="Exists"),
        tolerating(key="team", operator="Exists"),
        tolerating(key="team", value="red"),
        tolerating(key="team", value="red", effect="NoExecute"),
    ],
)
def test_a_taint_that_the_pod_tolerates_is_none(needs: Needs) -> None:
    assert unfit(needs, node(TEAM)) == ""


@pytest.mark.parametrize(
    "needs",
    [
        tolerating(key="team", value="blue"),
        tolerating(key="team", operator="Exists", effect="NoSchedule"),
        tolerating(key="other", operator="Exists"),
    ],
)
def test_a_toleration_of_something_else_does_not_help(needs: Needs) -> None:
    assert unfit(needs, node(TEAM)) != ""


@pytest.mark.parametrize(
    "taint",
    [
        {"key": bridge.TAINT, "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ],
)
def test_taints_that_the_bridge_or_the_drain_of_the_node_covers_exclude_nothing(taint: Any) -> None:
    assert unfit(NOTHING, node(taint)) == ""


@pytest.mark.parametrize(
    ("name", "amount", "has", "fits"),
    [
        ("ephemeral-storage", "10737418240", "10Gi", True),
        ("ephemeral-storage", "10737418241", "10Gi", False),
        ("hugepages-2Mi", "1", "", False),
        ("aws.amazon.com/neuron", "2", "2", True),
        ("aws.amazon.com/neuron", "3", "2", False),
        ("aws.amazon.com/neuron", "1", "what", False),
    ],
)
def test_a_node_that_has_less_than_the_pod_requests_is_none_for_it(
    name: str, amount: str, has: str, *, fits: bool
) -> None:
    needs = needs_of([], {name: Decimal(amount)})
    text = unfit(needs, node(**({name: has} if has else {})))
    assert (text == "") == fits
    if not fits:
        assert text == f"the pod requests {amount} of {name}, and it has {has or 0}"


def test_pods_that_fit_the_same_nodes_have_equal_needs() -> None:
    """Kubernetes gives each pod tolerations of nodes that aren't ready."""
    usual = msgspec.convert(
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        Toleration,
    )
    assert needs_of([usual], {"ephemeral-storage": Decimal(0)}) == NOTHING
    assert needs_of([], {"a": Decimal("1e3")}) == needs_of([], {"a": Decimal(1000)})


@pytest.mark.parametrize(
    ("operator", "value", "fits"),
    [("Gt", "900", True), ("Gt", "950", False), ("Lt", "990", True), ("Lt", "900", False)],
)
def test_tolerations_compare_numbers_as_kube_scheduler_does(
    operator: str, value: str, fits: bool
) -> None:
    needs = tolerating(key="sla", operator=operator, value=value)
    assert (unfit(needs, node(SLA)) == "") is fits
