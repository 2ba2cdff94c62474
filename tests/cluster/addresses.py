"""The address plan of a local cluster: every address, port and device name, derived from its name
and a small index.

Pure. Each index owns one /16 of private addresses, ten ports and its device names, so that clusters
stand side by side.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

INDEXES = range(40)
NODES = (1, 2, 3)
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")


def valid_name(name: str) -> bool:
    """Whether a cluster can be called so: its node names, folders and cgroups are derived from
    it.
    """
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Plan:
    """The addresses of the cluster `name` with the number `index` (of INDEXES)."""

    name: str
    index: int

    @property
    def block(self) -> IPv4Network:
        """Contains all networks of this cluster."""
        return IPv4Network(f"10.{200 + self.index}.0.0/16")

    @property
    def bridge(self) -> str:
        """The host's bridge that joins the nodes."""
        return f"slurm-br{self.index}"

    @property
    def node_network(self) -> IPv4Network:
        """Contains the bridge and the nodes."""
        return IPv4Network(f"10.{200 + self.index}.0.0/24")

    @property
    def host_address(self) -> IPv4Address:
        """The host as its nodes see it: apiserver and DNS answer here."""
        return self.node_network[1]

    @property
    def pod_network(self) -> IPv4Network:
        """Contains the pods of all nodes."""
        return IPv4Network(f"10.{200 + self.index}.16.0/20")

    @property
    def service_network(self) -> IPv4Network:
        """Contains the cluster IPs of Services."""
        return IPv4Network(f"10.{200 + self.index}.128.0/20")

    @property
    def kubernetes_service(self) -> IPv4Address:
        """Cluster IP of the Service `kubernetes`."""
        return self.service_network[1]

    def node_name(self, node: int) -> str:
        """Kubernetes name of a node."""
        return f"{self.name}-node-{node}"

    def node_address(self, node: int) -> IPv4Address:
        """InternalIP of a node."""
        return self.node_network[10 + node]

    def node_pods(self, node: int) -> IPv4Network:
        """Pod range of a node."""
        return IPv4Network(f"10.{200 + self.index}.{15 + node}.0/24")

    def node_veth(self, node: int) -> str:
        """The host's end of a node's link."""
        return f"slurm-v{self.index}n{node}"

    def port(self, offset: int) -> int:
        """One of the host's ports of this cluster."""
        return 16400 + 10 * self.index + offset

    @property
    def apiserver_port(self) -> int:
        """Where kube-apiserver answers."""
        return self.port(0)

    @property
    def ports(self) -> dict[str, int]:
        """Every TCP port that is opened on the host itself, by what answers there."""
        return {
            "kube-apiserver": self.port(0),
            "etcd": self.port(1),
            "etcd peers": self.port(2),
            "kube-controller-manager": self.port(3),
            "kube-scheduler": self.port(4),
            "coredns health": self.port(5),
            "coredns ready": self.port(6),
        }

    @property
    def cgroup(self) -> str:
        """Name of the cgroup that contains all of this cluster's processes."""
        return f"slurm-charts-{self.name}"
