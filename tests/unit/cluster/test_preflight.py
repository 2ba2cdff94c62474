"""What is reported of a cluster on which Slurm can't be installed."""

from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.preflight import (
    Claim,
    Facts,
    admission_remedy,
    claims,
    crowded,
    demand,
    is_default,
    is_starting,
    needs_privileges,
    problems,
    usable,
)

CONTROLLER = Claim("Controller slurm", None)
GOOD = Facts(
    version=(1, 29),
    nodes={"a": "amd64"},
    architecture="amd64",
    classes={"fast": False, "slow": True},
    claims=(CONTROLLER,),
    denied=(),
)


def node(ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {"spec": spec, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    "facts",
    [
        GOOD,
        replace(GOOD, nodes={"a": "arm64", "b": "amd64"}),
        replace(GOOD, nodes={"a": "arm64"}, architecture=None),
        replace(GOOD, classes={}, claims=()),
        replace(GOOD, classes={"fast": False}, claims=(Claim("Controller slurm", "fast"),)),
        replace(GOOD, classes={}, claims=(Claim("Controller slurm", ""),)),
    ],
    ids=[
        "all",
        "a node of another kind",
        "images of others",
        "no volume",
        "a named class",
        "no class on purpose",
    ],
)
def test_a_cluster_that_has_what_is_needed_has_no_problems(facts: Facts) -> None:
    assert problems(facts) == []
    demand(facts)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(GOOD, version=(1, 28)), ["1.28", "1.29 or newer"]),
        (replace(GOOD, nodes={}), ["no Kubernetes node is Ready", "kubectl uncordon"]),
        (replace(GOOD, nodes={"a": "arm64"}), ["arm64", "for amd64", "run make up on a host"]),
        (
            replace(GOOD, denied=("namespaces",)),
            ["may not create namespaces", "cluster administrator"],
        ),
        (
            replace(GOOD, classes={"fast": False}),
            ["Controller slurm", "kubectl patch storageclass fast", "persistence.storageClassName"],
        ),
        (replace(GOOD, classes={}), ["no StorageClass", "install a storage provisioner"]),
        (
            replace(GOOD, claims=(Claim("Controller slurm", "gone"),)),
            ["'gone' doesn't exist", "fast, slow"],
        ),
        (
            replace(GOOD, images_missing=("a/b:1",)),
            ["a/b:1", "REGISTRY=registry.example.com/team", "docs/local.md"],
        ),
    ],
)
def test_a_problem_names_what_was_found_and_the_remedy(facts: Facts, words: list[str]) -> None:
    (problem,) = problems(facts)
    assert [word for word in words if word not in problem] == []


def test_every_problem_is_listed_at_once() -> None:
    with pytest.raises(ClusterError, match="nothing was changed") as caught:
        demand(replace(GOOD, version=(1, 20), nodes={}, classes={}))
    assert str(caught.value).count("\n- ") == 3


@pytest.mark.parametrize(
    "found",
    [
        node("False"),
        node(unschedulable=True),
        node(taints=[{"key": "a", "effect": "NoSchedule"}]),
        {"spec": {}, "status": {}},
    ],
    ids=["not ready", "cordoned", "tainted", "new"],
)
def test_a_node_that_takes_no_pod_is_not_counted(found: dict[str, Any]) -> None:
    assert not usable(found)


def test_a_node_is_counted_also_with_a_taint_that_is_a_preference() -> None:
    assert usable(node(taints=[{"key": "a", "effect": "PreferNoSchedule"}]))


@pytest.mark.parametrize(
    ("spec", "starts"),
    [
        ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}, True),
        ({}, False),
        ({"unschedulable": True}, False),
        ({"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}, False),
        (
            {
                "taints": [
                    {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
                    {"key": "gpu", "effect": "NoSchedule"},
                ]
            },
            False,
        ),
    ],
)
def test_only_a_node_with_no_taint_but_those_of_its_start_is_waited_for(
    spec: dict[str, Any], *, starts: bool
) -> None:
    assert is_starting(node(**spec)) == starts


def test_the_default_storage_class_has_one_of_two_annotations() -> None:
    for name in ("storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"):
        assert is_default({"metadata": {"annotations": {f"{name}/is-default-class": "true"}}})
        assert not is_default({"metadata": {"annotations": {f"{name}/is-default-class": "false"}}})
    assert not is_default({"metadata": {}})


def test_volumes_are_found_in_controllers_claims_and_templates_unless_the_claim_exists() -> None:
    found = claims(
        [
            {
                "kind": "Controller",
                "metadata": {"name": "a"},
                "spec": {"persistence": {"enabled": True}},
            },
            {
                "kind": "Controller",
                "metadata": {"name": "b"},
                "spec": {"persistence": {"enabled": False}},
            },
            {
                "kind": "Controller",
                "metadata": {"name": "c"},
                "spec": {"persistence": {"existingClaim": "mine"}},
            },
            {
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "d"},
                "spec": {"storageClassName": "fast"},
            },
            {
                "kind": "NodeSet",
                "metadata": {"name": "e"},
                "spec": {"volumeClaimTemplates": [{"spec": {"storageClassName": "slow"}}]},
            },
            {"kind": "ConfigMap", "metadata": {"name": "f"}},
        ]
    )
    assert list(found) == [
        Claim("Controller a", None),
        Claim("PersistentVolumeClaim d", "fast"),
        Claim("NodeSet e", "slow"),
    ]


@pytest.mark.parametrize(
    ("specs", "wanted"),
    [
        ([{}], True),
        ([{"slurmd": {"securityContext": {"privileged": False}}}], False),
        ([{"slurmd": {"securityContext": {"privileged": False}}}, {"slurmd": {}}], True),
        ([], False),
    ],
    ids=["default", "without", "one of two", "no workers"],
)
def test_workers_need_privileges_unless_all_of_them_run_without(
    specs: list[dict[str, Any]], wanted: bool
) -> None:
    assert needs_privileges({"kind": "NodeSet", "spec": spec} for spec in specs) is wanted


@pytest.mark.parametrize(
    ("refused", "word"),
    [
        ('violates PodSecurity "baseline:latest": privileged', "kubectl label namespace slurm"),
        ("exceeded quota: compute", "ResourceQuota"),
        ('admission webhook "validate.kyverno.svc" denied the request', "policy"),
    ],
)
def test_a_refused_worker_has_a_remedy_and_the_words_of_the_api_server(
    refused: str, word: str
) -> None:
    found = admission_remedy(refused)
    assert word in found
    assert found.endswith(refused)


def nodeset(**spec: Any) -> dict[str, Any]:
    return {"kind": "NodeSet", "metadata": {"name": "cpu"}, "spec": spec}


@pytest.mark.parametrize(
    "specs",
    [
        [{"replicas": 3}],
        [{"replicas": 2}, {}],
        [{"replicas": 4, "oversubscribeNode": True}],
        [{"replicas": 4, "scalingMode": "DaemonSet"}],
        [],
    ],
)
def test_workers_that_have_a_kubernetes_node_each_are_no_matter(
    specs: list[dict[str, Any]],
) -> None:
    assert crowded([nodeset(**spec) for spec in specs], 3) == ""


def test_more_workers_than_kubernetes_nodes_are_reported_with_what_to_set() -> None:
    found = crowded([nodeset(replicas=4), {"kind": "LoginSet", "metadata": {"name": "a"}}], 3)
    assert "4 workers (cpu)" in found
    assert "3 nodes take pods" in found
    assert "oversubscribeNode: true" in found
