"""A Service of the local cluster that every node reaches: a ready pod is known to each kube-proxy
later.
"""

import json
from typing import Any

from tests.support.real.harness import Kubernetes


def until_reached(
    kubernetes: Kubernetes, namespace: str, service: str, port: int, image: str
) -> None:
    """Wait until every node reaches the Service at this port. A DaemonSet `reached` stays in the
    namespace.
    """
    address = kubernetes.get("-n", namespace, "service", service)["spec"]["clusterIP"]
    manifest = json.dumps(_daemon_set(namespace, image, address, port))
    kubernetes.kubectl("create", "--filename=-", stdin=manifest)
    rollout = ("rollout", "status", "daemonset/reached", "--timeout=90s")
    kubernetes.kubectl("-n", namespace, *rollout, timeout=100)


def _daemon_set(namespace: str, image: str, address: str, port: int) -> dict[str, Any]:
    """One that is ready once every node reaches the address."""
    labels = {"app": "reached"}
    container = {
        "name": "sleep",
        "image": image,
        "command": ["sleep", "infinity"],
        "readinessProbe": {"tcpSocket": {"host": address, "port": port}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "reached", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            },
        },
    }
