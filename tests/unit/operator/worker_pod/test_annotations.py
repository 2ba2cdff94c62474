"""Topology and features from a Kubernetes node's annotations."""

import pytest

from sidecars.operator.worker_pod.annotations import (
    Topology,
    bad_features,
    features,
    sets_topology,
    topology,
)


@pytest.mark.parametrize(
    ("wanted", "stamped", "registered", "what"),
    [
        # Just bound: register reads the stamp.
        ("s1", None, None, Topology(None, "s1")),
        ("", None, None, Topology(None, "")),
        # A pod of an operator that didn't stamp, or whose register gave up waiting.
        ("s1", None, "", Topology("s1", "s1")),
        ("s1", "s1", "", Topology("s1")),
        # Settled.
        ("s1", "s1", "s1", Topology()),
        ("s1", "s1", "tree:root:s1", Topology()),
        ("", "", "", Topology()),
        # Changed later: Slurm first, then the stamp, which records what Slurm got.
        ("s2", "s1", "s1", Topology("s2", "s2")),
        ("", "s1", "s1", Topology("", "")),
        # Changed while register may be reading the old one: sent once the record exists.
        ("s2", "s1", None, Topology()),
    ],
)
def test_slurm_gets_what_register_has_not_read(
    wanted: str, stamped: str | None, registered: str | None, what: Topology
) -> None:
    assert topology(wanted, stamped, registered) == what


def test_a_nodeset_with_a_topology_of_its_own_is_left_alone() -> None:
    assert sets_topology("Weight=1 topology=tree:s1")
    assert not sets_topology("Weight=1 Features=topology")


def test_features_get_a_prefix_and_replace_only_their_kind() -> None:
    assert features("zone-a, fast,,fast", ["slinky", "k8s/old"]) == (
        "k8s/fast",
        "k8s/zone-a",
        "slinky",
    )
    assert features("", ["slinky", "k8s/old"]) == ("slinky",)


def test_features_that_are_there_already_are_not_written() -> None:
    assert features("b,a", ["slinky", "k8s/a", "k8s/b"]) is None
    assert features("", ["slinky"]) is None


def test_names_that_no_constraint_could_contain_are_left_out() -> None:
    assert features("a b,c&d,ok", []) == ("k8s/ok",)
    assert bad_features("a b,c&d,ok") == ("a b", "c&d")
