"""What is known of the cluster when a change is previewed, and its records as the policy sees
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from sidecars import objects
from sidecars.contract.extra import PodFacts, encode
from sidecars.policy import podstate
from sidecars.policy.nodeset.observation import worker_pod
from sidecars.policy.nodeset.records import SlurmView, WorkerPod
from sidecars.policy.nodeset.revisions import Stored
from sidecars.slurm.records import Job, Node
from sidecars.workloads import nodeset
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
        """Return the state as the policy sees it."""
        if self.problem:
            return SlurmView({}, self.problem)
        return SlurmView(
            {it.name: it for it in self.nodes}, None, deadlines=podstate.deadlines(self.jobs)
        )


@dataclass(frozen=True, slots=True)
class State:
    """What is known. Without a live cluster: nothing but the time."""

    now: float
    """Seconds since the epoch."""
    live: bool = False
    """Whether the objects before come from a live cluster, and the rest is known."""
    released: Sequence[Manifest] = ()
    """The objects as the release has them that is upgraded; () if that is unknown."""
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
    refusals: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """Why the API server would refuse custom resources, by kind, namespace and name."""

    def of_slurm(self, controller: Key) -> SlurmState:
        """Return the known state of a Slurm cluster."""
        return self.slurm.get(controller) or SlurmState(problem="Slurm was not asked")

    def pods_of(self, workers: NodeSet) -> list[WorkerPod]:
        """Return the NodeSet's pods."""
        wanted, minimum = nodeset.selector(workers), workers.spec.min_ready_seconds
        nodes = self.places()
        found = [
            worker_pod(it, nodes.get(it.spec.node_name), now=self.now, min_ready_seconds=minimum)
            for it in msgspec.convert(self.pods, list[objects.Pod])
            if it.metadata.namespace == workers.namespace
            and wanted.items() <= it.metadata.labels.items()
        ]
        # Who may not list the Kubernetes nodes sees none, and all of them exist.
        return found if nodes else [replace(it, kube_node_gone=False) for it in found]

    def stored(self, workers: NodeSet) -> list[Stored]:
        """Return the NodeSet's revisions."""
        found = []
        for item in self.revisions:
            metadata, wanted = item["metadata"], nodeset.selector(workers)
            if (
                metadata["namespace"] == workers.namespace
                and wanted.items() <= (metadata.get("labels") or {}).items()
            ):
                try:
                    found.append(
                        Stored(
                            metadata["name"],
                            int(item.get("revision") or 0),
                            nodeset.revision_of(item),
                        )
                    )
                except ValueError:
                    continue
        return found

    def places(self) -> dict[str, objects.Node]:
        """Return the Kubernetes nodes by name."""
        nodes = msgspec.convert(self.kube_nodes, list[objects.Node])
        return {node.metadata.name: node for node in nodes}


def assumed(workers: NodeSet, revision: Revision, now: float) -> tuple[list[WorkerPod], SlurmState]:
    """Return the pods of a NodeSet of mode StatefulSet as if all of them were idle, for previews
    without a live cluster.
    """
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
    nodes = [
        Node(it.slurm_node, frozenset({"IDLE"}), extra=encode(PodFacts(it.uid, it.name)))
        for it in found
    ]
    return found, SlurmState(nodes)
