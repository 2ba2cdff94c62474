"""The operator's command line and environment, as one typed record."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sidecars.commandline import Parser
from sidecars.contract import environment as variables
from sidecars.contract.project import REGISTRY, VERSION

DEFAULT_IMAGE = f"{REGISTRY}/sidecars:{VERSION}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one operator process."""

    namespaces: tuple[str, ...] = ()
    """The namespaces that are watched; empty for all."""
    slurmrestd_url: str | None = None
    """One slurmrestd for all Controllers, for development; None: each Controller's own."""
    kubeconfig: Path | None = None
    """None: the files of $KUBECONFIG, else the service account of the pod."""
    workloads: Path | None = None
    """Folder with the pod structure of the daemons; None: the one in the package."""
    sidecars_image: str = DEFAULT_IMAGE
    """Image of the sidecars in the pods that the operator creates."""
    ipv6: bool = False
    """Whether pods communicate by IPv6."""
    cluster_domain: str = "cluster.local"
    """DNS domain of the Kubernetes cluster."""
    health_addr: str = ":8081"
    """`HOST:PORT` of /healthz and /readyz; "0" for none."""
    metrics_addr: str = ":8080"
    """`HOST:PORT` of /metrics; "0" for none."""
    metrics_secure: bool = False
    """Whether /metrics is served over TLS, and only to users who may `get` that path."""
    propagated_node_conditions: tuple[str, ...] = ()
    """Types of node conditions whose reason and message become part of a cordoned node's drain
    reason, in order.
    """
    cordon_drained_nodes: bool = False
    """Whether the Kubernetes node of a worker is cordoned that was drained in Slurm by a user."""
    label_kube_nodes: bool = False
    """Whether the Kubernetes node of a pinned worker gets a label with the name of its Slurm node.
    """
    allowed_service_accounts: tuple[str, ...] = ()
    """ServiceAccounts, as NAMESPACE/NAME, whose tokens pods of custom resources may have."""
    leader_elect: bool = False
    """Whether to reconcile only while holding the Lease."""
    leader_elect_namespace: str = ""
    """Namespace of the Lease."""
    leader_elect_name: str = "slurm-operator"
    """Name of the Lease."""
    controller_workers: int = 4
    """How many Controllers are reconciled at once, at least 1."""
    restapi_workers: int = 4
    """How many RestApis are reconciled at once, at least 1."""
    loginset_workers: int = 4
    """How many LoginSets are reconciled at once, at least 1."""
    nodeset_workers: int = 4
    """How many NodeSets of one Slurm cluster are reconciled at once, at least 1."""
    accounting_workers: int = 4
    """How many Accountings are reconciled at once, at least 1."""
    token_workers: int = 4
    """How many Tokens are reconciled at once, at least 1."""
    log_level: str = "info"
    """The least severe level that is logged: debug, info, warning or error."""


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the flags; exits with a usage error for a bad one (argparse).

    SIDECARS_IMAGE is the image of the sidecars in the pods that the operator creates. POD_NAMESPACE
    is the default namespace of its Lease. POD_IP shows the first IP family of the pods.
    """
    parser = Parser(
        prog="slurm-sidecars operator", description="Reconciles slinky.slurm.net resources."
    )
    add = parser.add_argument
    add("--namespaces", default="", metavar="A,B", help="watch these namespaces only")
    add(
        "--slurmrestd-url",
        metavar="URL",
        help="one slurmrestd for all Controllers, for development",
    )
    add("--kubeconfig", type=Path, help="default: $KUBECONFIG, else the pod's own account")
    add("--workloads", type=Path, metavar="DIR", help="pod structure of the daemons, as YAML")
    add(
        "--ipv6",
        nargs="?",
        const=True,
        type=_boolean,
        metavar="BOOL",
        help="pods communicate by IPv6 (default: if the pod's first address is one of IPv6)",
    )
    add("--health-addr", default=":8081", metavar="HOST:PORT")
    add("--metrics-addr", default=":8080", metavar="HOST:PORT", help="0 for none")
    add(
        "--propagated-node-conditions",
        default="",
        metavar="A,B",
        help="Node conditions that explain a cordon to Slurm",
    )
    add(
        "--cordon-drained-nodes",
        action="store_true",
        help="cordon the Kubernetes node of a worker that is drained in Slurm",
    )
    add(
        "--label-kube-nodes",
        action="store_true",
        help="label the Kubernetes node of a pinned worker with the name of its Slurm node",
    )
    add(
        "--allowed-service-accounts",
        default="",
        metavar="NAMESPACE/NAME,...",
        help="whose tokens pods of custom resources may have (default: none)",
    )
    add(
        "--metrics-secure",
        action="store_true",
        help="metrics over TLS, for those who may get /metrics",
    )
    add("--leader-elect", nargs="?", const=True, default=False, type=_boolean, metavar="BOOL")
    add("--leader-elect-namespace", default="", metavar="NAMESPACE")
    add(
        "--leader-elect-name",
        default="slurm-operator",
        metavar="NAME",
        help="of the Lease (default: %(default)s)",
    )
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    for kind in ("controller", "restapi", "loginset", "nodeset", "accounting", "token"):
        add(f"--{kind}-workers", default=4, type=_count, metavar="N")
    add(
        "--slurmclient-workers",
        type=_count,
        metavar="N",
        help="no effect: every Slurm cluster has its own client",
    )
    for flag in ("--enable-http2", "--profile"):
        add(flag, nargs="?", const=True, type=_boolean, metavar="BOOL", help="no effect")
    add("--profile-addr", metavar="HOST:PORT", help="no effect")
    given = parser.parse_args(arguments)
    return Settings(
        namespaces=tuple(name for name in given.namespaces.split(",") if name),
        slurmrestd_url=given.slurmrestd_url,
        kubeconfig=given.kubeconfig,
        workloads=given.workloads,
        sidecars_image=environment.get("SIDECARS_IMAGE") or DEFAULT_IMAGE,
        ipv6=given.ipv6 if given.ipv6 is not None else ":" in environment.get(variables.POD_IP, ""),
        cluster_domain=cluster_domain(_read(Path("/etc/resolv.conf"))),
        health_addr=given.health_addr,
        metrics_addr=given.metrics_addr,
        metrics_secure=given.metrics_secure,
        propagated_node_conditions=tuple(
            name for name in given.propagated_node_conditions.split(",") if name
        ),
        allowed_service_accounts=tuple(
            name for name in given.allowed_service_accounts.split(",") if name
        ),
        cordon_drained_nodes=given.cordon_drained_nodes,
        label_kube_nodes=given.label_kube_nodes,
        leader_elect=given.leader_elect,
        leader_elect_namespace=given.leader_elect_namespace
        or environment.get("POD_NAMESPACE")
        or "default",
        leader_elect_name=given.leader_elect_name,
        controller_workers=given.controller_workers,
        restapi_workers=given.restapi_workers,
        loginset_workers=given.loginset_workers,
        nodeset_workers=given.nodeset_workers,
        accounting_workers=given.accounting_workers,
        token_workers=given.token_workers,
        log_level=given.log_level,
    )


def cluster_domain(resolv_conf: str) -> str:
    """Return the cluster's DNS domain, by the search entry `svc.DOMAIN` that the kubelet writes,
    else cluster.local.
    """
    for line in resolv_conf.splitlines():
        words = line.split()
        if words[:1] == ["search"]:
            for word in words[1:]:
                if word.startswith("svc."):
                    return word.removeprefix("svc.").rstrip(".")
    return "cluster.local"


def address(text: str) -> tuple[str, int] | None:
    """`HOST:PORT` or `:PORT` as host and port, with "" as host for all addresses; None for "0".
    Raises ValueError.
    """
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not HOST:PORT; give for example :8081, or 0 for none")
    return host.strip("[]"), int(port)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
