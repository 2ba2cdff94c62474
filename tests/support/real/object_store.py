"""versitygw, an S3-compatible store, on the local cluster."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.tools import tool
from tests.support.real.harness import Kubernetes
from tests.support.real.prometheus import image
from tests.support.real.reached import until_reached

NAMESPACE = "objects"
ENDPOINT = f"http://store.{NAMESPACE}.svc.cluster.local:7070"
BUCKET = "backups"
KEYS = {"AWS_ACCESS_KEY_ID": "slurm-backup", "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-store"}
_LABELS = {"app": "store"}


@contextmanager
def running(kubernetes: Kubernetes) -> Iterator[None]:
    """The store with an empty bucket, until the end of the block."""
    programs = str(tool("versitygw").resolve().parent)
    kubernetes.kubectl("create", "namespace", NAMESPACE)
    try:
        metadata = {"name": "store", "namespace": NAMESPACE}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": _LABELS, "ports": [{"port": 7070}]},
        }
        for item in (service, _deployment(image(kubernetes), programs)):
            kubernetes.kubectl("create", "--filename=-", stdin=json.dumps(item))
        kubernetes.kubectl(
            "-n", NAMESPACE, "rollout", "status", "deploy/store", "--timeout=90s", timeout=100
        )
        until_reached(kubernetes, NAMESPACE, "store", 7070, image(kubernetes))
        yield
    finally:
        kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=true", timeout=120)


def _deployment(image: str, programs: str) -> dict[str, Any]:
    container = {
        "name": "store",
        "image": image,
        "command": [
            "/programs/versitygw",
            "--port=:7070",
            "posix",
            "--sidecar=/attributes",
            "/data",
        ],
        "env": [
            {"name": "ROOT_ACCESS_KEY", "value": KEYS["AWS_ACCESS_KEY_ID"]},
            {"name": "ROOT_SECRET_KEY", "value": KEYS["AWS_SECRET_ACCESS_KEY"]},
        ],
        "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "readinessProbe": {"tcpSocket": {"port": 7070}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "programs", "mountPath": "/programs", "readOnly": True},
            {"name": "attributes", "mountPath": "/attributes"},
            {"name": "data", "mountPath": "/data"},
            {"name": "data", "mountPath": f"/data/{BUCKET}", "subPath": BUCKET},
        ],
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [
            {"name": "programs", "hostPath": {"path": programs}},
            {"name": "attributes", "emptyDir": {}},
            {"name": "data", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "store", "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": spec},
        },
    }
