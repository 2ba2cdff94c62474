"""The address plan of a local cluster: every address, port and device name, derived from its name
and a small index.

Pure. Each index owns one /16 of private IPv4 addresses, one /56 of private IPv6 addresses, ten
ports and its device names, so that clusters stand side by side.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

INDEXES = range(40)
NODES = (1, 2, 3)
IPV4, IPV6 = 4, 6
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")


def valid_name(name: str) -> bool:
    """Whether a cluster can be called so: its node names, folders and cgroups are derived from
    it.
    """
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Family:
    """The addresses of one IP family (IPV4 or IPV6) of the cluster with the number `index`."""

    version: int
    index: int

    @property
    def block(self) -> Network:
        """Contains all networks of this cluster."""
        if self.version == IPV6:
            return IPv6Network(f"{self._prefix}00::/56")
        return IPv4Network(f"10.{200 + self.index}.0.0/16")

    @property
    def node_network(self) -> Network:
        """Contains the bridge and the nodes."""
        return self._part(0)

    @property
    def host_address(self) -> Address:
        """The host as its nodes see it: apiserver and DNS answer here."""
        return self.node_network[1]

    @property
    def pod_network(self) -> Network:
        """Contains the pods of all nodes."""
        if self.version == IPV6:
            return IPv6Network(f"{self._prefix}10::/60")
        return IPv4Network(f"10.{200 + self.index}.16.0/20")

    @property
    def service_network(self) -> Network:
        """Contains the cluster IPs of Services."""
        if self.version == IPV6:
            # kube-apiserver takes no larger one.
            return IPv6Network(f"{self._prefix}80::/108")
        return IPv4Network(f"10.{200 + self.index}.128.0/20")

    @property
    def anywhere(self) -> str:
        """The network of all addresses."""
        return "::/0" if self.version == IPV6 else "0.0.0.0/0"

    def node_address(self, node: int) -> Address:
        """InternalIP of a node."""
        return self.node_network[10 + node]

    def node_pods(self, node: int) -> Network:
        """Pod range of a node."""
        return self._part(15 + node)

    @property
    def _prefix(self) -> str:
        return f"fd53:6c75:726d:{self.index:x}"

    def _part(self, number: int) -> Network:
        if self.version == IPV6:
            return IPv6Network(f"{self._prefix}{number:02x}::/64")
        return IPv4Network(f"10.{200 + self.index}.{number}.0/24")


@dataclass(frozen=True)
class Plan:
    """The addresses of the cluster `name` with the number `index` (of INDEXES)."""

    name: str
    index: int
    versions: tuple[int, ...] = (IPV4,)
    """The IP families of nodes, pods and Services, the preferred one first."""

    @property
    def families(self) -> tuple[Family, ...]:
        """The addresses of each IP family, the preferred one first."""
        return tuple(Family(version, self.index) for version in self.versions)

    @property
    def bridge(self) -> str:
        """The host's bridge that joins the nodes."""
        return f"slurm-br{self.index}"

    @property
    def host_address(self) -> Address:
        """The host as its nodes see it: apiserver and DNS answer here."""
        return self.families[0].host_address

    @property
    def kubernetes_service(self) -> Address:
        """Cluster IP of the Service `kubernetes`."""
        return self.families[0].service_network[1]

    def node_name(self, node: int) -> str:
        """Kubernetes name of a node."""
        return f"{self.name}-node-{node}"

    def node_address(self, node: int) -> Address:
        """First InternalIP of a node."""
        return self.families[0].node_address(node)

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


def in_url(address: str) -> str:
    """An address as a part of a URL."""
    return f"[{address}]" if ":" in address else address
