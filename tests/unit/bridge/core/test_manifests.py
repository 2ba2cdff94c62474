"""Pods and nodes as the API server sends them."""

import msgspec

from sidecars.bridge.core.manifests import Node, Pod


def test_a_pod_is_read_with_what_a_decision_needs() -> None:
    text = b"""{"metadata": {"name": "p", "namespace": "n", "uid": "u", "managedFields": [],
      "ownerReferences": [{"kind": "Other", "uid": "x"},
                          {"kind": "Job", "uid": "j", "controller": true}]},
      "spec": {"schedulingGates": [{"name": "g"}], "containers": [{"name": "c", "image": "i"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
          "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}}},
      "status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "m"}]}}"""
    pod = msgspec.json.decode(text, type=Pod)
    assert pod.metadata.controller_uid == "j"
    assert [it.name for it in pod.spec.scheduling_gates] == ["g"]
    scheduled = pod.status.condition("PodScheduled")
    assert scheduled is not None
    assert scheduled.message == "m"
    assert pod.status.condition("Ready") is None
    assert not pod.finished


def test_a_pod_that_nothing_controls_has_no_owner_and_a_failed_one_is_finished() -> None:
    pod = msgspec.json.decode(
        b'{"metadata": {"name": "p"}, "status": {"phase": "Failed"}}', type=Pod
    )
    assert pod.metadata.controller_uid == ""
    assert pod.finished


def test_a_node_without_a_status_has_no_address_and_is_not_ready() -> None:
    node = msgspec.json.decode(b'{"metadata": {"name": "k1"}}', type=Node)
    assert (node.address, node.ready) == ("", False)
