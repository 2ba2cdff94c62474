"""Checking Kubernetes objects without a cluster."""

from typing import Any

import pytest

from tests.charts import objects


def nodeset(**spec: Any) -> dict[str, Any]:
    own = {"controllerRef": {"name": "slurm"}, **spec}
    return {"apiVersion": objects.OURS, "kind": "NodeSet", "metadata": {"name": "n"}, "spec": own}


def config_map(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, **fields}


@pytest.mark.parametrize(
    "manifest",
    [
        nodeset(template={"spec": {"hostname": "a-", "anything": {"goes": True}}}, slurmd={"image": "x"}),
        nodeset(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}}, volumeClaimTemplates=None),
        config_map(data={"a": "b"}),
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "s"}},
    ],
)
def test_good_objects_pass(manifest: dict[str, Any]) -> None:
    assert objects.problems(manifest, "1.35.0") == []


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        (nodeset(replica=1), "NodeSet n: $.spec: "),
        (nodeset(replicas="1"), "NodeSet n: $.spec.replicas: "),
        (nodeset(controllerRef={}), "NodeSet n: $.spec.controllerRef: "),
        (config_map(data={"a": 1}), "ConfigMap c: data.a: "),
        (config_map(dat={}), "ConfigMap c: "),
        ({"apiVersion": "v1", "kind": "Confmap", "metadata": {"name": "c"}}, "Confmap c: "),
        ("text", "not an object of Kubernetes"),
    ],
)
def test_bad_objects_are_named_with_the_place(manifest: Any, want: str) -> None:
    assert [problem for problem in objects.problems(manifest, "1.35.0") if problem.startswith(want)]
