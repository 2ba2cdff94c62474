"""The network of a local cluster: the host's bridge, each node's link and routes, and the way to
the outside.

Nodes reach each other and the host over the bridge; pods of other nodes are routed to their node's
address.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.addresses import NODES, Plan
from tests.cluster.commands import run, succeeds
from tests.cluster.waiting import until


def links() -> set[str]:
    """Names of the host's network devices."""
    return {link["ifname"] for link in json.loads(run(["ip", "-json", "link", "show"]))}


def routes() -> list[tuple[str, str]]:
    """Destination and device of each of the host's IPv4 routes."""
    return [
        (each["dst"], each.get("dev", ""))
        for each in json.loads(run(["ip", "-json", "-4", "route", "show"]) or "[]")
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
        run(
            [
                "ip",
                "addr",
                "replace",
                f"{plan.host_address}/{plan.node_network.prefixlen}",
                "dev",
                plan.bridge,
            ]
        )
        run(["ip", "link", "set", plan.bridge, "up"])
        for node in NODES:
            run(
                [
                    "ip",
                    "route",
                    "replace",
                    str(plan.node_pods(node)),
                    "via",
                    str(plan.node_address(node)),
                ]
            )
        # Cluster IPs work from the host as well, by the first node's kube-proxy.
        run(["ip", "route", "replace", str(plan.service_network), "via", str(plan.node_address(1))])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for rule in self._rules():
            if not succeeds(
                ["iptables", "-w", *self._table(rule), "-C", *rule[1:]], env=self.iptables_env
            ):
                run(["iptables", "-w", *self._table(rule), "-I", *rule[1:]], env=self.iptables_env)

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
        inside(
            "ip",
            "addr",
            "replace",
            f"{plan.node_address(node)}/{plan.node_network.prefixlen}",
            "dev",
            node_end,
        )
        inside("ip", "link", "set", "lo", "up")
        inside("ip", "link", "set", node_end, "up")
        inside("ip", "route", "replace", "default", "via", str(plan.host_address))
        for other in NODES:
            if other != node:
                inside(
                    "ip",
                    "route",
                    "replace",
                    str(plan.node_pods(other)),
                    "via",
                    str(plan.node_address(other)),
                )
        inside("sysctl", "-qw", "net.ipv4.ip_forward=1")

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
        run(
            [
                "ip",
                "route",
                "replace",
                str(plan.node_pods(node)),
                "via",
                str(plan.node_address(node)),
            ]
        )
        return kernel_end

    def down(self) -> None:
        """Remove devices, routes and rules."""
        for rule in self._rules():
            while succeeds(
                ["iptables", "-w", *self._table(rule), "-D", *rule[1:]], env=self.iptables_env
            ):
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

    def _rules(self) -> list[list[str]]:
        """Table, chain and rule of what lets the nodes' packets through a host that is closed, and
        to the outside.
        """
        plan = self.plan
        mark = ["-m", "comment", "--comment", plan.cgroup]
        return [
            ["filter", "INPUT", "-i", plan.bridge, *mark, "-j", "ACCEPT"],
            ["filter", "FORWARD", "-i", plan.bridge, *mark, "-j", "ACCEPT"],
            ["filter", "FORWARD", "-o", plan.bridge, *mark, "-j", "ACCEPT"],
            [
                "nat",
                "POSTROUTING",
                "-s",
                str(plan.block),
                "!",
                "-o",
                plan.bridge,
                *mark,
                "-j",
                "MASQUERADE",
            ],
        ]

    @staticmethod
    def _table(rule: list[str]) -> list[str]:
        return ["-t", rule[0]]


def usable_iptables(candidates: Mapping[str, Mapping[str, str]]) -> str | None:
    """The first of the candidates whose rules this kernel takes, tried in a network namespace of
    their own.
    """
    tries = [
        "-t nat -A POSTROUTING -m comment --comment try -j MASQUERADE",
        (
            "-t nat -A PREROUTING -m addrtype --dst-type LOCAL -p tcp -j DNAT --to-destination "
            "192.0.2.1:1"
        ),
        (
            "-t nat -A OUTPUT -m statistic --mode random --probability 0.5 -j MARK --set-xmark "
            "0x4000/0x4000"
        ),
        "-t filter -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-t mangle -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
    ]
    script = " && ".join(f"iptables -w {words}" for words in tries)
    for name, env in candidates.items():
        if succeeds(["unshare", "--net", "sh", "-ec", script], env=env):
            return name
    return None
