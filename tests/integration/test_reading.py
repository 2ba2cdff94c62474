"""What end-to-end tests read is what `kubectl get` prints."""

import json
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.cluster.waiting import until
from tests.support.real.harness import CommandError, Kubernetes
from tests.support.real.reading import look_of


@pytest.fixture
def kubernetes(control_plane: ControlPlane) -> Kubernetes:
    # The API server makes its own Service a moment after it is ready.
    service = "/api/v1/namespaces/default/services/kubernetes"
    until(lambda: control_plane.get(service)[0] == 200, "the API server's own Service", 60)
    return Kubernetes(control_plane.kubeconfig, tool("kubectl"), tool("helm"))


@pytest.mark.parametrize(
    "words",
    [
        ("namespaces",),
        ("ns", "kube-system"),
        ("-n", "default", "service", "kubernetes"),
        ("services", "-n", "default", "-l", "component=apiserver"),
        ("-n", "default", "svc", "-l", "component!=apiserver"),
        ("clusterrole.rbac.authorization.k8s.io", "view"),
        ("ClusterRole.rbac.authorization.k8s.io", "view"),
    ],
)
def test_an_object_and_a_list_are_what_kubectl_prints(kubernetes: Kubernetes, words: tuple[str, ...]) -> None:
    assert look_of(words) is not None
    found = kubernetes.get(*words)
    printed = json.loads(kubernetes.kubectl("get", *words, "-o", "json"))
    assert content(found) == content(printed)


def content(found: dict[str, Any]) -> object:
    """The object, or the items: kubectl makes a list of its own."""
    return found.get("items", found)


@pytest.mark.parametrize("words", [("nothing",), ("-n", "default", "pod", "missing")])
def test_what_is_not_there_is_the_error_of_kubectl(kubernetes: Kubernetes, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"doesn't have a resource type|NotFound"):
        kubernetes.get(*words)
    assert kubernetes.items(*words) == []


@pytest.mark.parametrize("words", [("pods", "-A"), ("pod/one",), ("pods,services",), ()])
def test_other_words_are_left_to_kubectl(words: tuple[str, ...]) -> None:
    assert look_of(words) is None
