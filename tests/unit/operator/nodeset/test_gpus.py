"""What is known of the Kubernetes nodes decides about a NodeSet's GPUs:
`sidecars.operator.nodeset.gpus`.
"""

from typing import Any

import pytest

from sidecars.operator.nodeset.gpus import refusal
from tests.support.operator_parts import Parts
from tests.unit.operator.nodeset.builders import begin

pytestmark = pytest.mark.looptime
PRIVILEGED = {
    "name": "slurmd",
    "securityContext": {"privileged": True},
    "resources": {"limits": {"nvidia.com/gpu": 4}},
}


def refused(parts: Parts, selector: dict[str, str] | None = None, *, enabled: bool = True) -> str:
    this = begin(parts, gpu={"enabled": enabled, "count": 4})
    spec: dict[str, Any] = {"containers": [PRIVILEGED], "nodeSelector": selector or {}}
    return refusal(parts.runtime, this.nodeset, {"metadata": {}, "spec": spec})


async def test_the_gpus_and_labels_of_the_kubernetes_nodes_are_those_that_the_watch_shows() -> None:
    parts = Parts()
    assert refused(parts) == ""
    parts.kube_node("kube-1", status={"allocatable": {"nvidia.com/gpu": "8"}}, labels={"pool": "a"})
    assert "4 of the 8 nvidia.com/gpu of Kubernetes node kube-1" in refused(parts)
    assert "kube-1" in refused(parts, {"pool": "a"})
    assert refused(parts, {"pool": "b"}) == ""
    assert refused(parts, enabled=False) == ""


async def test_a_node_that_a_pod_of_the_nodeset_runs_on_counts_whatever_its_labels() -> None:
    parts = Parts()
    parts.kube_node("kube-1", status={"allocatable": {"nvidia.com/gpu": "8"}})
    parts.pod("theirs", nodeset="other")
    assert refused(parts, {"pool": "b"}) == ""
    parts.pod("slinky-0")
    assert "kube-1" in refused(parts, {"pool": "b"})
