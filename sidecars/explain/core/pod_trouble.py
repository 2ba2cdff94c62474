"""Why a pod isn't ready, in Kubernetes' words, with the remedy and what happens next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.contract import project
from sidecars.explain.core import objects
from sidecars.explain.core.records import Finding, Level

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object, Seen

_IMAGE = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_QUIET = frozenset({"PodInitializing", "ContainerCreating", ""})
_BAD_EVENTS = {
    "FailedMount": "A volume can't be mounted.",
    "FailedAttachVolume": "A volume can't be attached.",
    "FailedCreatePodSandBox": "The container runtime can't create the pod's network or sandbox.",
    "NetworkNotReady": "The network of the Kubernetes node isn't ready.",
}
"""Warnings that explain why a pod on a Kubernetes node doesn't start."""
BACKOFF_SECONDS = 300.0
"""The longest wait of the kubelet before it restarts a container."""


def state(pod: Object) -> str:
    """Describe in one line phase, readiness, and where the pod runs."""
    ready = objects.condition(pod, "Ready")
    words = [objects.text(pod, "status", "phase") or "Unknown"]
    if objects.terminating(pod):
        words = ["Terminating"]
    elif ready is not None and ready.status == "True":
        words.append("and ready")
    where = objects.text(pod, "spec", "nodeName")
    return " ".join(words) + (f" on Kubernetes node {where}" if where else ", not scheduled")


def is_ready(pod: Object) -> bool:
    """Return whether it runs, is ready, and isn't being deleted."""
    ready = objects.condition(pod, "Ready")
    return ready is not None and ready.status == "True" and not objects.terminating(pod)


def trouble(pod: Object, seen: Seen) -> list[Finding]:
    """Find why the pod isn't ready. Return [] if it is."""
    if is_ready(pod):
        return []
    about = f"pod {seen.namespace}/{objects.name(pod)}"
    if objects.terminating(pod):
        return [_terminating(pod, about, seen)]
    phase = objects.text(pod, "status", "phase")
    if phase == "Failed":
        reason = objects.text(pod, "status", "reason") or "Failed"
        message = objects.text(pod, "status", "message") or "its containers have failed"
        return [
            Finding(
                reason, Level.BLOCKS, about, f"The pod has failed: {message}", _describe(pod, seen)
            )
        ]
    scheduled = objects.condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return [_unscheduled(scheduled.reason, scheduled.message, about)]
    if not objects.text(pod, "spec", "nodeName"):
        return [
            Finding(
                "Pending",
                Level.WAITS,
                about,
                "The scheduler has not looked at the pod yet.",
                event="the scheduler looks at it",
            )
        ]
    found = _kube_node(pod, about, seen)
    for status in objects.items(pod, "status", "initContainerStatuses") + objects.items(
        pod, "status", "containerStatuses"
    ):
        found += _container(status, pod, about, seen)
    if not found:
        found = _events(pod, about, seen)
    if not found:
        waits = [
            objects.text(it, "name")
            for it in objects.items(pod, "status", "initContainerStatuses")
            if not objects.dig(it, "ready") and objects.dig(it, "state", "terminated") is None
        ]
        what = f"Its init container {waits[0]} runs." if waits else "Its containers are starting."
        found = [
            Finding(
                "Starting",
                Level.WAITS,
                about,
                what,
                _logs(pod, seen, waits[:1]),
                event="its containers become ready",
            )
        ]
    return found


def _terminating(pod: Object, about: str, seen: Seen) -> Finding:
    at = objects.time(pod, "metadata", "deletionTimestamp")
    cause = "The pod is being deleted, and its containers have until the end of its grace period."
    if objects.is_worker(pod):
        cause = (
            "The worker is being deleted. It waits for its jobs, at most until its grace period "
            "ends."
        )
    where = objects.named(seen.kube.kube_nodes, objects.text(pod, "spec", "nodeName"))
    if at is not None and at < seen.now and where is not None and not _kube_node_ready(where):
        name = objects.name(where)
        return Finding(
            "KubeNodeLost",
            Level.BLOCKS,
            about,
            f"The pod should have ended, and its Kubernetes node {name} doesn't report.",
            "Repair the kubelet. Only if the host is off, taint it, so that Kubernetes deletes "
            "the pod.",
            (
                (
                    f"kubectl taint node {name} "
                    "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
                ),
            ),
        )
    return Finding(
        "Terminating",
        Level.WAITS,
        about,
        cause,
        event="the pod is deleted",
        at=at if at and at >= seen.now else None,
    )


def _unscheduled(reason: str, message: str, about: str) -> Finding:
    if reason == "SchedulingGated":
        return Finding(
            reason,
            Level.WAITS,
            about,
            "A scheduling gate stops the pod.",
            "Wait for the program that removes the gate.",
        )
    remedies = []
    for words, remedy in (
        ("Insufficient", "Add Kubernetes nodes, or request less in the pod template"),
        ("untolerated taint", "add a toleration to the NodeSet, or remove the taint"),
        (
            "node affinity/selector",
            "change nodeSelector or affinity of the NodeSet, or label a Kubernetes node",
        ),
        (
            "anti-affinity",
            (
                "add Kubernetes nodes: a worker shares one with others only if all of their "
                "NodeSets set oversubscribeNode"
            ),
        ),
        ("unbound immediate PersistentVolumeClaims", "create a StorageClass or the volume"),
        ("unschedulable", "uncordon a Kubernetes node"),
    ):
        if words in message:
            remedies.append(remedy)
    remedy = "; ".join(remedies) or "Add a Kubernetes node on which the pod fits"
    return Finding(
        reason or "Unschedulable",
        Level.BLOCKS,
        about,
        f"No Kubernetes node fits: {message}" if message else "No Kubernetes node fits.",
        f"{remedy[0].upper()}{remedy[1:]}.",
        event="the scheduler tries again when a Kubernetes node changes",
    )


