"""Records decode what the API server sends, ignore the rest, and read as absent what is missing."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from sidecars import objects

POD = b"""{
  "apiVersion": "v1", "kind": "Pod",
  "metadata": {
    "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7",
    "managedFields": [{"manager": "kubelet"}],
    "creationTimestamp": "2026-01-02T03:04:05Z",
    "ownerReferences": [{"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
                        {"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "n",
                         "uid": "2", "controller": true, "blockOwnerDeletion": true}]
  },
  "spec": {"nodeName": "n1", "hostname": "slinky-0", "containers": [{"name": "slurmd"}]},
  "status": {
    "phase": "Running", "podIP": "10.0.0.7", "hostIP": "10.0.0.1",
    "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null,
                    "lastTransitionTime": "2026-01-02T03:04:06Z"}],
    "containerStatuses": [{"name": "slurmd", "ready": true, "restartCount": 2,
                           "imageID": "sha256:1",
                           "containerID": "containerd://1",
                           "state": {"running": {"startedAt": "2026-01-02T03:04:06Z"}},
                           "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
  }
}"""


def test_a_pod_has_the_fields_that_controllers_decide_by() -> None:
    pod = msgspec.json.decode(POD, type=objects.Pod)
    assert pod.metadata.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.kind == "NodeSet"
    assert (pod.spec.node_name, pod.spec.hostname) == ("n1", "slinky-0")
    assert (pod.status.phase, pod.status.pod_ip) == ("Running", "10.0.0.7")
    ready = pod.status.condition("Ready")
    assert ready is not None
    assert ready.status == "True"
    assert pod.status.condition("Other") is None
    slurmd = pod.status.container_statuses[0]
    assert slurmd.restart_count == 2
    assert slurmd.state.running is not None
    assert slurmd.last_state.terminated == objects.ContainerStateTerminated(reason="OOMKilled")


def test_what_is_absent_reads_as_empty() -> None:
    pod = msgspec.json.decode(b'{"metadata": {"name": "p"}}', type=objects.Pod)
    assert pod == objects.Pod(objects.ObjectMeta(name="p"))
    assert pod.metadata.controller is None
    assert pod.metadata.labels == {}
    assert pod.status.container_statuses == ()


def test_a_secret_is_decoded_and_never_printed() -> None:
    content = b'{"metadata": {"name": "s", "namespace": "ns"}, "data": {"jwt.key": "aHVzaA=="}}'
    secret = msgspec.json.decode(content, type=objects.Secret)
    assert secret.data == {"jwt.key": b"hush"}
    assert repr(secret) == "Secret(ns/s, keys ['jwt.key'])"
    assert "hush" not in f"{secret} {[secret]}"


def test_a_record_cannot_be_changed() -> None:
    pod = msgspec.json.decode(POD, type=objects.Pod)
    with pytest.raises(AttributeError):
        setattr(pod, "spec", objects.PodSpec())  # noqa: B010 - a type checker would refuse the plain statement
