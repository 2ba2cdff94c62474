"""The configuration of a node and of DNS, as it follows from the address plan."""

from pathlib import Path

from tests.cluster.addresses import IPV4, IPV6, Plan
from tests.cluster.local import corefile
from tests.cluster.nodes import (
    cni_configuration,
    kubelet_configuration,
    proxy_configuration,
    upstream,
)

PLAN = Plan("slurm", 2)


def test_pods_of_a_node_get_addresses_of_its_range_and_are_not_masqueraded() -> None:
    bridge = cni_configuration(PLAN, 3)["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.202.18.0/24"}]]
    assert bridge["ipMasq"] is False


def test_a_kubelet_answers_at_its_node_and_points_pods_at_the_hosts_dns() -> None:
    serving = (Path("/crt"), Path("/key"))
    made = kubelet_configuration(
        PLAN, 1, authority=Path("/ca"), serving=serving, resolv_conf=Path("/resolv.conf")
    )
    assert made["address"] == "10.202.0.11"
    assert made["clusterDNS"] == ["10.202.0.1"]
    assert made["cgroupRoot"] == "/slurm-charts-slurm/node-1"
    assert made["authentication"]["anonymous"] == {"enabled": False}


def test_kube_proxy_knows_all_pods_of_the_cluster() -> None:
    made = proxy_configuration(PLAN, 2, Path("/kubeconfig"))
    assert made["clusterCIDR"] == "10.202.16.0/20"
    assert made["hostnameOverride"] == "slurm-node-2"


def test_dns_binds_to_the_clusters_bridge_alone() -> None:
    made = corefile(PLAN, Path("/kubeconfig"), "nameserver 192.0.2.53\n")
    assert made.count("bind 10.202.0.1") == 2
    assert "forward . /etc/resolv.conf" in made


def test_dns_forwards_nothing_on_a_host_without_name_servers() -> None:
    assert "forward" not in corefile(PLAN, Path("/kubeconfig"), "search example.org\n")


def test_a_name_server_that_only_the_host_reaches_is_not_passed_on() -> None:
    assert (
        upstream("search x\nnameserver 127.0.0.53\nnameserver 192.0.2.53\n")
        == "nameserver 192.0.2.53\n"
    )


def test_pods_have_an_address_and_a_route_of_each_ip_family_in_their_order() -> None:
    plan = Plan("slurm", 2, (IPV6, IPV4))
    ipam = cni_configuration(plan, 3)["plugins"][0]["ipam"]
    assert ipam["ranges"] == [
        [{"subnet": "fd53:6c75:726d:212::/64"}],
        [{"subnet": "10.202.18.0/24"}],
    ]
    assert ipam["routes"] == [{"dst": "::/0"}, {"dst": "0.0.0.0/0"}]
    proxy = proxy_configuration(plan, 3, Path("/kubeconfig"))
    assert proxy["clusterCIDR"] == "fd53:6c75:726d:210::/60,10.202.16.0/20"


def test_the_daemons_of_an_ipv6_cluster_answer_and_ask_at_ipv6_addresses() -> None:
    plan = Plan("slurm", 2, (IPV6,))
    serving = (Path("/crt"), Path("/key"))
    kubelet = kubelet_configuration(
        plan, 1, authority=Path("/ca"), serving=serving, resolv_conf=Path("/resolv.conf")
    )
    assert kubelet["address"] == "fd53:6c75:726d:200::b"
    assert kubelet["clusterDNS"] == ["fd53:6c75:726d:200::1"]
    assert "bind fd53:6c75:726d:200::1\n" in corefile(plan, Path("/kubeconfig"), "")
