"""Objects that NodeSets share."""

from sidecars.workloads import nodeset as render
from sidecars.workloads.assembly import find
from tests.support import builders
from tests.support.builders import controller, nodeset


def test_worker_service_and_disruption_budget_are_owned_by_all_nodesets() -> None:
    shared = render.shared_objects(controller(), [nodeset("b"), nodeset("a")], builders.facts())
    service, budget = find(shared, "Service"), find(shared, "PodDisruptionBudget")
    assert service["metadata"]["name"] == "slurm-workers-slurm"
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == (
        "None",
        True,
    )
    assert service["spec"]["selector"] == {
        "app.kubernetes.io/name": "slurmd",
        "slinky.slurm.net/cluster": "slurm",
    }
    assert service["spec"]["ports"][0]["port"] == 6818
    assert budget["metadata"]["name"] == "slurm-workers-pdb-slurm"
    assert budget["spec"] == {
        "maxUnavailable": 0,
        "selector": {
            "matchLabels": {
                "nodeset.slinky.slurm.net/pod-protect": "true",
                "slinky.slurm.net/cluster": "slurm",
            }
        },
    }
    for item in shared:
        assert item["metadata"]["namespace"] == "slurm"
        assert [owner["name"] for owner in item["metadata"]["ownerReferences"]] == ["a", "b"]
        assert all("controller" not in owner for owner in item["metadata"]["ownerReferences"])


def test_nothing_is_shared_by_no_nodesets() -> None:
    assert render.shared_objects(controller(), [], builders.facts()) == []
