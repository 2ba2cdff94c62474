"""Address plans of clusters that stand side by side."""

from itertools import combinations

import pytest

from tests.cluster.addresses import INDEXES, NODES, Plan, valid_name

PLANS = [Plan("x", index) for index in INDEXES]


def test_no_two_clusters_share_an_address_a_port_or_a_device() -> None:
    for one, other in combinations(PLANS, 2):
        assert not one.block.overlaps(other.block)
        assert not set(one.ports.values()) & set(other.ports.values())
        assert one.bridge != other.bridge
        assert not {one.node_veth(node) for node in NODES} & {
            other.node_veth(node) for node in NODES
        }


def test_the_networks_of_a_cluster_lie_apart_in_its_block() -> None:
    for plan in PLANS:
        networks = [plan.node_network, plan.pod_network, plan.service_network]
        assert all(network.subnet_of(plan.block) for network in networks)
        assert not any(one.overlaps(other) for one, other in combinations(networks, 2))


def test_nodes_have_pod_ranges_of_their_own_within_the_pod_network() -> None:
    plan = PLANS[0]
    ranges = [plan.node_pods(node) for node in NODES]
    assert all(each.subnet_of(plan.pod_network) for each in ranges)
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))


def test_device_names_are_short_enough_for_the_kernel() -> None:
    assert all(
        len(name) <= 15 for plan in PLANS for name in (plan.bridge, *map(plan.node_veth, NODES))
    )


def test_ports_stay_out_of_the_ephemeral_range() -> None:
    assert all(1024 < port < 32768 for plan in PLANS for port in plan.ports.values())


@pytest.mark.parametrize("name", ["slurm", "e2e", "a", "my-cluster-2"])
def test_a_plain_name_is_valid(name: str) -> None:
    assert valid_name(name)


@pytest.mark.parametrize("name", ["", "Slurm", "a/b", "..", "-a", "a-", "2x", "x" * 21, "a b"])
def test_a_name_that_is_no_folder_or_host_name_is_not_valid(name: str) -> None:
    assert not valid_name(name)
