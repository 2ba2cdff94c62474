"""What is known of the cluster when a change is previewed, and its records as the policy sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sidecars.contract.extra import PodFacts, encode
from sidecars.policy import placement, podstate
from sidecars.policy.nodeset.records import SlurmView, WorkerPod
from sidecars.policy.nodeset.revisions import Stored
from sidecars.slurm.records import Job, Node
from sidecars.workloads import names, nodeset
from sidecars.workloads.nodeset import Revision
from sidecars.workloads.resources import Manifest, NodeSet

Key = tuple[str, str]
"""Namespace and name of a Controller."""


@dataclass(frozen=True, slots=True)
class SlurmState:
    """What a Slurm cluster reports."""

    nodes: Sequence[Node] = ()
    jobs: Sequence[Job] = ()
    problem: str = ""
    """Why that is unknown; "" if it is known."""

    def view(self) -> SlurmView:
        """As the policy sees it."""
        if self.problem:
            return SlurmView({}, self.problem)
        return SlurmView({it.name: it for it in self.nodes}, None, deadlines=podstate.deadlines(self.jobs))


@dataclass(frozen=True, slots=True)
class State:
    """What is known. Without a live cluster: nothing but the time."""

    now: float
    """Seconds since the epoch."""
    live: bool = False
    """Whether the objects before come from a live cluster, and the rest is known."""
    referenced: Sequence[Manifest] = ()
    """Secrets and ConfigMaps that custom resources refer to, of others than the release."""
    pods: Sequence[Manifest] = ()
    """Worker pods."""
    revisions: Sequence[Manifest] = ()
    """ControllerRevisions."""
    kube_nodes: Sequence[Manifest] = ()
    claims: Sequence[Manifest] = ()
    """PersistentVolumeClaims of slurmctld."""
    storage_classes: Mapping[str, bool] | None = None
    """By name, whether a StorageClass allows that claims grow; None if that is unknown."""
    slurm: Mapping[Key, SlurmState] = field(default_factory=dict)

    def of_slurm(self, controller: Key) -> SlurmState:
        """What is known of a Slurm cluster."""
        return self.slurm.get(controller) or SlurmState(problem="Slurm was not asked")

    def pods_of(self, workers: NodeSet) -> list[WorkerPod]:
        """The NodeSet's pods."""
        wanted, minimum = nodeset.selector(workers), workers.spec.min_ready_seconds
        nodes = {it["metadata"]["name"]: it for it in self.kube_nodes}
        return [
            worker_pod(it, nodes.get(it["spec"].get("nodeName", "")), self.now, minimum)
            for it in self.pods
            if it["metadata"]["namespace"] == workers.namespace
            and wanted.items() <= (it["metadata"].get("labels") or {}).items()
        ]

    def stored(self, workers: NodeSet) -> list[Stored]:
        """The NodeSet's revisions."""
        found = []
        for item in self.revisions:
            metadata, wanted = item["metadata"], nodeset.selector(workers)
            if metadata["namespace"] == workers.namespace and wanted.items() <= (metadata.get("labels") or {}).items():
                try:
                    found.append(Stored(metadata["name"], int(item.get("revision") or 0), nodeset.revision_of(item)))
                except ValueError:
                    continue
        return found

    def places(self) -> dict[str, placement.KubeNode]:
        """The Kubernetes nodes."""
        return {
            it["metadata"]["name"]: placement.KubeNode(
                name=it["metadata"]["name"],
                labels=it["metadata"].get("labels") or {},
                taints=[(taint["key"], taint.get("value", ""), taint["effect"]) for taint in _taints(it)],
                unschedulable=bool((it.get("spec") or {}).get("unschedulable")),
                hostname=(it["metadata"].get("annotations") or {}).get(names.HOSTNAME_OVERRIDE, ""),
            )
            for it in self.kube_nodes
        }


def _taints(node: Manifest) -> Sequence[Mapping[str, str]]:
    return (node.get("spec") or {}).get("taints") or ()


def worker_pod(pod: Manifest, kube_node: Manifest | None, now: float, min_ready_seconds: int = 0) -> WorkerPod:
    """A worker pod as the policy sees it. `kube_node`: the one that it is bound to, None if that is unknown."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    conditions = {it["type"]: it for it in status.get("conditions") or ()}
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    since = _seconds((conditions.get("Ready") or {}).get("lastTransitionTime")) if ready else None
    mode = labels.get(names.SCALING_MODE, "StatefulSet")
    container = next((it for it in status.get("containerStatuses") or () if it["name"] == "slurmd"), None)
    _, _, tail = metadata["name"].rpartition("-")
    bound = spec.get("nodeName") or None
    return WorkerPod(
        name=metadata["name"],
        uid=metadata["uid"],
        ordinal=int(tail) if mode == "StatefulSet" and tail.isascii() and tail.isdigit() else -1,
        slurm_node=(bound or "") if spec.get("hostNetwork") else spec.get("hostname") or metadata["name"],
        kube_node=bound,
        revision=labels.get(names.REVISION_HASH, ""),
        phase=status.get("phase", "Pending"),
        ready=ready,
        available=since is not None and now - since >= min_ready_seconds,
        started=bound is not None and _has_started(container, status.get("phase", "Pending")),
        created=_seconds(metadata.get("creationTimestamp")) or now,
        ready_since=since,
        slurmd_since=_seconds((((container or {}).get("state") or {}).get("running") or {}).get("startedAt")),
        terminating=bool(metadata.get("deletionTimestamp")),
        cordon=_cordon(annotations),
        deletion_cost=_cost(annotations.get(names.POD_DELETION_COST, "")),
        mode=mode,
        place=(annotations.get(names.KUBE_NODE) or bound) if mode == "DaemonSet" else None,
        kube_node_cordon="cordoned" if kube_node is not None and kube_node["spec"].get("unschedulable") else None,
    )


def assumed(workers: NodeSet, revision: Revision, now: float) -> tuple[list[WorkerPod], SlurmState]:
    """The pods of a NodeSet of mode StatefulSet as if all of them were idle: where no live cluster is asked."""
    ordinals = range(workers.spec.replicas if workers.spec.scaling_mode == "StatefulSet" else 0)
    found = [
        WorkerPod(
            name=nodeset.pod_name(workers, ordinal),
            uid=nodeset.pod_name(workers, ordinal),
            ordinal=ordinal,
            slurm_node=nodeset.hostname(workers, ordinal),
            kube_node=f"node-{ordinal}",
            revision=revision.hash,
            phase="Running",
            ready=True,
            available=True,
            started=True,
            created=now - 3600,
            ready_since=now - 3600,
            slurmd_since=now - 3600,
        )
        for ordinal in ordinals
    ]
    nodes = [Node(it.slurm_node, frozenset({"IDLE"}), extra=encode(PodFacts(it.uid, it.name))) for it in found]
    return found, SlurmState(nodes)


def _has_started(container: Mapping[str, Any] | None, phase: str) -> bool:
    if container is None:
        return phase != "Pending"
    state, last = container.get("state") or {}, container.get("lastState") or {}
    return bool(
        state.get("running") or state.get("terminated") or container.get("restartCount") or last.get("terminated")
    )


def _cordon(annotations: Mapping[str, str]) -> Any:
    if annotations.get(names.POD_CORDON) != "true":
        return None
    return "operator" if annotations.get(names.POD_CORDONED_BY) == "operator" else "user"


def _cost(text: str) -> int:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else 0


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
