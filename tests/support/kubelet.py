"""What scheduler and kubelet ask the API server for. All simulated kubelets send these requests,
each at its own times.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from sidecars.kube import PODS, Client, Manifest, Resource

CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


async def bind(client: Client, namespace: str, pod: str, kube_node: str) -> None:
    """Schedule a pod."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace},
        "target": {"kind": "Node", "name": kube_node},
    }
    await client.create(Resource("", "v1", "Binding", f"pods/{pod}/binding"), binding)


async def run(
    client: Client, namespace: str, pod: str, *, expected: Iterable[Manifest] = ()
) -> None:
    """Report that a bound pod runs and is ready, if the tests in `expected` are met.

    It adds conditions to PodScheduled, which the binding has set, and to those of others.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    slurmd = {
        "name": "slurmd",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        "state": {"running": {"startedAt": now}},
    }
    values = [
        ("phase", "Running"),
        ("startTime", now),
        ("podIP", "10.0.0.1"),
        ("podIPs", [{"ip": "10.0.0.1"}]),
        *(
            ("conditions/-", {"type": type, "status": "True", "lastTransitionTime": now})
            for type in CONDITIONS
        ),
        ("containerStatuses", [slurmd]),
    ]
    added = [{"op": "add", "path": f"/status/{field}", "value": value} for field, value in values]
    patch = [*expected, *added]
    await client.json_patch(PODS, namespace, pod, patch, dict, subresource="status")


async def end(client: Client, namespace: str, pod: str, *, uid: str = "") -> None:
    """Report that the containers of a terminating pod have ended, which deletes it."""
    await client.delete(PODS, namespace, pod, uid=uid or None, grace_period_seconds=0)
