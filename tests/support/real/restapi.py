"""slurmrestd of a release on the cluster, asked from this machine."""

import base64
import json
from typing import Any

from tests.cluster.install import unready
from tests.cluster.local import existing, named_by
from tests.support.real.harness import Kubernetes, condition, until


def slurmrestd(kubernetes: Kubernetes, namespace: str) -> str:
    """Where the slurmrestd of a namespace answers, seen from this machine. A NetworkPolicy
    `contract` admits it.
    """

    def alone() -> dict[str, Any] | None:
        restapi = kubernetes.get("-n", namespace, "restapis.slinky.slurm.net", "slurm")
        deployment = kubernetes.get("-n", namespace, "deployment", "slurm-restapi")
        status = deployment["status"]
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
        seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
        if unready(restapi) or not seen or counts != [1, 1, 1]:
            return None
        pods = kubernetes.items("-n", namespace, "pods", "-l", "app.kubernetes.io/name=slurmrestd")
        return (
            pods[0]
            if len(pods) == 1 and condition(pods[0], "Ready").get("status") == "True"
            else None
        )

    host = existing(named_by(str(kubernetes.kubeconfig)) or "").plan.host_address
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "contract"},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "slurmrestd"}},
            "ingress": [{"from": [{"ipBlock": {"cidr": f"{host}/32"}}]}],
        },
    }
    kubernetes.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(policy))
    # A changed configuration may just have replaced it.
    return f"http://{until('one slurmrestd to be ready', alone, 90)['status']['podIP']}:6820"


def jwt_key(kubernetes: Kubernetes, namespace: str) -> bytes:
    """The key that signs tokens for that slurmrestd."""
    return base64.b64decode(
        kubernetes.get("-n", namespace, "secret", "slurm-auth-jwt")["data"]["jwt.key"]
    )
