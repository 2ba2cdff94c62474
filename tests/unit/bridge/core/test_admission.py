"""What the webhook answers."""

import base64
import json
from typing import Any

import pytest

from sidecars.bridge.core.admission import NotAReviewError, answer
from sidecars.contract import bridge

GATE = {"name": bridge.GATE}
OTHER = {"name": "example.com/quota"}


def review(spec: Any, **request: Any) -> bytes:
    """The question about a pod with this spec."""
    asked = {
        "uid": "u",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec},
        **request,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    ).encode()


def patch(spec: Any) -> list[dict[str, Any]]:
    """What it changes of a pod that it admits."""
    found = answer(review(spec))
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = found["response"]
    assert (response["uid"], response["allowed"]) == ("u", True)
    if "patch" not in response:
        assert "patchType" not in response
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    return operations


@pytest.mark.parametrize("gates", [{}, {"schedulingGates": None}, {"schedulingGates": []}])
def test_a_pod_without_gates_gets_the_gate(gates: dict[str, Any]) -> None:
    assert patch(gates) == [{"op": "add", "path": "/spec/schedulingGates", "value": [GATE]}]


def test_other_gates_stay() -> None:
    assert patch({"schedulingGates": [OTHER]}) == [
        {"op": "add", "path": "/spec/schedulingGates/-", "value": GATE}
    ]


@pytest.mark.parametrize(
    "spec", [{"schedulingGates": [GATE]}, {"schedulingGates": [OTHER, GATE]}, {"nodeName": "k1"}]
)
def test_a_pod_that_has_the_gate_or_a_node_is_not_changed(spec: dict[str, Any]) -> None:
    assert patch(spec) == []


def test_a_manifest_for_schedmds_bridge_gets_the_scheduler_of_kubernetes_and_no_toleration() -> (
    None
):
    other = {"key": "example.com/gpu", "operator": "Exists"}
    theirs = [{"key": bridge.TAINT, "operator": "Equal", "value": "slurm-bridge"}, other]
    spec = {"schedulerName": "slurm-bridge-scheduler", "tolerations": theirs}
    changes = [
        {"op": "replace", "path": "/spec/schedulerName", "value": "default-scheduler"},
        {"op": "replace", "path": "/spec/tolerations", "value": [other]},
    ]
    assert patch({**spec, "schedulingGates": [GATE]}) == changes
    assert patch(spec)[1:] == changes
    assert patch({**spec, "nodeName": "k1"}) == []


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        ({"operation": "UPDATE"}, "UPDATE of pods"),
        ({"subResource": "binding"}, "CREATE of pods/binding"),
        ({"resource": {"group": "", "version": "v1", "resource": "secrets"}}, "CREATE of secrets"),
        (
            {"resource": {"group": "example.com", "version": "v1", "resource": "pods"}},
            "CREATE of pods",
        ),
    ],
)
def test_anything_but_the_creation_of_a_pod_is_refused(request_: dict[str, Any], what: str) -> None:
    response = answer(review({}, **request_))["response"]
    assert (response["uid"], response["allowed"]) == ("u", False)
    assert f"and not for {what}" in response["status"]["message"]


def test_what_nobody_can_read_to_its_end_is_no_question() -> None:
    deep = b'"spec": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(NotAReviewError):
        answer(review({}).replace(b'"spec": {}', deep))


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"spec": {"schedulingGates": "all"}},
        {"spec": {"nodeName": 3}},
        {"spec": {"tolerations": 3}},
        [],
    ],
)
def test_a_pod_that_cannot_be_read_is_refused(content: Any) -> None:
    response = answer(review({}, object=content))["response"]
    assert response["allowed"] is False
    assert "can't read the pod" in response["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"{}",
        json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode(),
        review({}).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
        review({}).replace(b'"AdmissionReview"', b'"TokenReview"'),
    ],
)
def test_what_no_api_server_sends_is_no_question(body: bytes) -> None:
    with pytest.raises(NotAReviewError, match=r"not an AdmissionReview of admission\.k8s\.io/v1"):
        answer(body)
