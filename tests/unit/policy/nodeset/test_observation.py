"""What the policy gets of a pod and its Kubernetes node."""

from datetime import UTC, datetime

import msgspec
import pytest

from sidecars import objects
from sidecars.policy.nodeset.observation import (
    cordon_reason,
    deletion_cost,
    has_started,
    ordinal,
    worker_pod,
)

READY_AT = datetime(2026, 1, 1, tzinfo=UTC)


def pod(**status: object) -> objects.Pod:
    """A worker pod bound to a Kubernetes node."""
    return msgspec.convert(
        {
            "metadata": {
                "name": "slinky-3",
                "namespace": "slurm",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"controller-revision-hash": "abc"},
            },
            "spec": {"nodeName": "kube-1", "hostname": "gpu-3"},
            "status": {"phase": "Running", **status},
        },
        objects.Pod,
    )


def host(
    conditions: dict[str, str] | None = None,
    *,
    unschedulable: bool = True,
    reason: str | None = None,
) -> objects.Node:
    """A Kubernetes node; `conditions` are types that are True, with their messages."""
    annotations = (
        {"nodeset.slinky.slurm.net/node-cordon-reason": reason} if reason is not None else {}
    )
    found = [
        {"type": kind, "status": "True", "reason": "Seen", "message": text}
        for kind, text in (conditions or {}).items()
    ]
    return msgspec.convert(
        {
            "metadata": {"name": "kube-1", "annotations": annotations},
            "spec": {"unschedulable": unschedulable},
            "status": {"conditions": found},
        },
        objects.Node,
    )


def container(**state: object) -> list[dict[str, object]]:
    return [{"name": "slurmd", "restartCount": 0, **state}]


def test_why_a_pod_is_not_scheduled_is_observed_bounded_and_printable() -> None:
    def unscheduled(status: str, message: str) -> str:
        condition = {
            "type": "PodScheduled",
            "status": status,
            "reason": "Unschedulable",
            "message": message,
        }
        return worker_pod(pod(phase="Pending", conditions=[condition]), None, now=0.0).unscheduled

    assert unscheduled("False", "0/3 nodes are available:\n3 Insufficient\x1b cpu.") == (
        "0/3 nodes are available: 3 Insufficient\ufffd cpu."
    )
    assert len(unscheduled("False", "x" * 5000)) == 256
    assert unscheduled("True", "") == ""
    assert worker_pod(pod(phase="Pending"), None, now=0.0).unscheduled == ""


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("ErrImagePull", "the image a/b:1 can't be pulled, see the pod's events"),
        ("ImagePullBackOff", "the image a/b:1 can't be pulled, see the pod's events"),
        ("RegistryUnavailable", "the image a/b:1 can't be pulled, see the pod's events"),
        ("ErrImageNeverPull", "ErrImageNeverPull"),
        ("ImageInspectError", "ImageInspectError"),
        ("InvalidImageName", "InvalidImageName"),
        ("PodInitializing", ""),
    ],
)
def test_that_an_image_can_t_be_pulled_is_observed(kind: str, reason: str, why: str) -> None:
    waiting = [
        {
            "name": "slurmd",
            "image": "a/b:1",
            "restartCount": 0,
            "state": {"waiting": {"reason": reason}},
        }
    ]
    assert worker_pod(pod(phase="Pending", **{kind: waiting}), None, now=0.0).no_image == why


