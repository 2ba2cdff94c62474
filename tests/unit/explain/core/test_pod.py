"""Why a pod isn't ready: one finding for each cause, and none for a pod that is ready."""

from typing import Any

import pytest

from sidecars.explain.core import pod as subject
from sidecars.explain.core.pod_trouble import BACKOFF_SECONDS
from sidecars.explain.core.records import Finding, Level
from tests.unit.explain.core.building import (
    NOW,
    at,
    condition,
    event,
    kube_node,
    pod,
    seen,
    starting,
    unscheduled,
)


def explained(found: dict[str, Any], **kube: Any) -> list[Finding]:
    name = found["metadata"]["name"]
    return list(subject.explain(seen(kube={"pods": (found,)} | kube), name).findings)


def the_only(found: dict[str, Any], **kube: Any) -> Finding:
    [finding] = explained(found, **kube)
    return finding


def crashed(reason: str = "Error", code: int = 1, **more: Any) -> dict[str, Any]:
    status = {
        "name": "slurmd",
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {
            "terminated": {"exitCode": code, "reason": reason, "finishedAt": at(-10)} | more
        },
    }
    return starting("cpu-1", containerStatuses=[status])


def test_a_ready_pod_has_no_finding() -> None:
    assert explained(pod()) == []


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            "Add Kubernetes nodes, or request less",
        ),
        ("0/3 nodes are available: 3 node(s) had untolerated taint {a: b}.", "Add a toleration"),
        (
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
            "Change nodeSelector",
        ),
        (
            "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.",
            "a worker shares one with others only if all",
        ),
        ("pod has unbound immediate PersistentVolumeClaims.", "Create a StorageClass"),
        ("0/1 nodes are available: 1 node(s) were unschedulable.", "Uncordon"),
        ("", "Add a Kubernetes node on which the pod fits"),
    ],
)
def test_an_unschedulable_pod_quotes_the_scheduler_with_the_remedy(
    message: str, remedy: str
) -> None:
    finding = the_only(unscheduled(message=message))
    assert finding.code == "Unschedulable"
    assert finding.level is Level.BLOCKS
    assert message in finding.cause
    assert remedy in finding.remedy


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_an_image_that_cannot_be_pulled_is_named(reason: str) -> None:
    finding = the_only(starting("cpu-1", reason, "manifest unknown"))
    assert finding.code == reason
    assert "slurmd:26.05" in finding.cause
    assert "manifest unknown" in finding.cause


def test_an_image_of_a_registry_that_cannot_exist_has_both_ways_to_get_images_as_remedy() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
    status = {
        "name": "slurmd",
        "image": "registry.invalid/a/slurmd:26.05",
        "ready": False,
        "state": waiting,
    }
    finding = the_only(starting("cpu-1", containerStatuses=[status]))
    assert "REGISTRY=registry.example.com/team make up" in finding.remedy
    assert "global.imageRepository" in finding.remedy


def test_a_container_that_cannot_be_created_is_named() -> None:
    finding = the_only(
        starting("cpu-1", "CreateContainerConfigError", 'secret "slurm-key" not found')
    )
    assert 'secret "slurm-key" not found' in finding.cause


def test_a_crash_has_its_exit_code_its_log_and_the_latest_restart() -> None:
    finding = the_only(crashed(message="fatal:  no\nslurm.conf"))
    assert finding.code == "CrashLoopBackOff"
    assert finding.cause == "Container slurmd ended with exit code 1: fatal: no slurm.conf"
    assert finding.commands == ("kubectl -n slurm logs slurm-worker-cpu-1 -c slurmd --previous",)
    assert finding.at == NOW - 10 + BACKOFF_SECONDS


def test_too_little_memory_has_its_own_remedy() -> None:
    assert the_only(crashed("OOMKilled", 137)).remedy == "Raise the memory limit of the container."


def test_an_init_container_that_runs_is_named() -> None:
    status = {"name": "register", "ready": False, "state": {"running": {}}}
    finding = the_only(starting("cpu-1", "PodInitializing", initContainerStatuses=[status]))
    assert finding.code == "Starting"
    assert finding.level is Level.WAITS
    assert "register" in finding.cause


def test_a_volume_that_cannot_be_mounted_is_found_in_the_events() -> None:
    found = event("Pod", "slurm-worker-cpu-1", "FailedMount", 'secret "slurm-key" not found')
    finding = the_only(starting("cpu-1", "ContainerCreating"), events=(found,))
    assert finding.code == "FailedMount"
    assert "slurm-key" in finding.cause


def test_the_event_of_another_pod_is_not_its_own() -> None:
    found = event("Pod", "slurm-worker-cpu-0", "FailedMount", "no")
    assert the_only(starting("cpu-1", "ContainerCreating"), events=(found,)).code == "Starting"


def test_a_failed_pod_quotes_why() -> None:
    finding = the_only(
        pod(phase="Failed", reason="Evicted", message="low on memory", conditions=[])
    )
    assert finding.code == "Evicted"
    assert "low on memory" in finding.cause


def test_a_pod_on_a_kubernetes_node_that_is_not_ready_blames_the_node() -> None:
    found = explained(starting("cpu-0", "ContainerCreating"), kube_nodes=(kube_node(ready=False),))
    assert [it.code for it in found] == ["KubeNodeNotReady"]


def test_a_kubernetes_node_that_does_not_exist_is_named() -> None:
    [finding] = explained(
        starting("cpu-0", "ContainerCreating"), absent_kube_nodes=frozenset({"kube-cpu-0"})
    )
    assert finding.code == "KubeNodeGone"


def test_kubernetes_nodes_that_were_not_read_are_not_blamed() -> None:
    assert [
        it.code for it in explained(starting("cpu-0", "ContainerCreating"), kube_nodes=None)
    ] == ["Starting"]


def test_a_terminating_worker_waits_for_its_jobs_until_its_grace_ends() -> None:
    found = pod()
    found["metadata"]["deletionTimestamp"] = at(3600)
    finding = the_only(found)
    assert (finding.code, finding.at) == ("Terminating", NOW + 3600)
    assert "waits for its jobs" in finding.cause


def test_a_pod_on_a_lost_kubernetes_node_has_the_taint_as_remedy() -> None:
    found = pod()
    found["metadata"]["deletionTimestamp"] = at(-60)
    finding = the_only(found, kube_nodes=(kube_node(ready=False),))
    assert finding.code == "KubeNodeLost"
    assert finding.commands[0].startswith(
        "kubectl taint node kube-cpu-0 node.kubernetes.io/out-of-service"
    )


def test_a_gated_pod_waits_for_its_gate() -> None:
    found = unscheduled()
    found["status"]["conditions"] = [condition("PodScheduled", "False", "SchedulingGated", "")]
    assert the_only(found).code == "SchedulingGated"


def test_a_pod_that_does_not_exist_is_not_known_and_unread_pods_are_not_absent() -> None:
    gone = subject.explain(seen(), "nobody")
    unread = subject.explain(seen(kube={"pods": None}), "nobody")
    assert (gone.known, gone.state) == (False, "does not exist")
    assert "could not be read" in unread.state
