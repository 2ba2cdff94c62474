"""How far a StatefulSet or Deployment has come."""

from typing import Any

import pytest

from sidecars.operator.core.rollout import readiness, with_kept

READY: dict[str, Any] = {
    "metadata": {"generation": 2},
    "spec": {"replicas": 2},
    "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2},
}

FEW = {"readyReplicas": 1}


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        ({}, {}, ("True", "Ready", "2 of 2 pods are ready")),
        (
            {},
            {"observedGeneration": 1},
            ("False", "Updating", "2 of 2 pods of Deployment d are updated"),
        ),
        (
            {},
            {"updatedReplicas": 1},
            ("False", "Updating", "1 of 2 pods of Deployment d are updated"),
        ),
        (
            {},
            {"replicas": 3},
            ("False", "Updating", "out of date stay until the updated ones are ready"),
        ),
        ({}, {"readyReplicas": 1}, ("False", "PodsNotReady", "see `kubectl -n ns get pods`")),
        (
            {"replicas": 0},
            {"replicas": 0, "updatedReplicas": 0},
            ("True", "ScaledToZero", "no pods run"),
        ),
    ],
)
def test_only_the_newest_pods_all_of_them_ready_and_no_others_are_ready(
    spec: dict[str, Any], status: dict[str, Any], want: tuple[str, str, str]
) -> None:
    live = {**READY, "spec": READY["spec"] | spec, "status": READY["status"] | status}
    found = readiness("Deployment", "ns", "d", live)
    assert (found.status, found.reason) == want[:2]
    assert want[2] in found.message


def test_pods_that_are_not_ready_with_images_of_a_registry_that_cannot_exist_have_the_remedy() -> (
    None
):
    def message(image: str) -> str:
        pod = {
            "initContainers": [{"name": "a", "image": image}],
            "containers": [{"name": "b", "image": "b/b:1"}],
        }
        spec = READY["spec"] | {"template": {"spec": pod}}
        return readiness(
            "Deployment", "ns", "d", {**READY, "spec": spec, "status": READY["status"] | FEW}
        ).message

    assert message("registry.invalid/a/slurmctld:1").count("global.imageRepository") == 1
    assert (
        message("registry.example/a:1")
        == "1 of 2 pods of Deployment d are ready; see `kubectl -n ns get pods`"
    )


def test_what_does_not_exist_yet_is_starting() -> None:
    found = readiness("StatefulSet", "ns", "s", None)
    assert (found.status, found.reason, found.message) == (
        "False",
        "Starting",
        "StatefulSet s is being created",
    )


def test_what_no_controller_of_kubernetes_has_looked_at_is_not_ready() -> None:
    assert (
        readiness("StatefulSet", "ns", "s", {"metadata": {"generation": 1}, "spec": {}}).status
        == "False"
    )


@pytest.mark.parametrize(
    ("ready", "reason"),
    [(2, ("True", "ChangeNotApplied")), (1, ("False", "PodsNotReady"))],
    ids=["ready", "not ready"],
)
def test_what_is_not_applied_is_shown_beside_the_state_of_the_pods(
    ready: int, reason: tuple[str, str]
) -> None:
    live = {**READY, "status": READY["status"] | {"readyReplicas": ready}}
    found = with_kept(readiness("StatefulSet", "ns", "s", live), ["one stays", "another stays"])
    assert (found.status, found.reason) == reason
    assert found.message.startswith(f"{ready} of 2 pods")
    assert found.message.endswith("; one stays; another stays")
    assert with_kept(found, []) is found
