"""The bridge's command line and environment, as one typed record."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from sidecars.bridge.core.devices import NO_RULES, DevicesError, Rules
from sidecars.bridge.core.devices import parse as parse_devices
from sidecars.bridge.core.nodes import NO_USAGE, Usage
from sidecars.bridge.core.usage import ReserveError, reserve, reserved
from sidecars.commandline import Parser
from sidecars.contract import paths


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """A Secret with a token of SlurmUser."""

    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one bridge."""

    slurmrestd_url: str
    namespace: str
    """The bridge's own: of the ConfigMap and the Lease."""
    key_file: Path = Path(paths.JWT_KEY)
    """The key that signs tokens of all users. Read for each token. Not used with a token."""
    slurm_user: str = "slurm"
    """SlurmUser. Where the bridge signs its tokens itself, an operator of Slurm is enough."""
    tenants: str = "slurm-bridge-tenants"
    """Name of the ConfigMap with the Slurm user of each namespace."""
    tenant_role: str = "slurm-bridge-tenant"
    """Name of the ClusterRole that a RoleBinding in the namespace of each tenant names."""
    service_account: str = "slurm-bridge"
    """Name of the bridge's own ServiceAccount."""
    partition: str = "slurm-bridge"
    """The partition of namespaces that name none."""
    kubeconfig: Path | None = None
    """None: the files of $KUBECONFIG, else the service account of the pod."""
    health_port: int = 8081
    """Port of /healthz, /readyz and /metrics; 0 for none."""
    lease: str = "slurm-bridge"
    """Name of the Lease."""
    webhook: str = ""
    """Name of the admission webhook's MutatingWebhookConfiguration, Secret and Service; "" for no
    webhook.
    """
    log_level: str = "info"
    devices: Rules = NO_RULES
    """Which devices are which GRES."""
    reserve: Usage = NO_USAGE
    """What pods of others may request of an external node without a change of its record."""
    token_file: Path | None = None
    """A file with a token of SlurmUser, which another program renews. None: the next one, or
    jwt.key.
    """
    token_secret: TokenSecret | None = None
    """The same as a Secret, which the bridge reads by the Kubernetes API."""


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the flags; exits with a usage error for a bad one (argparse). POD_NAMESPACE is the
    default namespace.
    """
    parser = Parser(
        prog="slurm-sidecars bridge",
        description="Slurm schedules Kubernetes pods that have the scheduling gate.",
    )
    add = parser.add_argument
    add(
        "--slurmrestd-url",
        required=True,
        type=_url,
        metavar="URL",
        help="such as http://slurm-restapi.slurm:6820",
    )
    credentials = parser.add_mutually_exclusive_group()
    credentials.add_argument(
        "--jwt-key",
        type=Path,
        default=Path(paths.JWT_KEY),
        metavar="FILE",
        help="jwt.key (default: %(default)s)",
    )
    credentials.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a token of SlurmUser, instead of jwt.key"
    )
    credentials.add_argument(
        "--token-secret",
        type=_secret,
        metavar="NAMESPACE/NAME/KEY",
        help="the same in a Secret, which is read by the Kubernetes API",
    )
    add("--slurm-user", default="slurm", metavar="USER", help="SlurmUser (default: %(default)s)")
    add(
        "--namespace",
        default=environment.get("POD_NAMESPACE") or "default",
        help="of the ConfigMap and the Lease",
    )
    add(
        "--tenants",
        default="slurm-bridge-tenants",
        metavar="NAME",
        help="ConfigMap: the Slurm user by namespace",
    )
    add(
        "--tenant-role",
        default="slurm-bridge-tenant",
        metavar="NAME",
        help="ClusterRole of tenants' RoleBindings",
    )
    add(
        "--service-account",
        default="slurm-bridge",
        metavar="NAME",
        help="the bridge's own (default: %(default)s)",
    )
    add(
        "--default-partition",
        default="slurm-bridge",
        metavar="NAME",
        help="of namespaces that name none",
    )
    add("--kubeconfig", type=Path, help="default: $KUBECONFIG, else the pod's own account")
    add(
        "--health-port",
        type=port,
        default=8081,
        metavar="PORT",
        help="of /healthz, /readyz and /metrics; 0 for none",
    )
    add(
        "--lease",
        default="slurm-bridge",
        metavar="NAME",
        help="of the Lease (default: %(default)s)",
    )
    add(
        "--webhook",
        default="",
        metavar="NAME",
        help="webhook whose certificate is renewed (default: none)",
    )
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    add(
        "--devices",
        default="[]",
        metavar="JSON",
        help="which devices are which GRES",
    )
    add(
        "--unmanaged-device-classes",
        type=lambda text: tuple(filter(None, text.split(","))),
        default=(),
        metavar="NAME,…",
        help="DeviceClasses whose devices kube-scheduler gives to pods, without Slurm",
    )
    for name, what in (("cpu", "CPUs"), ("memory", "memory")):
        add(
            f"--reserve-{name}",
            type=_quantity,
            default=Decimal(0),
            metavar="QUANTITY",
            help=f"{what} of an external node for the pods of others",
        )
    given = parser.parse_args(arguments)
    try:
        devices = parse_devices(given.devices, given.unmanaged_device_classes)
    except DevicesError as error:
        parser.error(str(error))
    return Settings(
        slurmrestd_url=given.slurmrestd_url,
        namespace=given.namespace,
        key_file=given.jwt_key,
        slurm_user=given.slurm_user,
        tenants=given.tenants,
        tenant_role=given.tenant_role,
        service_account=given.service_account,
        partition=given.default_partition,
        kubeconfig=given.kubeconfig,
        health_port=given.health_port,
        lease=given.lease,
        webhook=given.webhook,
        log_level=given.log_level,
        devices=devices,
        reserve=reserve(given.reserve_cpu, given.reserve_memory),
        token_file=given.token_file,
        token_secret=given.token_secret,
    )


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not slurmrestd's address; give http://HOST:PORT"
        )
    return text.rstrip("/")


def _secret(text: str) -> TokenSecret:
    words = text.split("/")
    if len(words) != 3 or not all(words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a Secret; give NAMESPACE/NAME/KEY")
    return TokenSecret(*words)


def _quantity(text: str) -> Decimal:
    try:
        return reserved(text)
    except ReserveError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def port(text: str) -> int:
    """Return a port, as a type of argparse."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give 0 to 65535")
    return int(text)
