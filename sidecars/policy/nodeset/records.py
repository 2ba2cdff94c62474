"""The input of the decisions for a NodeSet, and their result for one pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sidecars.policy.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.policy.conditions import Condition
    from sidecars.policy.node_autoscalers import Notice
    from sidecars.policy.nodeset.needs import Answer, Need
    from sidecars.policy.nodeset.revisions import Stored
    from sidecars.policy.placement import Place
    from sidecars.slurm.records import Node
    from sidecars.slurm.versions import Release
    from sidecars.workloads.resources import NodeSet

FINISHED = frozenset({"Failed", "Succeeded"})
"""Phases of a pod whose containers have ended for good."""


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One pod of the NodeSet as observed. Times are seconds since the epoch."""

    name: str
    uid: str
    ordinal: int
    """Its number in StatefulSet mode, else -1."""
    slurm_node: str
    """The name that its slurmd registers with; "" while only its future Kubernetes node decides
    that.
    """
    kube_node: str | None
    """The Kubernetes node that it is bound to."""
    revision: str
    """Hash of the revision that it was created from."""
    phase: str
    ready: bool
    available: bool
    """Ready for at least spec.minReadySeconds."""
    started: bool
    """False only while the slurmd container is known never to have run."""
    created: float
    ready_since: float | None = None
    slurmd_since: float | None = None
    """When slurmd started; None while it does not run."""
    terminating: bool = False
    """It has a deletionTimestamp."""
    terminating_until: float | None = None
    """When the grace of a terminating pod ends."""
    terminating_grace: int | None = None
    """Seconds of grace that a terminating pod was given."""
    cordon: Literal["user", "operator"] | None = None
    """Who asked for its drain by annotation."""
    drain_requested: bool = False
    """A program asks for its drain by annotation; the operator answers with its mark."""
    kube_node_cordon: str | None = None
    """The drain reason that its Kubernetes node asks for; None while that one is schedulable or
    unknown.
    """
    deletion_cost: int = 0
    kube_node_gone: bool = False
    """It is bound to a Kubernetes node that does not exist."""
    out_of_service: bool = False
    """Its Kubernetes node has the taint `out-of-service`: its host is shut down."""
    kubelet_silent: bool = False
    """The kubelet of its Kubernetes node does not report."""
    mode: str = "StatefulSet"
    """The spec.scalingMode that it was created in."""
    place: str | None = None
    """The Kubernetes node that it was created for, in DaemonSet mode."""
    unscheduled: str = ""
    """Why it is not bound to a Kubernetes node, as the scheduler reports it: bounded, printable. ""
    if unknown.
    """
    no_image: str = ""
    """Why the image of one of its containers can't be pulled, as the kubelet reports it; bounded,
    printable.
    """
    notice: Notice | None = None
    """What a node autoscaler has reported about it last."""
    resource_version: str = ""

    @property
    def finished(self) -> bool:
        """All its containers have ended for good."""
        return self.phase in FINISHED


@dataclass(frozen=True, slots=True)
class DesiredPods:
    """The pods that the NodeSet asks for."""

    namespace: str
    replicas: int
    """In DaemonSet mode the number of Kubernetes nodes on which a pod belongs."""
    revision: str
    """Hash of the revision that new pods are created from."""
    rolling: bool = True
    """Pods of an old revision are replaced, at most `max_unavailable` at a time."""
    max_unavailable: int = 1
    """A number of pods, at least 1."""
    deleting: bool = False
    """The NodeSet is being deleted."""
    forced: bool = False
    """The NodeSet is being deleted and its `deletionTimeout` is over: it does not wait for jobs."""
    name: str = ""
    places: Mapping[str, Place] | None = None
    """In DaemonSet mode each Kubernetes node by name; None in StatefulSet mode."""
    reservation: str | None = None
    """Pods of an old revision are replaced while their Slurm node is in the maintenance of this
    reservation.
    """
    pins: Mapping[str, str] = field(default_factory=dict)
    """The Kubernetes node on which the pod of an ordinal has to run."""
    removable: tuple[str, ...] | None = None
    """Slurm nodes: only their pods are removed as surplus, in this order. None: as `deletion_order`
    prefers.
    """
    ordinals: frozenset[int] | None = None
    """With Slurm's power saving, the ordinals that need a pod; None without it."""
    slots: int = 0
    """How many ordinals may have a pod with power saving."""

    @property
    def mode(self) -> str:
        """spec.scalingMode."""
        return "StatefulSet" if self.places is None else "DaemonSet"


