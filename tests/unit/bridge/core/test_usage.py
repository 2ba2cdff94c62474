"""What other pods request of a Kubernetes node."""

from typing import Any

import msgspec

from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.nodes import Usage
from sidecars.bridge.core.usage import UsageBook
from sidecars.contract import bridge


def pod(uid: str, cpu: str, memory: str, node: str = "k1", **more: Any) -> Pod:
    containers = [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}]
    metadata = {"name": uid, "uid": uid, **more.pop("metadata", {})}
    spec = {"nodeName": node, "containers": containers}
    return msgspec.convert({"metadata": metadata, "spec": spec, **more}, Pod)


def test_requests_are_added_and_rounded_up_once() -> None:
    book = UsageBook()
    book.put(pod("a", "600m", "1Mi"))
    book.put(pod("b", "600m", "1"))
    book.put(pod("c", "3", "1Gi", node="k2"))
    assert book.of("k1") == Usage(2, 2)
    assert book.of("k2") == Usage(3, 1024)
    assert book.of("k3") == Usage()


def test_a_pod_that_changes_or_goes_is_not_counted_twice() -> None:
    book = UsageBook()
    book.put(pod("a", "1", "1Gi"))
    book.put(pod("a", "2", "1Gi"))
    assert book.of("k1") == Usage(2, 1024)
    book.discard(pod("a", "2", "1Gi"))
    assert book.of("k1") == Usage()


def test_only_a_change_of_what_is_requested_is_one() -> None:
    book = UsageBook()
    assert book.put(pod("a", "1", "1Gi"))
    assert not book.put(pod("a", "1", "1Gi", status={"phase": "Running"}))
    assert book.put(pod("a", "2", "1Gi"))
    assert book.put(pod("a", "2", "1Gi", status={"phase": "Succeeded"}))
    assert not book.discard(pod("a", "2", "1Gi"))
    assert book.put(pod("a", "2", "1Gi"))
    assert book.discard(pod("a", "2", "1Gi"))


def test_neither_pods_that_slurm_schedules_nor_finished_ones_count() -> None:
    book = UsageBook()
    book.put(pod("a", "1", "1Gi", metadata={"labels": {bridge.JOB_LABEL: "5"}}))
    book.put(pod("b", "1", "1Gi", status={"phase": "Succeeded"}))
    book.put(pod("c", "1", "1Gi", node=""))
    assert book.of("k1") == Usage()
