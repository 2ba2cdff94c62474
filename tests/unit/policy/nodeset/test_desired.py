"""The pods that a NodeSet asks for: `sidecars.policy.nodeset.desired`."""

from typing import Any

import pytest

from sidecars.contract.autoscaling import Applied, encode
from sidecars.policy.nodeset.desired import deletion_deadline, desired_pods
from sidecars.policy.nodeset.records import DesiredPods, WorkerPod
from sidecars.policy.placement import Rules
from sidecars.workloads import names
from tests.support import builders
from tests.unit.policy.nodeset.builders import NOW, worker

DELETED = {"deletionTimestamp": "1970-01-12T13:46:00Z"}
DELETED_AT = 12 * 86_400 - 86_400 + 13 * 3600 + 46 * 60
NODES = {name: builders.kube_node(name, {"labels": {"pool": name}}) for name in ("a", "b")}


def asked(
    *pods: WorkerPod,
    meta: dict[str, Any] | None = None,
    rules: Rules | None = Rules.of({}),  # noqa: B008 - immutable
    now: float = NOW,
    **spec: Any,
) -> DesiredPods:
    nodeset = builders.nodeset("slinky", meta, **spec)
    return desired_pods(nodeset, "new", rules, NODES, pods, now)


@pytest.mark.parametrize(("value", "want"), [(3, 3), (0, 1), ("25%", 3), ("1%", 1), ("x", 1)])
def test_at_least_one_pod_may_be_unavailable_and_a_percentage_is_rounded_up(
    value: object, want: int
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": value}}
    assert asked(replicas=10, updateStrategy=strategy).max_unavailable == want


def test_without_a_template_nothing_is_updated_and_every_pod_keeps_its_place() -> None:
    here = worker(0, mode="DaemonSet", place="a", slurm_node="a")
    found = asked(here, rules=None, scalingMode="DaemonSet")
    assert (found.rolling, found.reservation) == (False, None)
    assert found.places is not None
    assert [(it.kube_node, it.should_run, it.may_stay) for it in found.places.values()] == [
        ("a", True, True)
    ]


def test_in_daemon_set_mode_each_kubernetes_node_that_fits_is_a_replica() -> None:
    found = asked(scalingMode="DaemonSet", rules=Rules.of({"nodeSelector": {"pool": "b"}}))
    assert found.replicas == 1
    assert found.mode == "DaemonSet"


def test_pins_are_in_the_order_of_their_ordinals() -> None:
    found = asked(
        worker(10, kube_node="a"), worker(9, kube_node="b"), pinToNode=True, replicas=11
    ).pins
    assert list(found.items()) == [("9", "b"), ("10", "a")]


def test_pins_are_those_of_the_running_pods_and_earlier_ones_that_still_fit() -> None:
    meta_and_spec: dict[str, Any] = {"pinToNode": True, "replicas": 3}
    running = worker(1, kube_node="b")
    assert asked(running, **meta_and_spec).pins == {"1": "b"}
    assert asked(worker(1, kube_node="b", kube_node_gone=True), **meta_and_spec).pins == {}
    assert asked(running, replicas=3).pins == {}


def test_without_a_deletion_timeout_a_deleted_nodeset_waits_for_jobs_without_a_limit() -> None:
    found = asked(meta=DELETED, now=DELETED_AT + 365 * 86_400)
    assert (found.deleting, found.forced) == (True, False)
    assert deletion_deadline(builders.nodeset("slinky", DELETED)) is None


def test_a_deletion_timeout_limits_the_wait_for_jobs() -> None:
    assert asked(meta=DELETED, now=DELETED_AT + 60, deletionTimeout="60s").forced
    assert not asked(meta=DELETED, now=DELETED_AT + 59, deletionTimeout="60s").forced
    assert not asked(now=DELETED_AT + 60, deletionTimeout="60s").forced
    assert not asked().deleting


def test_the_deadline_counts_from_the_deletion() -> None:
    assert (
        deletion_deadline(builders.nodeset("slinky", DELETED, deletionTimeout="60s"))
        == DELETED_AT + 60
    )
    assert deletion_deadline(builders.nodeset("slinky")) is None


def test_autoscaling_names_the_pods_to_remove_only_for_the_number_that_it_has_written() -> None:
    def removable(replicas: int, autoscaling: Any) -> tuple[str, ...] | None:
        meta = {"annotations": {names.AUTOSCALING: encode(Applied(2, ("slinky-1",)))}}
        return asked(meta=meta, replicas=replicas, autoscaling=autoscaling).removable

    assert removable(2, {"max": 5}) == ("slinky-1",)
    assert removable(1, {"max": 5}) is None
    assert removable(2, None) is None
    assert asked(replicas=2, autoscaling={"max": 5}).removable is None
