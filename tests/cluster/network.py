"""The network of a local cluster: the host's bridge, each node's link and routes, and the way to
the outside.

Nodes reach each other and the host over the bridge; pods of other nodes are routed to their node's
address. Only IPv4 is forwarded to the outside: a host that forwards IPv6 ignores the routes that
its routers announce.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.addresses import IPV4, IPV6, NODES, Family, Plan
from tests.cluster.commands import run, succeeds
from tests.cluster.waiting import until


def links() -> set[str]:
    """Names of the host's network devices."""
    return {link["ifname"] for link in json.loads(run(["ip", "-json", "link", "show"]))}


def routes(version: int = IPV4) -> list[tuple[str, str]]:
    """Destination and device of each of the host's routes of one IP family."""
    return [
        (each["dst"], each.get("dev", ""))
        for each in json.loads(run(["ip", "-json", f"-{version}", "route", "show"]) or "[]")
    ]


@dataclass(frozen=True)
class Network:
    """The network of one cluster. `iptables_env` is the environment in which `iptables` is
    found.
    """

    plan: Plan
    iptables_env: Mapping[str, str]

    def up(self) -> None:
        """The bridge with its routes and rules."""
        plan = self.plan
        if plan.bridge not in links():
            run(["ip", "link", "add", plan.bridge, "type", "bridge"])
        for family in plan.families:
            run(_address(family, family.host_address, plan.bridge))
        run(["ip", "link", "set", plan.bridge, "up"])
        for family in plan.families:
            for node in NODES:
                run(_route(family, str(family.node_pods(node)), family.node_address(node)))
            # Cluster IPs work from the host as well, by the first node's kube-proxy.
            run(_route(family, str(family.service_network), family.node_address(1)))
        if IPV4 in plan.versions:
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for rule in self._rules():
            if not succeeds(rule.words("-C"), env=self.iptables_env):
                run(rule.words("-I"), env=self.iptables_env)

    def join(self, node: int, holder: int) -> None:
        """Link the network namespace of the process `holder` to the bridge as `node`."""
        plan = self.plan
        host_end, node_end = plan.node_veth(node), "eth0"

        def inside(*words: str) -> str:
            return run(["nsenter", f"--net=/proc/{holder}/ns/net", *words])

        if not succeeds(
            ["nsenter", f"--net=/proc/{holder}/ns/net", "ip", "link", "show", node_end]
        ):
            self._drop(host_end)
            run(
                [
                    "ip",
                    "link",
                    "add",
                    host_end,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    node_end,
                    "netns",
                    str(holder),
                ]
            )
        run(["ip", "link", "set", host_end, "master", plan.bridge, "up"])
        for family in plan.families:
            inside(*_address(family, family.node_address(node), node_end))
        inside("ip", "link", "set", "lo", "up")
        inside("ip", "link", "set", node_end, "up")
        for family in plan.families:
            inside(*_route(family, "default", family.host_address))
            for other in NODES:
                if other != node:
                    inside(
                        *_route(family, str(family.node_pods(other)), family.node_address(other))
                    )
            inside("sysctl", "-qw", _FORWARDING[family.version])

    def attach(self, node: int) -> str:
        """A link for the kernel of `node`, and the route to its pods; the device on which the
        kernel opens a socket.
        """
        plan = self.plan
        bridge_end, kernel_end = plan.node_veth(node), f"{plan.node_veth(node)}k"
        self._drop(bridge_end)
        run(["ip", "link", "add", bridge_end, "type", "veth", "peer", "name", kernel_end])
        run(["ip", "link", "set", bridge_end, "master", plan.bridge, "up"])
        # The host itself must not answer on it.
        run(["ip", "link", "set", kernel_end, "arp", "off", "addrgenmode", "none", "up"])
        for family in plan.families:
            run(_route(family, str(family.node_pods(node)), family.node_address(node)))
        return kernel_end

    def down(self) -> None:
        """Remove devices, routes and rules."""
        for rule in self._rules():
            while succeeds(rule.words("-D"), env=self.iptables_env):
                pass
        for node in (*NODES, NODES[-1] + 1):
            self._drop(self.plan.node_veth(node))
        self._drop(self.plan.bridge)

    def _drop(self, device: str) -> None:
        if device in links():
            # A link whose other end lies in a namespace that is just being torn down may vanish
            # meanwhile.
            succeeds(["ip", "link", "delete", device])
            until(lambda: device not in links(), f"network device {device} to be gone", 60)

    def _rules(self) -> list["_Rule"]:
        """What lets the nodes' packets through a host that is closed, and to the outside."""
        plan = self.plan
        mark = ("-m", "comment", "--comment", plan.cgroup)
        found = []
        for family in plan.families:
            here = [
                ("INPUT", "-i", plan.bridge),
                ("FORWARD", "-i", plan.bridge),
                ("FORWARD", "-o", plan.bridge),
            ]
            found += [
                _Rule(family.version, "filter", (*words, *mark, "-j", "ACCEPT")) for words in here
            ]
            if family.version == IPV4:
                outside = ("POSTROUTING", "-s", str(family.block), "!", "-o", plan.bridge)
                found.append(_Rule(IPV4, "nat", (*outside, *mark, "-j", "MASQUERADE")))
        return found


@dataclass(frozen=True)
class _Rule:
    """A rule of the packet filter: `rest` begins with its chain."""

    version: int
    table: str
    rest: tuple[str, ...]

    def words(self, action: str) -> list[str]:
        """Words that do it: `-I` inserts, `-D` deletes, `-C` looks whether it exists."""
        return [PACKET_FILTERS[self.version], "-w", "-t", self.table, action, *self.rest]


PACKET_FILTERS = {IPV4: "iptables", IPV6: "ip6tables"}
"""The program that sets the rules of an IP family."""
_FORWARDING = {IPV4: "net.ipv4.ip_forward=1", IPV6: "net.ipv6.conf.all.forwarding=1"}


def _address(family: Family, address: object, device: str) -> list[str]:
    """Words that give a device an address among the nodes'."""
    words = ["ip", "addr", "replace", f"{address}/{family.node_network.prefixlen}", "dev", device]
    # No other host can have the address, and until that was found out it can't be used.
    return [*words, "nodad"] if family.version == IPV6 else words


def _route(family: Family, destination: str, gateway: object) -> list[str]:
    return ["ip", f"-{family.version}", "route", "replace", destination, "via", str(gateway)]


def usable_iptables(
    candidates: Mapping[str, Mapping[str, str]], versions: tuple[int, ...] = (IPV4,)
) -> str | None:
    """The first of the candidates whose rules this kernel takes for these IP families, tried in a
    network namespace of their own.
    """
    elsewhere = {IPV4: "192.0.2.1:1", IPV6: "[2001:db8::1]:1"}
    tries = [
        "-t nat -A POSTROUTING -m comment --comment try -j MASQUERADE",
        (
            "-t nat -A PREROUTING -m addrtype --dst-type LOCAL -p tcp -j DNAT --to-destination "
            "{elsewhere}"
        ),
        (
            "-t nat -A OUTPUT -m statistic --mode random --probability 0.5 -j MARK --set-xmark "
            "0x4000/0x4000"
        ),
        "-t filter -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-t mangle -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
    ]
    script = " && ".join(
        f"{PACKET_FILTERS[version]} -w {words.format(elsewhere=elsewhere[version])}"
        for version in versions
        for words in tries
    )
    for name, env in candidates.items():
        if succeeds(["unshare", "--net", "sh", "-ec", script], env=env):
            return name
    return None
