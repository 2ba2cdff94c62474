"""Address plans of clusters that stand side by side."""

from itertools import combinations

import pytest

from tests.cluster.addresses import (
    INDEXES,
    IPV4,
    IPV6,
    NODES,
    Family,
    Network,
    Plan,
    in_url,
    valid_name,
)

PLANS = [Plan("x", index) for index in INDEXES]
FAMILIES = [Family(version, index) for version in (IPV4, IPV6) for index in INDEXES]


def within(part: Network, whole: Network) -> bool:
    """Whether all addresses of the part are in the whole."""
    return part.version == whole.version and part[0] in whole and part[-1] in whole


def test_no_two_clusters_share_an_address_a_port_or_a_device() -> None:
    blocks = [family.block for family in FAMILIES]
    assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))
    for one, other in combinations(PLANS, 2):
        assert not set(one.ports.values()) & set(other.ports.values())
        assert one.bridge != other.bridge
        assert not {one.node_veth(node) for node in NODES} & {
            other.node_veth(node) for node in NODES
        }


def test_the_networks_of_a_cluster_lie_apart_in_its_block() -> None:
    for family in FAMILIES:
        networks = [family.node_network, family.pod_network, family.service_network]
        assert all(within(network, family.block) for network in networks)
        assert not any(one.overlaps(other) for one, other in combinations(networks, 2))


def test_nodes_have_pod_ranges_of_their_own_within_the_pod_network() -> None:
    for family in FAMILIES:
        ranges = [family.node_pods(node) for node in NODES]
        assert all(within(each, family.pod_network) for each in ranges)
        assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))


def test_a_cluster_prefers_the_addresses_of_its_first_ip_family() -> None:
    plan = Plan("x", 1, (IPV6, IPV4))
    assert plan.host_address == Family(IPV6, 1).host_address
    assert in_url(str(plan.host_address)) == f"[{plan.host_address}]"
    assert plan.node_address(2) in Family(IPV6, 1).node_network
    assert in_url(str(Plan("x", 1, (IPV4, IPV6)).host_address)) == "10.201.0.1"


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