def _kube_node_ready(node: Object) -> bool:
    ready = objects.condition(node, "Ready")
    return ready is not None and ready.status == "True"


def _kube_node(pod: Object, about: str, seen: Seen) -> list[Finding]:
    name = objects.text(pod, "spec", "nodeName")
    node = objects.named(seen.kube.kube_nodes, name)
    if name in seen.kube.absent_kube_nodes:
        return [
            Finding(
                "KubeNodeGone",
                Level.BLOCKS,
                about,
                f"Its Kubernetes node {name} does not exist.",
                _describe(pod, seen),
            )
        ]
    if node is None or _kube_node_ready(node):
        return []
    ready = objects.condition(node, "Ready")
    why = f": {ready.message}" if ready is not None and ready.message else ""
    return [
        Finding(
            "KubeNodeNotReady",
            Level.BLOCKS,
            about,
            f"Its Kubernetes node {name} is not ready{why}",
            f"Repair the kubelet of {name}.",
        )
    ]


def _container(status: Object, pod: Object, about: str, seen: Seen) -> list[Finding]:
    name = objects.text(status, "name")
    waiting = objects.text(status, "state", "waiting", "reason")
    message = objects.text(status, "state", "waiting", "message")
    last = objects.dig(status, "lastState", "terminated")
    if waiting in _IMAGE:
        image = objects.text(status, "image")
        cause = f"The image {image} of container {name} can't be pulled: {message or waiting}"
        remedy = "Correct the image or its tag, or add a pull Secret (imagePullSecrets)."
        if missing := project.remedy([image]):
            remedy = f"The registry {missing}."
        return [
            Finding(
                waiting,
                Level.BLOCKS,
                about,
                cause,
                remedy,
                event="the kubelet tries again, at most 5 minutes later",
            )
        ]
    if waiting in _CONFIG:
        return [
            Finding(
                waiting,
                Level.BLOCKS,
                about,
                f"Container {name} can't be created: {message or waiting}",
                _describe(pod, seen),
            )
        ]
    if waiting == "CrashLoopBackOff" or (
        isinstance(last, dict) and not objects.dig(status, "ready")
    ):
        return [_crashed(name, last, waiting, pod, about, seen)]
    ended = objects.dig(status, "state", "terminated")
    if isinstance(ended, dict) and objects.number(ended, "exitCode") != 0:
        return [_crashed(name, ended, waiting, pod, about, seen)]
    if waiting not in _QUIET:
        return [
            Finding(
                waiting,
                Level.WAITS,
                about,
                f"Container {name} waits: {message or waiting}",
                _describe(pod, seen),
            )
        ]
    return []


def _crashed(
    name: str, ended: object, waiting: str, pod: Object, about: str, seen: Seen
) -> Finding:
    code, reason = objects.number(ended, "exitCode"), objects.text(ended, "reason")
    detail = " ".join(objects.text(ended, "message").split())
    cause = f"Container {name} ended with exit code {code}" + (
        f" ({reason})" if reason and reason != "Error" else ""
    )
    cause += f": {detail}" if detail else "."
    at = objects.time(ended, "finishedAt")
    later = at + BACKOFF_SECONDS if at is not None and waiting == "CrashLoopBackOff" else None
    remedy = (
        "Raise the memory limit of the container."
        if reason == "OOMKilled"
        else "Its log shows the cause."
    )
    return Finding(
        waiting or reason or "Error",
        Level.BLOCKS,
        about,
        cause,
        remedy,
        (f"kubectl -n {seen.namespace} logs {objects.name(pod)} -c {name} --previous",),
        event="the kubelet restarts it at the latest then"
        if later is not None and later > seen.now
        else "",
        at=later if later is not None and later > seen.now else None,
    )


def _events(pod: Object, about: str, seen: Seen) -> list[Finding]:
    for event in objects.events_of(seen.kube.events, "Pod", objects.name(pod)):
        reason = objects.text(event, "reason")
        if reason in _BAD_EVENTS:
            cause = f"{_BAD_EVENTS[reason]} {objects.text(event, 'message')}".strip()
            return [Finding(reason, Level.BLOCKS, about, cause, _describe(pod, seen))]
    return []


def _describe(pod: Object, seen: Seen) -> str:
    return f"See: kubectl -n {seen.namespace} describe pod {objects.name(pod)}"


def _logs(pod: Object, seen: Seen, containers: list[str]) -> str:
    return (
        f"See: kubectl -n {seen.namespace} logs {objects.name(pod)} -c {containers[0]}"
        if containers
        else _describe(pod, seen)
    )