@dataclass(frozen=True, slots=True)
class Desired:
    """What the NodeSet asks for, and what new pods are created from."""

    nodeset: NodeSet
    pods: DesiredPods
    creatable: bool = True
    """Pods can be created: their template is known."""
    problem: Condition | None = None
    """Why they can't be, or why they are created from an older revision than the newest: a
    condition `Ready`.
    """
    look_again: float | None = None
    """Seconds until time alone may have changed `problem`."""
    collisions: int | None = None
    """status.collisionCount of the revision."""
    record_line: str = ""
    """With power saving, the line of node records: see `power.line`."""
    record_problem: str = ""
    """Why it can't be composed."""


@dataclass(frozen=True, slots=True)
class SlurmView:
    """What is known of Slurm."""

    nodes: Mapping[str, Node]
    """The node records by name."""
    problem: str | None
    """Why `nodes` is not a complete and fresh view; None when it is one."""
    unsettled: frozenset[str] = frozenset()
    """Nodes that were written to since they were read."""
    nodes_with_jobs: frozenset[str] | None = None
    """Nodes with a job that has begun and not ended, whatever the state of the node; None while
    nobody has asked.
    """
    unread: frozenset[str] = frozenset()
    """Nodes that changed since the jobs were read: whether they have one is unknown."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Who names a node, such as `job 17`, by node, as of the last answer; see
    `sidecars.slurm.naming`.
    """
    jobs_problem: str = ""
    """Why the jobs could not be read; "" while nobody has asked, and when they were."""
    deadlines: Mapping[str, float] = field(default_factory=dict)
    """When the jobs of a node end at the latest, as far as that has been read."""
    last_listed: Mapping[str, int] = field(default_factory=dict)
    """When slurmctld last listed the node, by its own clock in seconds since the epoch, also if it
    vanished lately.
    """
    release: Release | None = None
    """The release that slurmrestd reports; None while that is unknown."""
    age: float = 0.0
    """Seconds from when `nodes` was asked for to when the pass began; negative if it was asked for
    later.
    """


@dataclass(frozen=True, slots=True)
class OtherWorkers:
    """The workers of the other NodeSets of the Slurm cluster."""

    running: int = 0
    """Those whose slurmd runs."""
    missing: int = 0
    """Those of them that should have registered, and of which Slurm has no node."""
    replaced: tuple[float, ...] = ()
    """When some were replaced because of that, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim of a worker pod."""

    name: str
    uid: str
    owners: frozenset[str] = frozenset()
    """uids of its ownerReferences."""
    place: str | None = None
    """The Kubernetes node that it is for, in DaemonSet mode."""
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known when a pass decides."""

    pods: Sequence[WorkerPod]
    slurm: SlurmView
    connected: bool = True
    """A slurmrestd is known that can be asked."""
    clock: float = 0.0
    """When the pass began, by the clock that dates answers: the same in each step, so that needs
    stay the same.
    """
    settled: bool = True
    """The pods show all earlier creations and deletions. Otherwise no pod is created or deleted."""
    controller_deleted: bool = False
    """The Controller does not exist or is being deleted."""
    others: OtherWorkers = field(default_factory=OtherWorkers)
    """Counted only where `SlurmctldStart` is among the answers."""
    claims: Sequence[Claim] = ()
    """The PersistentVolumeClaims of the NodeSet's pods."""
    revisions: Sequence[Stored] = ()
    """The stored revisions."""
    orphans: Sequence[Node] = ()
    """Node records of deleted pods of the NodeSet."""
    conditions: Sequence[Mapping[str, object]] = ()
    """status.conditions."""
    answers: Mapping[Need, Answer] = field(default_factory=dict)
    """What was read because an earlier step of this pass needed it."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A pod that may be deleted."""

    pod: WorkerPod
    because: str
    grace_seconds: int | None = None
    """None keeps the pod's own grace."""
    drained: bool = False
    """It may be deleted because its Slurm node is drained."""
    absent: bool = False
    """It may be deleted because Slurm has no such node."""
    scaled_in: bool = False
    """No pod replaces it."""
    only_unchanged: bool = False
    """Its own status is the cause: it may be deleted only if it has not changed since it was read.
    """
    kube_node_lost: bool = False
    """The loss of its Kubernetes node is the cause."""
    event: EventReason = EventReason.SUCCESSFUL_DELETE
    """Reason of the event that reports the deletion."""
    severity: Literal["Normal", "Warning"] = "Normal"
    """Type of that event."""
    valid_until: float | None = None
    """When what was read for it is too old to delete the pod, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A condemned pod that can't be deleted yet."""

    pod: WorkerPod
    step: str
    """What it waits for."""
    look_again: float | None = None
    """Seconds until time alone may have changed that."""
