"""Workers that ask for a part of a Kubernetes node's GPUs."""

from typing import Any

import pytest

from sidecars.objects import Node
from sidecars.operator.core.gpus import refusal
from sidecars.workloads import nodeset as render
from tests.support import builders


def node(name: str = "kube-1", count: str = "8", **labels: str) -> Node:
    return builders.kube_node(name, {"labels": labels}, {"nvidia.com/gpu": count, "cpu": "64"})


def refused(*nodes: Node, used: tuple[str, ...] = (), **spec: Any) -> str:
    nodeset = builders.nodeset(**({"gpu": {"enabled": True, "count": 4}} | spec))
    template = render.pod_template(nodeset, builders.controller(), builders.facts())
    return refusal(nodeset, template, nodes, used)


def test_a_part_of_a_nodes_gpus_is_refused_with_the_remedy() -> None:
    message = refused(node())
    assert "4 of the 8 nvidia.com/gpu of Kubernetes node kube-1" in message
    assert "set gpu.count to 8" in message


@pytest.mark.parametrize("count", ["4", "2", "0", "", "junk"])
def test_all_of_a_nodes_gpus_are_welcome(count: str) -> None:
    assert refused(node(count=count)) == ""


def test_a_nodeset_without_gpus_or_without_privilege_may_share() -> None:
    assert refused(node(), gpu={"enabled": False}) == ""
    assert refused(node(), slurmd={"securityContext": {"privileged": False}}) == ""


def test_slurmds_own_limit_counts() -> None:
    assert refused(node(), slurmd={"resources": {"limits": {"nvidia.com/gpu": 8}}}) == ""


def test_a_node_that_the_pods_cannot_reach_is_no_matter() -> None:
    template = {"spec": {"nodeSelector": {"size": "small"}}}
    assert refused(node(size="large"), template=template) == ""
    assert "kube-1" in refused(node(size="small"), template=template)


def test_an_affinity_is_heeded_but_for_nodes_in_use() -> None:
    term = {"matchExpressions": [{"key": "size", "operator": "In", "values": ["small"]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    template = {"spec": {"affinity": affinity}}
    assert refused(node(size="large"), template=template) == ""
    assert "kube-1" in refused(node(size="small"), template=template)
    assert "kube-1" in refused(node(size="large"), used=("kube-1",), template=template)
