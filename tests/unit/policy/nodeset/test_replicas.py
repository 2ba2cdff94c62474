"""Which pods are surplus or missing, and in which order they are deleted:
`sidecars.policy.nodeset.replicas`.
"""

from sidecars.policy.nodeset.records import DesiredPods, SlurmView
from sidecars.policy.nodeset.replicas import (
    MODE_CHANGE,
    NO_MATCH,
    SCALE_IN,
    condemn,
    deletion_order,
    free_ordinals,
    in_maintenance,
    misplaced,
    outdated,
)
from sidecars.policy.placement import Place
from tests.unit.policy.nodeset.builders import node, slurm, worker


def test_pods_are_preferred_for_deletion_in_the_documented_order() -> None:
    unbound = worker(0, kube_node=None, phase="Pending", ready=False, started=False)
    pending = worker(1, phase="Pending", ready=False)
    unknown = worker(2, phase="Unknown", ready=False)
    not_ready = worker(3, ready=False)
    cheap = worker(4, deletion_cost=-5)
    cordoned = worker(5, cordon="user")
    high, low, busy = worker(7), worker(6), worker(8)
    view = {"slinky-8": node(8, "MIXED")}
    want = [unbound, pending, unknown, not_ready, cheap, cordoned, high, low, busy]
    assert sorted(want, key=lambda pod: deletion_order(pod, SlurmView(view, None))) == want


def test_the_lowest_ordinals_that_no_pod_has_are_free() -> None:
    pods = [worker(0), worker(2, terminating=True), worker(4)]
    assert free_ordinals(pods, 3) == (1, 3, 5)
    assert free_ordinals([], 0) == ()


def test_a_pod_of_daemonset_mode_occupies_no_ordinal() -> None:
    assert free_ordinals([worker(0, mode="DaemonSet")], 1) == (0,)


def test_surplus_pods_are_condemned_from_the_front_of_the_order_and_another_modes_first() -> None:
    pods = [worker(2), worker(1), worker(0, mode="DaemonSet")]
    assert condemn(DesiredPods("slurm", 1, "new"), pods, pods, slurm()) == {
        "slinky-0": MODE_CHANGE,
        "slinky-2": SCALE_IN,
    }


def test_every_pod_of_a_nodeset_that_is_being_deleted_is_condemned() -> None:
    pods = [worker(0), worker(1)]
    assert set(condemn(DesiredPods("slurm", 2, "new", deleting=True), pods, pods, slurm())) == {
        "slinky-0",
        "slinky-1",
    }


def test_only_the_oldest_pod_of_a_place_that_admits_it_is_not_misplaced() -> None:
    pods = [
        worker(0, place="kube-0", created=1.0),
        worker(1, place="kube-0", slurm_node="slinky-0", created=2.0),
        worker(2, place="kube-2"),
        worker(3, place="gone"),
    ]
    places = {
        "kube-0": Place("kube-0", "slinky-0", should_run=True, may_stay=True),
        "kube-2": Place("kube-2", "slinky-2", should_run=False, may_stay=False),
    }
    found = misplaced(pods, places)
    assert found == {
        "slinky-1": "another pod on its Kubernetes node",
        "slinky-2": NO_MATCH,
        "slinky-3": "its Kubernetes node, which is gone",
    }


def test_an_update_replaces_no_more_available_pods_than_may_be_unavailable() -> None:
    desired = DesiredPods("slurm", 3, "new", max_unavailable=1)
    view = SlurmView({f"slinky-{number}": node(number, "IDLE") for number in range(3)}, None)
    old = [worker(number, revision="old") for number in range(3)]
    assert outdated(desired, old, view) == ["slinky-2"]
    assert outdated(desired, [*old[:2], worker(2, available=False)], view) == []
    assert outdated(desired, old[:2], view) == [], "one is missing"


def test_a_node_is_in_maintenance_only_in_its_own_reservation() -> None:
    assert in_maintenance(node(0, "IDLE", "MAINTENANCE", reservation="other,ours"), "ours")
    assert not in_maintenance(node(0, "IDLE", "MAINTENANCE", reservation="ours-2"), "ours")
    assert not in_maintenance(node(0, "IDLE", reservation="ours"), "ours")
    assert not in_maintenance(None, "ours")


def test_of_surplus_pods_only_those_that_autoscaling_names_are_condemned_in_its_order() -> None:
    pods = [worker(number) for number in range(4)]
    named = DesiredPods("slurm", 2, "new", removable=("slinky-1", "slinky-0", "slinky-3"))
    assert list(condemn(named, pods, pods, slurm())) == ["slinky-1", "slinky-0"]
    assert condemn(DesiredPods("slurm", 2, "new", removable=()), pods, pods, slurm()) == {}


def test_a_named_pod_with_a_job_is_condemned_only_if_it_already_is() -> None:
    pods = [worker(0), worker(1, cordon="operator"), worker(2)]
    view = SlurmView({"slinky-0": node(0, "MIXED"), "slinky-1": node(1, "MIXED", "DRAIN")}, None)
    named = DesiredPods("slurm", 1, "new", removable=("slinky-0", "slinky-1"))
    assert list(condemn(named, pods, pods, view)) == ["slinky-1"]


def test_a_named_pod_without_a_slurm_node_is_known_by_its_own_name() -> None:
    pods = [worker(number, slurm_node="", kube_node=None) for number in range(3)]
    named = DesiredPods("slurm", 1, "new", removable=(pods[2].name, pods[0].name))
    assert list(condemn(named, pods, pods, slurm())) == [pods[2].name, pods[0].name]
