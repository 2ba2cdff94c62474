"""etcd, kube-apiserver and, where wanted, kube-controller-manager and kube-scheduler.

The local cluster stands on it, and tests start one of their own on free ports in a folder of their
own.
"""

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.cluster import cache, debian
from tests.cluster.addresses import in_url
from tests.cluster.certificates import Authority, kubeconfig
from tests.cluster.commands import GO
from tests.cluster.errors import ClusterError
from tests.cluster.processes import Daemon
from tests.cluster.tools import tool
from tests.cluster.waiting import until

# What passes from the environment of whoever starts a daemon: how to reach the outside, and
# nothing else.
_PASSED = (
    "HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
)

_FIRST, _EACH, _PROCESSES = 20_000, 1_000, 10
_GIVEN = itertools.count(os.getpid())
"""See `free_ports`."""


def daemon_environment(*folders: Path) -> dict[str, str]:
    """A small environment for daemons, with `folders` first on PATH. Pods have none of it."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {**GO, **passed, "PATH": ":".join([*map(str, folders), system]), "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class Place:
    """Where a control plane lives: `address` is what clients use, `ports` are named as Plan.ports
    names them.
    """

    name: str
    address: str
    ports: Mapping[str, int]
    service_network: str
    """One network, or two of different IP families with a comma between."""
    hosts: Sequence[str]
    cgroup: Path | None = None
    bound: bool = False

    @property
    def anywhere(self) -> str:
        """All addresses of the host, of the family of `address` at least."""
        return "::" if ":" in self.address else "0.0.0.0"


@dataclass
class ControlPlane:
    """A control plane with its state in `folder`. Starting what runs already does nothing."""

    folder: Path
    place: Place
    options: Sequence[str] = field(default=())
    """Further options of kube-apiserver."""
    etcd_options: Sequence[str] = field(default=())
    manager_options: Sequence[str] = field(default=())
    """Further options of kube-controller-manager."""
    scheduler_requests: int = 50
    """How many requests kube-scheduler may send each second; by default as many as without
    configuration.
    """

    @classmethod
    def temporary(
        cls,
        folder: Path,
        *,
        controller_manager: bool = False,
        options: Sequence[str] = (),
        etcd_options: Sequence[str] = (),
    ) -> "ControlPlane":
        """One for tests: started, on free ports of the loopback address. It dies with this process
        at the latest.
        """
        names = ("kube-apiserver", "etcd", "etcd peers", "kube-controller-manager")
        place = Place(
            name="test",
            address="127.0.0.1",
            ports=dict(zip(names, free_ports(len(names)), strict=True)),
            service_network="10.255.128.0/20",
            hosts=["127.0.0.1", "localhost", "10.255.128.1"],
            bound=True,
        )
        plane = cls(folder, place, options, etcd_options=etcd_options)
        plane.start()
        if controller_manager:
            plane.controller_manager.start()
        return plane

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return self.folder / "kubeconfig"

    @property
    def authority(self) -> Authority:
        """Signs everything in this cluster."""
        return Authority(self.folder / "pki")

    @property
    def server(self) -> str:
        """URL of the apiserver."""
        return f"https://{in_url(self.place.address)}:{self.place.ports['kube-apiserver']}"

    def client(self, name: str, user: str, *groups: str) -> Path:
        """Kubeconfig file of a user, created if it doesn't exist."""
        path = (
            self.kubeconfig if name == "admin" else self.folder / "clients" / f"{name}.kubeconfig"
        )
        certificate, key = self.authority.issue(name, user, groups)
        content = kubeconfig(
            self.server, self.authority.certificate, certificate, key, self.place.name
        )
        cache.write(path, yaml.safe_dump(content), mode=0o600)
        return path

    def start(self) -> None:
        """Start etcd and the apiserver, and wait until the apiserver is ready."""
        self.etcd.start()
        self.start_apiserver()

    def start_apiserver(self) -> None:
        """Start the apiserver and wait until it is ready."""
        self.client("admin", "kubernetes-admin", "system:masters")
        self.apiserver.start()
        self._until_ready(self.apiserver, lambda: self.get("/readyz")[0] == 200)

    def kill_apiserver(self) -> None:
        """End the apiserver without a warning; its clients see their connections break."""
        self.apiserver.kill()

    def stop(self) -> None:
        """End everything of it; the folder stays."""
        daemons = (self.scheduler, self.controller_manager, self.apiserver, self.etcd)
        for daemon in daemons:
            daemon.signal(signal.SIGTERM)
        for daemon in daemons:
            daemon.stop()

    def get(self, path: str) -> tuple[int, bytes]:
        """GET as the administrator. (0, reason) if nothing answers."""
        connection = self.connection()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error).encode()
        finally:
            connection.close()

    def connection(self, timeout: float = 5) -> http.client.HTTPSConnection:
        """Return a connection to the apiserver as the administrator, which its first request opens.
        `timeout` is in seconds.
        """
        certificate, key = self.authority.issue("admin", "kubernetes-admin", ["system:masters"])
        trust = ssl.create_default_context(cafile=str(self.authority.certificate))
        trust.load_cert_chain(certificate, key)
        return http.client.HTTPSConnection(
            self.place.address, self.place.ports["kube-apiserver"], context=trust, timeout=timeout
        )

    @property
    def etcd(self) -> Daemon:
        """The store. TLS, so that other users of this host can't read Secrets from it."""
        certificate, key = self.authority.issue("etcd", "etcd", hosts=["127.0.0.1"])
        url, peers = (f"://127.0.0.1:{self.place.ports[name]}" for name in ("etcd", "etcd peers"))
        return self.daemon(
            "etcd",
            [
                tool("etcd"),
                "--name=default",
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls=https{url}",
                f"--advertise-client-urls=https{url}",
                f"--listen-peer-urls=http{peers}",
                f"--initial-advertise-peer-urls=http{peers}",
                f"--initial-cluster=default=http{peers}",
                f"--cert-file={certificate}",
                f"--key-file={key}",
                f"--trusted-ca-file={self.authority.certificate}",
                "--client-cert-auth",
                "--logger=zap",
                "--log-level=warn",
                *self.etcd_options,
            ],
        )

    @property
    def apiserver(self) -> Daemon:
        """The API."""
        authority = self.authority
        serving = authority.issue("apiserver", "kube-apiserver", hosts=self.place.hosts)
        store = authority.issue("apiserver-etcd", "kube-apiserver-etcd")
        kubelets = authority.issue("apiserver-kubelet", "kube-apiserver-kubelet-client")
        front = authority.issue("front-proxy", "front-proxy-client")
        public, private = authority.key_pair("service-accounts")
        return self.daemon(
            "kube-apiserver",
            [
                tool("kube-apiserver"),
                f"--bind-address={'127.0.0.1' if self.place.bound else self.place.anywhere}",
                f"--advertise-address={self.place.address}",
                *(["--endpoint-reconciler-type=none"] if self.place.bound else []),
                f"--secure-port={self.place.ports['kube-apiserver']}",
                f"--service-cluster-ip-range={self.place.service_network}",
                f"--etcd-servers=https://127.0.0.1:{self.place.ports['etcd']}",
                f"--etcd-cafile={authority.certificate}",
                f"--etcd-certfile={store[0]}",
                f"--etcd-keyfile={store[1]}",
                f"--client-ca-file={authority.certificate}",
                f"--tls-cert-file={serving[0]}",
                f"--tls-private-key-file={serving[1]}",
                f"--kubelet-certificate-authority={authority.certificate}",
                f"--kubelet-client-certificate={kubelets[0]}",
                f"--kubelet-client-key={kubelets[1]}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--proxy-client-cert-file={front[0]}",
                f"--proxy-client-key-file={front[1]}",
                f"--requestheader-client-ca-file={authority.certificate}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                f"--service-account-key-file={public}",
                f"--service-account-signing-key-file={private}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
                "--profiling=false",
                "--shutdown-delay-duration=0s",
                *self.options,
            ],
        )

    @property
    def controller_manager(self) -> Daemon:
        """The built-in controllers."""
        who = self.client("controller-manager", "system:kube-controller-manager")
        _, private = self.authority.key_pair("service-accounts")
        return self.daemon(
            "kube-controller-manager",
            [
                tool("kube-controller-manager"),
                "--bind-address=127.0.0.1",
                f"--secure-port={self.place.ports['kube-controller-manager']}",
                f"--kubeconfig={who}",
                f"--authentication-kubeconfig={who}",
                f"--authorization-kubeconfig={who}",
                f"--root-ca-file={self.authority.certificate}",
                f"--service-account-private-key-file={private}",
                "--use-service-account-credentials=true",
                "--allocate-node-cidrs=false",
                "--leader-elect=false",
                "--profiling=false",
                *self.manager_options,
            ],
        )

    @property
    def scheduler(self) -> Daemon:
        """The scheduler."""
        who = self.client("scheduler", "system:kube-scheduler")
        # The flags for these are deprecated.
        requests = {"qps": self.scheduler_requests, "burst": 2 * self.scheduler_requests}
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(who), **requests},
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
        }
        file = self.folder / "scheduler.json"
        file.write_text(json.dumps(configuration))
        return self.daemon(
            "kube-scheduler",
            [
                tool("kube-scheduler"),
                "--bind-address=127.0.0.1",
                f"--secure-port={self.place.ports.get('kube-scheduler', 0)}",
                f"--config={file}",
                f"--authentication-kubeconfig={who}",
                f"--authorization-kubeconfig={who}",
            ],
        )

    def daemon(
        self, name: str, argv: Sequence[str | Path], namespaces: int | None = None
    ) -> Daemon:
        """A daemon whose record and log lie in this folder."""
        return Daemon(
            name=name,
            argv=[str(word) for word in argv],
            folder=self.folder / "run",
            logs=self.folder / "logs",
            env=daemon_environment(debian.unpacked() / "bin"),
            cgroup=self.place.cgroup,
            namespaces=namespaces,
            bound=self.place.bound,
        )

    def _until_ready(self, daemon: Daemon, ready: Callable[[], bool]) -> None:
        def ended_or_ready() -> bool:
            if daemon.pid() is None:
                raise ClusterError(f"{daemon.name} ended while starting; {daemon.last_words()}")
            return ready()

        until(ended_or_ready, f"{daemon.name} to be ready", 90, daemon.last_words)


def free_ports(count: int) -> list[int]:
    """TCP ports of the loopback address that nobody uses at this moment, and that nobody else is
    given until later.

    The kernel gives none of them to those that ask for any port: before its daemon binds one,
    seconds may pass. Each process of pytest-xdist has a range of its own.
    """
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _FIRST + _EACH * (process % _PROCESSES)
    found: list[int] = []
    for number in itertools.islice(_GIVEN, _EACH):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", first + number % _EACH))
            found.append(first + number % _EACH)
        if len(found) == count:
            return found
    raise ClusterError(f"fewer than {count} of {_EACH} ports from {first} on are free")


def decoded(answer: tuple[int, bytes]) -> dict[str, object]:
    """The JSON object of an answer with status 200; empty for any other."""
    status, body = answer
    loaded = json.loads(body) if status == 200 else {}
    return loaded if isinstance(loaded, dict) else {}
