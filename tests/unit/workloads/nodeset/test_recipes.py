"""The worker pods of the recipes in docs/rdma-topology.md."""

from pathlib import Path
from typing import Any

import pytest

from tests.charts.examples import examples
from tests.support.builders import nodeset, part, pod_spec
from tests.unit.workloads.nodeset.making import pod

PAGE = Path(__file__).resolve().parents[4] / "docs" / "rdma-topology.md"


def recipe(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod's spec, and slurmd's container, with what the recipe sets of the NodeSet with this
    name.
    """
    found = [
        document["nodesets"][name]
        for example in examples(PAGE.name, PAGE.read_text(encoding="utf-8"))
        for document in example.documents
        if name in document.get("nodesets", {})
    ]
    [values] = found
    more = {key: values[key] for key in ("gpu",) if key in values}
    made = pod(
        nodeset(slurmd=values["slurmd"], template={"spec": values.get("podSpec", {})}, **more)
    )
    return pod_spec(made), part(made, "slurmd")


def test_a_worker_with_efa_requests_the_devices_and_huge_pages_and_has_shared_memory() -> None:
    spec, slurmd = recipe("p5")
    assert slurmd["resources"]["limits"]["vpc.amazonaws.com/efa"] == 32
    assert (
        slurmd["resources"]["limits"]["hugepages-2Mi"]
        == slurmd["resources"]["requests"]["hugepages-2Mi"]
        == "5Gi"
    )
    assert {"name": "FI_PROVIDER", "value": "efa"} in slurmd["env"]
    assert "shm" in {mount["name"] for mount in slurmd["volumeMounts"]}
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in spec["volumes"]


def test_a_worker_of_a_gb200_claims_its_imex_channel_for_slurmd_alone() -> None:
    spec, slurmd = recipe("gb200")
    assert spec["resourceClaims"] == [{"name": "imex", "resourceClaimTemplateName": "gb200-imex"}]
    assert slurmd["resources"]["claims"] == [{"name": "imex"}]
    others = [it for it in spec["initContainers"] + spec["containers"] if it["name"] != "slurmd"]
    assert all("claims" not in it.get("resources", {}) for it in others)


def test_an_unprivileged_worker_has_no_privileged_container_and_can_lock_memory() -> None:
    spec, slurmd = recipe("plain")
    containers = spec["initContainers"] + spec["containers"]
    assert not any(it.get("securityContext", {}).get("privileged") for it in containers)
    assert "IPC_LOCK" in slurmd["securityContext"]["capabilities"]["add"]


@pytest.mark.parametrize("name", ["p5", "gb200"])
def test_recipes_keep_what_slurmd_needs(name: str) -> None:
    _, slurmd = recipe(name)
    assert slurmd["securityContext"]["privileged"] is True
    assert any(
        mount["mountPath"] == "/run/slurm-node" or mount["name"] == "slurm-node"
        for mount in slurmd["volumeMounts"]
    )
