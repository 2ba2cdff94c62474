"""Which packets the local cluster's test enforcer admits: `tests.cluster.network_policies`."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.cluster.network_policies import CHAIN, ruleset

NAMESPACES = [
    {"metadata": {"name": name, "labels": {"name": name}}} for name in ("slurm", "tenant")
]


def pod(address: str, app: str, namespace: str = "slurm", **spec: Any) -> dict[str, Any]:
    metadata = {"name": app, "namespace": namespace, "labels": {"app": app}}
    return {
        "metadata": metadata,
        "spec": {"containers": [], **spec},
        "status": {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"},
    }


def policy(app: str = "ctld", **spec: Any) -> dict[str, Any]:
    selector = {"podSelector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": "p", "namespace": "slurm"}, "spec": {**selector, **spec}}


def app(name: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": name}}}


CTLD, LOGIN, FOREIGN = (
    pod("10.0.0.1", "ctld"),
    pod("10.0.0.2", "login"),
    pod("10.0.0.3", "login", "tenant"),
)
PODS = [CTLD, LOGIN, FOREIGN]


def admits(
    rules: str, source: str, target: str, port: int, protocol: str = "tcp", kind: str = ""
) -> bool:
    """What the packet filter decides about a packet that begins a connection."""
    chains: dict[str, list[list[str]]] = {}
    for line in rules.splitlines():
        if line.startswith("-A "):
            _, chain, *words = line.split()
            chains.setdefault(chain, []).append(words)

    def matches(words: list[str]) -> bool:
        if "conntrack" in words:
            return False
        given = dict(zip(words[::2], words[1::2], strict=True))
        low, _, high = given.get("--dport", "0:65535").partition(":")
        return (
            ip_address(source) in ip_network(given.get("-s", f"{source}/0"), strict=False)
            and ip_address(target) in ip_network(given.get("-d", f"{target}/0"), strict=False)
            and given.get("-p", protocol) == protocol
            and given.get("--icmpv6-type", kind) == kind
            and int(low) <= port <= int(high or low)
        )

    def verdict(chain: str) -> str:
        for words in chains.get(chain, []):
            if matches(words):
                target = words[-1]
                if target in chains:
                    target = "" if verdict(target) == "RETURN" else "DROP"
                if target:
                    return target
        return "RETURN"

    return verdict(CHAIN) == "RETURN"


def test_a_pod_without_a_policy_is_open() -> None:
    rules = ruleset([policy(ingress=[])], PODS, NAMESPACES)
    assert admits(rules, "10.0.0.3", "10.0.0.2", 22)
    assert not admits(rules, "10.0.0.2", "10.0.0.1", 22)


def test_only_the_peers_of_a_rule_are_admitted_at_its_ports() -> None:
    rules = ruleset(
        [policy(ingress=[{"from": [app("login")], "ports": [{"port": 6817}]}])], PODS, NAMESPACES
    )
    assert admits(rules, "10.0.0.2", "10.0.0.1", 6817)
    assert not admits(rules, "10.0.0.2", "10.0.0.1", 6818)
    assert not admits(rules, "10.0.0.2", "10.0.0.1", 6817, "udp")
    assert not admits(rules, "10.0.0.3", "10.0.0.1", 6817), "the same labels in another namespace"
    assert not admits(rules, "192.0.2.1", "10.0.0.1", 6817)


def test_a_rule_without_peers_admits_everyone_and_one_without_ports_every_port() -> None:
    rules = ruleset(
        [policy(ingress=[{"ports": [{"port": 22}]}, {"from": [app("login")]}])], PODS, NAMESPACES
    )
    assert admits(rules, "192.0.2.1", "10.0.0.1", 22)
    assert not admits(rules, "192.0.2.1", "10.0.0.1", 23)
    assert admits(rules, "10.0.0.2", "10.0.0.1", 23, "udp")


def test_a_namespace_selector_admits_pods_of_those_namespaces() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"name": "tenant"}}}
    rules = ruleset([policy(ingress=[{"from": [peer]}])], PODS, NAMESPACES)
    assert admits(rules, "10.0.0.3", "10.0.0.1", 1)
    assert not admits(rules, "10.0.0.2", "10.0.0.1", 1)
    both = {"namespaceSelector": {}, **app("ctld")}
    assert not admits(
        ruleset([policy(ingress=[{"from": [both]}])], PODS, NAMESPACES), "10.0.0.3", "10.0.0.1", 1
    )


@pytest.mark.parametrize(
    ("expression", "admitted"),
    [
        ({"operator": "In", "values": ["login"]}, True),
        ({"operator": "NotIn", "values": ["login"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_expressions_select_like_in_kubernetes(expression: dict[str, Any], admitted: bool) -> None:
    peer = {"podSelector": {"matchExpressions": [{"key": "app", **expression}]}}
    rules = ruleset([policy(ingress=[{"from": [peer]}])], PODS, NAMESPACES)
    assert admits(rules, "10.0.0.2", "10.0.0.1", 1) is admitted


def test_addresses_are_admitted_except_those_excepted() -> None:
    peers = [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.64/26"]}}]
    rules = ruleset([policy(ingress=[{"from": peers}])], PODS, NAMESPACES)
    assert admits(rules, "192.0.2.63", "10.0.0.1", 1)
    assert not admits(rules, "192.0.2.64", "10.0.0.1", 1)
    assert admits(rules, "192.0.2.128", "10.0.0.1", 1)
    nothing = [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.0.0/16"]}}]
    assert not admits(
        ruleset([policy(ingress=[{"from": nothing}])], PODS, NAMESPACES), "192.0.2.1", "10.0.0.1", 1
    )


def test_blocked_addresses_are_unreachable_and_all_others_stay_reachable() -> None:
    blocks = [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}},
        {"ipBlock": {"cidr": "::/0"}},
    ]
    egress = policy(
        "login", policyTypes=["Ingress", "Egress"], ingress=[{}], egress=[{"to": blocks}]
    )
    rules = ruleset([egress], PODS, NAMESPACES)
    assert not admits(rules, "10.0.0.2", "169.254.169.254", 80)
    assert admits(rules, "10.0.0.2", "169.254.169.253", 80)
    assert admits(rules, "10.0.0.2", "10.0.0.1", 6817)
    assert admits(rules, "10.0.0.1", "169.254.169.254", 80), "a pod that the policy doesn't select"


def test_named_ports_are_those_of_the_pod_that_is_connected_to() -> None:
    named = [{"name": "c", "ports": [{"name": "health", "containerPort": 8081}]}]
    pods = [pod("10.0.0.1", "ctld", containers=named), LOGIN]
    rules = ruleset(
        [policy(ingress=[{"ports": [{"port": "health"}, {"port": "absent"}]}])], pods, NAMESPACES
    )
    assert admits(rules, "10.0.0.2", "10.0.0.1", 8081)
    assert not admits(rules, "10.0.0.2", "10.0.0.1", 8080)


def test_policies_add_up_and_a_pod_reaches_itself() -> None:
    policies = [policy(ingress=[{"ports": [{"port": port}]}]) for port in (1, 2)]
    rules = ruleset(policies, PODS, NAMESPACES)
    assert [admits(rules, "10.0.0.2", "10.0.0.1", port) for port in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert admits(rules, "10.0.0.1", "10.0.0.1", 3)


def test_pods_with_host_network_and_ended_pods_are_no_peers_and_not_subject() -> None:
    host = pod("10.0.0.9", "ctld", hostNetwork=True)
    ended = {**pod("10.0.0.8", "login"), "status": {**LOGIN["status"], "phase": "Succeeded"}}
    rules = ruleset([policy(ingress=[{"from": [app("login")]}])], [CTLD, host, ended], NAMESPACES)
    assert admits(rules, "192.0.2.1", "10.0.0.9", 1)
    assert not admits(rules, "10.0.0.2", "10.0.0.1", 1)


def test_each_version_of_ip_has_rules_of_its_own() -> None:
    def both(app: str, number: int) -> dict[str, Any]:
        found = pod(f"10.0.0.{number}", app)
        found["status"]["podIPs"].append({"ip": f"fd00::{number}"})
        return found

    pods = [both("ctld", 1), both("login", 2), both("slurmd", 3)]
    blocks = [
        {"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48", "192.0.2.0/24"]}},
        {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32", "2001:db8::/32"]}},
    ]
    policies = [policy(ingress=[{"from": [app("login"), *blocks]}])]
    four, six = (ruleset(policies, pods, NAMESPACES, version) for version in (4, 6))
    assert ":" not in "".join(line for line in four.splitlines() if line.startswith("-A"))
    assert admits(four, "10.0.0.2", "10.0.0.1", 1)
    assert not admits(four, "10.0.0.3", "10.0.0.1", 1)
    assert admits(four, "192.0.2.2", "10.0.0.1", 1)
    assert not admits(four, "192.0.2.1", "10.0.0.1", 1)
    assert admits(six, "fd00::2", "fd00::1", 1)
    assert not admits(six, "fd00::3", "fd00::1", 1)
    assert not admits(six, "fd00::3", "fd00::1", 0, "icmpv6", "echo-request")
    assert admits(six, "fd00::3", "fd00::1", 0, "icmpv6", "neighbour-solicitation")
    assert admits(six, "fd00::3", "fd00::1", 0, "icmpv6", "neighbour-advertisement")
    assert admits(six, "2001:db8:2::1", "fd00::1", 1)
    assert not admits(six, "2001:db8:1::1", "fd00::1", 1)
