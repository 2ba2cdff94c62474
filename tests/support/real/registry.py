"""Debian's docker-registry on the local cluster: open to all at one port, and with a password at another."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.cluster import debian
from tests.support.real.harness import Kubernetes
from tests.support.real.prometheus import image
from tests.support.real.reached import until_reached

NAMESPACE = "registry"
HOST = f"registry.{NAMESPACE}.svc.cluster.local"
OPEN = f"{HOST}:5000"
LOCKED = f"{HOST}:5001"
DOWN = f"{HOST}:5002"
"""A port at which no registry listens."""

USER, PASSWORD = "alice", "wonderland"
_PASSWORDS = f"{USER}:$2y$05$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW\n"
_LABELS = {"app": "registry"}


@dataclass(frozen=True)
class Registry:
    """The running registries."""

    kubernetes: Kubernetes

    def downloads(self, container: str = "open") -> list[str]:
        """The digest of each blob that a client has read, in order."""
        log = self.kubernetes.kubectl("-n", NAMESPACE, "logs", "deploy/registry", "-c", container)
        return re.findall(r'"GET /v2/\S+/blobs/(sha256:[0-9a-f]{64})\S* HTTP/1\.1" 200 ', log)

    def requests(self, image: str, container: str = "open") -> int:
        """How often clients have asked for a tag or a digest of an image."""
        log = self.kubernetes.kubectl("-n", NAMESPACE, "logs", "deploy/registry", "-c", container)
        return len(re.findall(rf'"(?:GET|HEAD) /v2/{image}/manifests/\S+ HTTP', log))


@contextmanager
def running(kubernetes: Kubernetes) -> Iterator[Registry]:
    """Registries without images, which end with the block."""
    programs = str(debian.program("docker-registry", "docker-registry").resolve().parent)
    files = {
        "open.yaml": json.dumps(_configuration(5000)),
        "locked.yaml": json.dumps(
            _configuration(5001, {"htpasswd": {"realm": "test", "path": "/etc/registry/passwords"}})
        ),
        "passwords": _PASSWORDS,
    }
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
        kubernetes.kubectl("-n", NAMESPACE, "rollout", "status", "deploy/registry", "--timeout=90s", timeout=100)
        until_reached(kubernetes, NAMESPACE, "registry", 5000, image(kubernetes))
        yield Registry(kubernetes)
    finally:
        kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=true", timeout=120)


def _configuration(port: int, auth: Mapping[str, Any] | None = None) -> dict[str, Any]:
    found = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": f"/data/{port}"}},
        "http": {"addr": f":{port}"},
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
            "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
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