def test_a_ready_pod_is_available_after_min_ready_seconds() -> None:
    ready = pod(
        conditions=[
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
    )
    now = READY_AT.timestamp()
    assert worker_pod(ready, None, now=now).available
    assert not worker_pod(ready, None, now=now + 9, min_ready_seconds=10).available
    assert worker_pod(ready, None, now=now + 10, min_ready_seconds=10).available


def test_the_hostname_is_the_slurm_node() -> None:
    seen = worker_pod(pod(), host(unschedulable=False), now=0)
    assert (seen.slurm_node, seen.ordinal, seen.revision, seen.kube_node) == (
        "gpu-3",
        3,
        "abc",
        "kube-1",
    )


def test_slurmd_has_not_started_only_where_the_kubelet_reports_it() -> None:
    waiting = {"state": {"waiting": {"reason": "PodInitializing"}}}
    assert not has_started(pod(phase="Pending", containerStatuses=container(**waiting)))
    assert not has_started(pod(phase="Pending"))
    assert has_started(pod(containerStatuses=container(state={"running": {}})))
    assert has_started(pod(containerStatuses=container(state={"terminated": {"exitCode": 1}})))
    assert has_started(pod(containerStatuses=[{"name": "slurmd", "restartCount": 1, **waiting}]))
    assert has_started(pod(phase="Running"))


def test_a_schedulable_kubernetes_node_asks_for_no_drain() -> None:
    assert cordon_reason(host(unschedulable=False, reason="x"), "slurm", "slinky-3") is None


def test_a_cordon_is_explained_by_annotation_then_conditions_then_itself() -> None:
    sick = {"GpuLost": "GPU 3 fell off the bus", "DiskFull": "no space"}
    assert (
        cordon_reason(host(sick, reason="ECC error"), "slurm", "slinky-3", ["GpuLost"])
        == "ECC error"
    )
    reported = cordon_reason(host(sick), "slurm", "slinky-3", ["DiskFull", "GpuLost", "Other"])
    assert reported == "(Seen: no space); (Seen: GPU 3 fell off the bus)"
    plain = cordon_reason(host(sick), "slurm", "slinky-3")
    assert plain == "Node (kube-1) was cordoned, Pod (slurm/slinky-3) must be cordoned"


def test_a_reason_from_outside_can_not_carry_control_characters_or_grow_without_end() -> None:
    reported = cordon_reason(
        host(reason="bad\tdisk\nReason=x\x1b[31m" + "y" * 300), "slurm", "slinky-3"
    )
    assert reported is not None
    assert reported.startswith("bad disk Reason=x\ufffd[31my")
    assert len(reported) == 256


@pytest.mark.parametrize(
    ("text", "cost"), [("5", 5), ("-7", -7), ("+5", 0), ("05", 0), ("", 0), ("x", 0), ("9" * 12, 0)]
)
def test_a_deletion_cost_is_a_plain_int32_or_nothing(text: str, cost: int) -> None:
    assert deletion_cost(text) == cost


@pytest.mark.parametrize(("name", "number"), [("a-0", 0), ("a-b-012", 12), ("a", -1), ("a-x1", -1)])
def test_an_ordinal_is_the_number_at_the_end(name: str, number: int) -> None:
    assert ordinal(name) == number


def test_a_cordon_by_the_operator_itself_asks_for_no_drain() -> None:
    marked = {"nodeset.slinky.slurm.net/cordoned-for": "slurm/slurm: bad disk"}
    node = msgspec.structs.replace(
        host(), metadata=objects.ObjectMeta(name="kube-1", annotations=marked)
    )
    assert cordon_reason(node, "slurm", "slinky-3") is None


def test_a_pod_reports_what_is_known_of_a_lost_kubernetes_node() -> None:
    leaving = msgspec.convert(
        {
            "metadata": {"name": "slinky-3", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "m"},
        },
        objects.Pod,
    )
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
    silent = msgspec.convert({"metadata": {"name": "m"}, "spec": {"taints": taints}}, objects.Node)
    taints.append({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"})
    off = msgspec.convert({"metadata": {"name": "m"}, "spec": {"taints": taints}}, objects.Node)
    seen = [worker_pod(leaving, node, now=0) for node in (silent, off, None)]
    assert [it.terminating_until for it in seen] == [READY_AT.timestamp()] * 3
    assert [(it.kubelet_silent, it.out_of_service, it.kube_node_gone) for it in seen] == [
        (True, False, False),
        (True, True, False),
        (False, False, True),
    ]
