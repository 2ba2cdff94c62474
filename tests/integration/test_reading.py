"""What end-to-end tests read is what `kubectl get` prints."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.cluster.waiting import until
from tests.support.real.harness import CommandError, Kubernetes
from tests.support.real.reading import look_of


@pytest.fixture
def kubernetes(control_plane: ControlPlane) -> Kubernetes:
    # The API server creates its own Service a moment after it is ready.
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
def test_an_object_and_a_list_are_what_kubectl_prints(
    kubernetes: Kubernetes, words: tuple[str, ...]
) -> None:
    assert look_of(words) is not None
    found = kubernetes.get(*words)
    printed = json.loads(kubernetes.kubectl("get", *words, "-o", "json"))
    assert content(found) == content(printed)


def content(found: dict[str, Any]) -> object:
    """The object, or the items: kubectl returns a list of its own."""
    return found.get("items", found)


@pytest.mark.parametrize("words", [("nothing",), ("-n", "default", "pod", "missing")])
def test_what_is_not_there_is_the_error_of_kubectl(
    kubernetes: Kubernetes, words: tuple[str, ...]
) -> None:
    with pytest.raises(CommandError, match=r"doesn't have a resource type|NotFound"):
        kubernetes.get(*words)
    assert kubernetes.items(*words) == []


@pytest.mark.parametrize("words", [("pods", "-A"), ("pod/one",), ("pods,services",), ()])
def test_other_words_are_left_to_kubectl(words: tuple[str, ...]) -> None:
    assert look_of(words) is None


def test_reads_share_connections_and_threads_that_read_at_the_same_time_have_one_each(
    kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[http.client.HTTPSConnection] = []
    connect = http.client.HTTPSConnection.connect

    def counted(connection: http.client.HTTPSConnection) -> None:
        connected.append(connection)
        connect(connection)

    def name() -> str:
        return str(kubernetes.get("namespace", "kube-system")["metadata"]["name"])

    assert name() == "kube-system"
    monkeypatch.setattr(http.client.HTTPSConnection, "connect", counted)
    assert [name() for _ in range(20)] == ["kube-system"] * 20
    assert connected == []
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: name(), range(40))) == ["kube-system"] * 40
    assert len(connected) <= 3


def test_a_connection_of_an_api_server_that_was_restarted_is_replaced(
    kubernetes: Kubernetes, control_plane: ControlPlane
) -> None:
    assert kubernetes.get("ns", "default")["metadata"]["name"] == "default"
    control_plane.kill_apiserver()
    try:
        until(
            lambda: b"refused" in control_plane.get("/readyz")[1], "the API server to be gone", 60
        )
    finally:
        control_plane.start_apiserver()
    assert kubernetes.get("ns", "default")["metadata"]["name"] == "default"
