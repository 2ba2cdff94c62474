"""Debian's docker-registry, on the local cluster or this host: open to all, or with a password, or
also with TLS.
"""

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import debian
from tests.support.real.harness import Kubernetes, until
from tests.support.real.prometheus import image
from tests.support.real.reached import until_reached

NAMESPACE = "registry"
HOST = f"registry.{NAMESPACE}.svc.cluster.local"
OPEN = f"{HOST}:5000"
LOCKED = f"{HOST}:5001"
DOWN = f"{HOST}:5002"
"""A port at which no registry listens."""


@dataclass(frozen=True)
class Addresses:
    """Host and port of the open and of the locked registry, and of a port at which none listens."""

    open: str
    locked: str
    down: str

    @classmethod
    def on_this_host(cls, ports: Sequence[int]) -> "Addresses":
        """Those of `on_this_host` with three ports."""
        return cls(*(f"127.0.0.1:{port}" for port in ports))


ON_CLUSTER = Addresses(OPEN, LOCKED, DOWN)

USER, PASSWORD = "alice", "wonderland"
_PASSWORDS = f"{USER}:$2y$05$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW\n"
_LABELS = {"app": "registry"}


@dataclass(frozen=True)
class Registry:
    """The running registries, by their logs."""

    log: Callable[[str], str]
    """Of `open` and `locked`."""

    def downloads(self, name: str = "open") -> list[str]:
        """The digest of each blob that a client has read, in order."""
        return re.findall(
            r'"GET /v2/\S+/blobs/(sha256:[0-9a-f]{64})\S* HTTP/1\.1" 200 ', self.log(name)
        )

    def requests(self, image: str, name: str = "open") -> int:
        """How often clients have asked for a tag or a digest of an image."""
        return len(re.findall(rf'"(?:GET|HEAD) /v2/{image}/manifests/\S+ HTTP', self.log(name)))


@contextmanager
def running(kubernetes: Kubernetes) -> Iterator[Registry]:
    """Registries without images, which end with the block."""
    programs = str(debian.program("docker-registry", "docker-registry").resolve().parent)
    files = _files(Path("/etc/registry"), Path("/data"), ":5000", ":5001")
    kubernetes.kubectl("create", "namespace", NAMESPACE)
    try:
        metadata = {"name": "registry", "namespace": NAMESPACE}
        ports = [{"name": f"port-{port}", "port": port} for port in (5000, 5001, 5002)]
        for item in (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"selector": _LABELS, "ports": ports},
            },
            _deployment(image(kubernetes), programs),
        ):
            kubernetes.kubectl("create", "--filename=-", stdin=json.dumps(item))
        kubernetes.kubectl(
            "-n", NAMESPACE, "rollout", "status", "deploy/registry", "--timeout=90s", timeout=100
        )
        until_reached(kubernetes, NAMESPACE, "registry", 5000, image(kubernetes))

        def log(name: str) -> str:
            return kubernetes.kubectl("-n", NAMESPACE, "logs", "deploy/registry", "-c", name)

        yield Registry(log)
    finally:
        kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=true", timeout=120)


@contextmanager
def on_this_host(home: Path, ports: Sequence[int]) -> Iterator[Registry]:
    """Registries without images at the first two of these ports of 127.0.0.1, open and locked; they
    end with the block.

    `home` must not exist.
    """
    program = debian.program("docker-registry", "docker-registry")
    home.mkdir()
    for name, text in _files(
        home, home / "data", *(f"127.0.0.1:{port}" for port in ports[:2])
    ).items():
        (home / name).write_text(text)
    with ExitStack() as stack:
        for name, port in zip(("open", "locked"), ports, strict=False):
            log = stack.enter_context((home / f"{name}.log").open("w"))
            command = (
                "setpriv",
                "--pdeathsig=KILL",
                str(program),
                "serve",
                str(home / f"{name}.yaml"),
            )
            process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
            stack.callback(process.kill)
            until(f"the registry to listen at {port}", lambda port=port: _listens(port), 300)  # type: ignore[misc]
        yield Registry(lambda name: (home / f"{name}.log").read_text())


@contextmanager
def with_certificate(
    home: Path, address: str, port: int, certificate: tuple[Path, Path]
) -> Iterator[None]:
    """A registry without images at an address of this host, with a password, which ends with the
    block.

    `certificate` is that of the address, and its key. `home` must not exist.
    """
    program = debian.program("docker-registry", "docker-registry")
    home.mkdir()
    auth = {"htpasswd": {"realm": "test", "path": str(home / "passwords")}}
    configuration = _configuration(home / "data", f"{address}:{port}", auth)
    configuration["http"]["tls"] = {"certificate": str(certificate[0]), "key": str(certificate[1])}
    (home / "passwords").write_text(_PASSWORDS)
    (home / "registry.yaml").write_text(json.dumps(configuration))
    command = ("setpriv", "--pdeathsig=KILL", str(program), "serve", str(home / "registry.yaml"))
    with (
        (home / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            until(f"the registry to listen at {port}", lambda: _listens(port, address), 300)
            yield
        finally:
            process.kill()


def _listens(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


def _files(folder: Path, data: Path, open_address: str, locked_address: str) -> dict[str, str]:
    """What is in this folder of the registries, which store images in another."""
    auth = {"htpasswd": {"realm": "test", "path": str(folder / "passwords")}}
    return {
        "open.yaml": json.dumps(_configuration(data / "open", open_address)),
        "locked.yaml": json.dumps(_configuration(data / "locked", locked_address, auth)),
        "passwords": _PASSWORDS,
    }


def _configuration(
    data: Path, address: str, auth: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    found = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(data)}},
        "http": {"addr": address},
    }
    return found | ({"auth": auth} if auth else {})


def _deployment(image: str, programs: str) -> dict[str, Any]:
    mounts = {"programs": "/programs", "configuration": "/etc/registry", "data": "/data"}
    containers = [
        {
            "name": name,
            "image": image,
            "command": ["/programs/docker-registry", "serve", f"/etc/registry/{name}.yaml"],
            "ports": [{"containerPort": port}],
            "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": volume, "mountPath": path} for volume, path in mounts.items()
            ],
        }
        for name, port in (("open", 5000), ("locked", 5001))
    ]
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": containers,
        "volumes": [
            {"name": "programs", "hostPath": {"path": programs}},
            {"name": "configuration", "configMap": {"name": "registry"}},
            {"name": "data", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "registry", "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": spec},
        },
    }
