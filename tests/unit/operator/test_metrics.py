"""The operator's metrics of custom resources: `sidecars.operator.metrics`."""

from typing import Any

from prometheus_client import CollectorRegistry

from sidecars.kube import Manifest, Store
from sidecars.operator.metrics import Reported


def resource(kind: str, name: str, status: dict[str, Any] | None) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"namespace": "slurm", "name": name}, "status": status}


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "secret words are in no metric",
    }


def scraped(*resources: dict[str, Any]) -> CollectorRegistry:
    registry, reported = CollectorRegistry(), Reported()
    store = Store[Manifest]()
    for each in resources:
        store.put(each)
    reported.stores = [store]
    registry.register(reported)
    return registry


def test_each_condition_has_a_series_with_its_status_and_reason() -> None:
    refused, reachable = (
        condition("ConfigurationAccepted", "False", "Invalid"),
        condition("Ready", "True", "Ready"),
    )
    registry = scraped(resource("Controller", "a", {"conditions": [refused, reachable]}))
    labels = {"kind": "Controller", "namespace": "slurm", "name": "a"}
    found = {"type": "ConfigurationAccepted", "status": "False", "reason": "Invalid"}
    assert registry.get_sample_value("slurm_operator_condition", labels | found) == 1
    found = {"type": "Ready", "status": "True", "reason": "Ready"}
    assert registry.get_sample_value("slurm_operator_condition", labels | found) == 1


def test_a_nodeset_has_its_pods_and_slurm_nodes_by_state() -> None:
    status = {
        "desired": 4,
        "readyReplicas": 3,
        "updatedReplicas": 2,
        "slurmAllocated": 1,
        "slurmDrain": 2,
    }
    registry = scraped(resource("NodeSet", "cpu", status))

    def value(name: str, state: str) -> float | None:
        labels = {"namespace": "slurm", "nodeset": "cpu", "state": state}
        return registry.get_sample_value(f"slurm_operator_nodeset_{name}", labels)

    assert [value("pods", state) for state in ("desired", "ready", "updated")] == [4, 3, 2]
    assert [value("slurm_nodes", state) for state in ("idle", "allocated", "down", "drain")] == [
        0,
        1,
        0,
        2,
    ]


def test_a_resource_without_a_status_has_no_condition_and_other_kinds_have_no_pods() -> None:
    registry = scraped(resource("Controller", "a", None), resource("Token", "b", {"desired": 4}))
    assert [sample for family in registry.collect() for sample in family.samples] == []


def test_each_controller_has_the_age_of_its_last_poll() -> None:
    registry, reported = CollectorRegistry(), Reported()
    registry.register(reported)
    reported.poll_ages = lambda: {("slurm", "a"): 0.5, ("other", "b"): 90.0}

    def age(namespace: str, controller: str) -> float | None:
        labels = {"namespace": namespace, "controller": controller}
        return registry.get_sample_value("slurm_operator_poll_age_seconds", labels)

    assert (age("slurm", "a"), age("other", "b"), age("slurm", "b")) == (0.5, 90.0, None)
