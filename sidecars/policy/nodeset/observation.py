"""From Kubernetes' records to the policy's: pure, one pod at a time."""

from collections.abc import Iterable, Sequence

from sidecars import objects
from sidecars.contract import project
from sidecars.contract.text import printable
from sidecars.policy import failover
from sidecars.policy.conditions import seconds
from sidecars.policy.nodeset import lost
from sidecars.policy.nodeset.records import Claim, WorkerPod
from sidecars.workloads import names

CONTAINER = "slurmd"
"""The container of slurmd."""

PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
"""Reasons with which a container waits while the kubelet tries again and again to pull its image.
"""

_NO_IMAGE = PULLING | {"ErrImageNeverPull", "ImageInspectError", "InvalidImageName"}
"""Reasons with which a container waits for its image in vain (kubelet, images/types.go)."""

SLURMCTLD = "slurmctld"
"""slurmctld's container."""

UNREACHABLE = "node.kubernetes.io/unreachable"
"""Taint of a Kubernetes node whose kubelet has not reported for a while."""

REASON_LIMIT = 256
"""Characters of a drain reason that a Kubernetes node gives, and of why a pod is not scheduled."""


def slurm_node(pod: objects.Pod) -> str:
    """Return the name under which the pod's slurmd registers: its hostname, or the Kubernetes
    node's on the host's network.
    """
    return pod.spec.node_name if pod.spec.host_network else pod.spec.hostname or pod.metadata.name


def has_started(pod: objects.Pod) -> bool:
    """Return whether slurmd may have run in the pod, or False only when it is known not to have."""
    if not pod.spec.node_name:
        return False
    status = next((it for it in pod.status.container_statuses if it.name == CONTAINER), None)
    if status is None:
        return pod.status.phase != "Pending"
    never = status.state.running is None and status.state.terminated is None
    return not (never and status.restart_count == 0 and status.last_state.terminated is None)


def waits_for(status: objects.ContainerStatus) -> str:
    """Return why the container waits, as the kubelet reports it, "" if it doesn't.

    The kubelet alternates between reasons while it tries to pull an image, and its words name the
    seconds until it starts a container again. Here both have one wording, so that a condition is
    not written at each turn.
    """
    waiting = status.state.waiting
    if waiting is None:
        return ""
    if waiting.reason in PULLING:
        more = (
            f": {remedy}"
            if (remedy := project.remedy([status.image]))
            else ", see the pod's events"
        )
        return f"the image {status.image} can't be pulled{more}"
    if waiting.reason == "CrashLoopBackOff":
        return f"the container {status.name} ends again and again, see its log"
    return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason


def worker_pod(
    pod: objects.Pod,
    kube_node: objects.Node | None,
    *,
    now: float,
    min_ready_seconds: int = 0,
    explained_by: Iterable[str] = (),
) -> WorkerPod:
    """Return the pod as the policy sees it. `kube_node` is the node that it is bound to, None when
    unbound or unknown.

    `explained_by`: see `cordon_reason`.
    """
    meta, status = pod.metadata, pod.status
    ready = status.condition("Ready")
    since = ready.last_transition_time if ready is not None and status.ready else None
    ready_since = since.timestamp() if since is not None else None
    mode = meta.labels.get(names.SCALING_MODE, "StatefulSet")
    cordoned = meta.annotations.get(names.POD_CORDON) == "true"
    scheduled = status.condition("PodScheduled")
    unscheduled = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    return WorkerPod(
        name=meta.name,
        uid=meta.uid,
        ordinal=ordinal(meta.name) if mode == "StatefulSet" else -1,
        slurm_node=slurm_node(pod),
        kube_node=pod.spec.node_name or None,
        revision=meta.labels.get(names.REVISION_HASH, ""),
        phase=status.phase,
        ready=status.ready,
        available=ready_since is not None and now - ready_since >= min_ready_seconds,
        started=has_started(pod),
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else now,
        ready_since=ready_since,
        slurmd_since=slurmd_since(pod),
        terminating=meta.deletion_timestamp is not None,
        cordon=("operator" if meta.annotations.get(names.POD_CORDONED_BY) == "operator" else "user")
        if cordoned
        else None,
        drain_requested=meta.annotations.get(names.POD_CORDON_REQUESTED) == "true",
        kube_node_cordon=cordon_reason(kube_node, meta.namespace, meta.name, explained_by)
        if kube_node is not None
        else None,
        deletion_cost=deletion_cost(meta.annotations.get(names.POD_DELETION_COST, "")),
        kube_node_gone=bool(pod.spec.node_name) and kube_node is None,
        out_of_service=kube_node is not None and is_out_of_service(kube_node),
        kubelet_silent=kube_node is not None and _has_taint(kube_node, UNREACHABLE),
        terminating_grace=meta.deletion_grace_period_seconds,
        terminating_until=meta.deletion_timestamp.timestamp()
        if meta.deletion_timestamp is not None
        else None,
        resource_version=meta.resource_version,
        mode=mode,
        unscheduled=printable(unscheduled, REASON_LIMIT),
        no_image=printable(no_image(pod), REASON_LIMIT),
        place=meta.annotations.get(names.KUBE_NODE) or pod.spec.node_name or None
        if mode == "DaemonSet"
        else None,
    )


