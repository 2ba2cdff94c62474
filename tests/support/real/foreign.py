"""A pod of another tenant: what it can connect to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.real.harness import CommandError, Kubernetes, condition, until, until_equal

NAMESPACE = "tenant"
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except TimeoutError:
    sys.exit(9)
"""


@dataclass(frozen=True)
class Foreign:
    """A running pod in a namespace of its own."""

    kubernetes: Kubernetes

    def connects(self, address: str, port: int) -> bool:
        """Whether a connection is accepted. False: no packet came back; a refusal is an error of
        the test.
        """
        words = ("python3", "-c", _CONNECT, address, str(port))
        try:
            self.kubernetes.execute(NAMESPACE, "tenant", "", *words, repeatable=True)
        except CommandError as error:
            if ": rc 9\n" in str(error):
                return False
            raise
        return True


@contextmanager
def foreign_pod(kubernetes: Kubernetes) -> Iterator[Foreign]:
    """A pod of the operator's image, which has Python, until the end."""
    operator = kubernetes.get("-n", "slinky", "deployment", "slurm-operator")
    image = operator["spec"]["template"]["spec"]["containers"][0]["image"]
    sleep = {"name": "sleep", "image": image, "command": ["sleep", "infinity"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tenant", "labels": {"app.kubernetes.io/name": "tenant"}},
        "spec": {"containers": [sleep], "terminationGracePeriodSeconds": 0},
    }
    kubernetes.kubectl("create", "namespace", NAMESPACE)
    try:
        # Without it, the API server refuses pods.
        account = ("-n", NAMESPACE, "get", "serviceaccount", "default", "--output=name")
        until("the namespace to have its account", lambda: kubernetes.kubectl(*account))
        kubernetes.kubectl("-n", NAMESPACE, "create", "-f", "-", stdin=json.dumps(pod))
        foreign = Foreign(kubernetes)
        phase = ("-n", NAMESPACE, "get", "pod", "tenant", "-o", "jsonpath={.status.phase}")
        until_equal("the tenant's pod to run", lambda: kubernetes.kubectl(*phase), "Running")
        yield foreign
    finally:
        kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=true", timeout=90)


def address(kubernetes: Kubernetes, namespace: str, daemon: str) -> str:
    """The address of a pod of a Slurm daemon that is ready and stays."""

    def look() -> str | None:
        pods = kubernetes.items("-n", namespace, "pods", "-l", f"app.kubernetes.io/name={daemon}")
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        ready = [pod for pod in staying if condition(pod, "Ready").get("status") == "True"]
        return str(ready[0]["status"]["podIP"]) if ready else None

    return until(f"a pod of {daemon} to be ready", look)
