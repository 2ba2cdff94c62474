"""Paths of resources, and names that would make another path."""

from __future__ import annotations

import pytest

from sidecars.kube import NODES, PODS, STATEFUL_SETS, Resource

CONTROLLERS = Resource("slinky.slurm.net", "v1beta1", "Controller", "controllers")


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path("ns", "p", "status"), "/api/v1/namespaces/ns/pods/p/status"),
        (NODES.path(None, "n1"), "/api/v1/nodes/n1"),
        (STATEFUL_SETS.path("ns", "s"), "/apis/apps/v1/namespaces/ns/statefulsets/s"),
        (CONTROLLERS.path("ns", "c"), "/apis/slinky.slurm.net/v1beta1/namespaces/ns/controllers/c"),
    ],
)
def test_paths_are_those_of_the_api(path: str, want: str) -> None:
    assert path == want


def test_the_api_version_of_the_core_group_has_no_group() -> None:
    assert (PODS.api_version, CONTROLLERS.api_version) == ("v1", "slinky.slurm.net/v1beta1")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a?b", "a#b", "a%2fb"])
def test_a_name_that_would_reach_another_object_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="can't name a Pod"):
        PODS.path("ns", name)
    with pytest.raises(ValueError, match="can't name a Pod"):
        PODS.path(name, "p")


def test_namespaces_go_with_namespaced_resources_only() -> None:
    with pytest.raises(ValueError, match="Node is cluster-scoped"):
        NODES.path("ns", "n1")
    with pytest.raises(ValueError, match="Pod 'p' needs its namespace"):
        PODS.path(None, "p")