def observed_claim(claim: objects.PersistentVolumeClaim) -> Claim:
    """Return the claim as the policy sees it."""
    meta = claim.metadata
    return Claim(
        name=meta.name,
        uid=meta.uid,
        owners=frozenset(owner.uid for owner in meta.owner_references),
        place=meta.annotations.get(names.KUBE_NODE),
        terminating=meta.deletion_timestamp is not None,
    )


def is_out_of_service(node: objects.Node) -> bool:
    """Return whether an administrator declares that the host is off, so that nothing of its pods
    runs.
    """
    return _has_taint(node, lost.OUT_OF_SERVICE)


def _has_taint(node: objects.Node, key: str) -> bool:
    return any(taint.key == key for taint in node.spec.taints)


def ordinal(name: str) -> int:
    """Return the number behind the last hyphen of a pod's name, -1 without one."""
    _, _, tail = name.rpartition("-")
    return int(tail) if tail.isascii() and tail.isdigit() else -1


def no_image(pod: objects.Pod) -> str:
    """Return why an image of the pod can't be pulled, as the kubelet reports it, "" if it can or
    may yet be.
    """
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waiting = (
        it
        for it in statuses
        if it.state.waiting is not None and it.state.waiting.reason in _NO_IMAGE
    )
    return next(map(waits_for, waiting), "")


def slurmd_since(pod: objects.Pod) -> float | None:
    """Return when slurmd started, in seconds since the epoch, None while it does not run."""
    return _runs_since(pod, CONTAINER)


def slurmctld_start(pods: Sequence[objects.Pod], *, standbys: bool) -> float | None:
    """Return when the slurmctld that leads started to, in seconds since the epoch, None if that is
    unknown.

    A container ends with its slurmctld, but continues when slurmctld is reconfigured. `standbys`:
    they may take over without a start.
    """
    leading = [
        pod for pod in pods if not standbys or pod.metadata.labels.get(failover.ACTIVE) == "true"
    ]
    if not leading or (standbys and len(leading) > 1):
        return None
    found = [_runs_since(pod, SLURMCTLD) for pod in leading]
    if standbys:
        found.append(seconds(leading[0].metadata.annotations.get(failover.ACTIVE_SINCE)))
    known = [at for at in found if at is not None]
    return max(known) if len(known) == len(found) else None


def _runs_since(pod: objects.Pod, container: str) -> float | None:
    status = _find(pod.status.container_statuses, container)
    started = (
        status.state.running.started_at
        if status is not None and status.state.running is not None
        else None
    )
    return started.timestamp() if started is not None else None


def cordon_reason(
    node: objects.Node, namespace: str, pod: str, explained_by: Iterable[str] = ()
) -> str | None:
    """Return the drain reason that a cordoned Kubernetes node asks for, or None while it is
    schedulable.

    None too where the operator has cordoned it, for an administrator's drain in Slurm: that one is
    enough. The reason is an annotation of the node, or else the node's conditions of the types
    `explained_by` that are True, or else just that it was cordoned. The first two are printable and
    bounded.
    """
    if not node.spec.unschedulable or names.CORDONED_FOR in node.metadata.annotations:
        return None
    found = (node.status.condition(kind) for kind in explained_by)
    problems = "; ".join(
        f"({it.reason}: {it.message})" for it in found if it is not None and it.status == "True"
    )
    reason = node.metadata.annotations.get(names.NODE_CORDON_REASON, "").strip() or problems
    if reason:
        return printable(reason, REASON_LIMIT)
    return f"Node ({node.metadata.name}) was cordoned, Pod ({namespace}/{pod}) must be cordoned"


def deletion_cost(text: str) -> int:
    """Read an int32 in plain decimal. Anything else counts as 0, as in Kubernetes'
    pod-deletion-cost.
    """
    try:
        value = int(text)
    except ValueError:
        return 0
    return value if str(value) == text and -(2**31) <= value < 2**31 else 0


def _find(statuses: Iterable[objects.ContainerStatus], name: str) -> objects.ContainerStatus | None:
    return next((status for status in statuses if status.name == name), None)
