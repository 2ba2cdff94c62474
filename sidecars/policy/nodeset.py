"""Decisions for one NodeSet: which worker pods to create, drain and delete, and what it is waiting for.

The rule behind all of it: a pod is deleted only when its Slurm node is known to be drained, or when its slurmd never
ran. Where Slurm's state is unknown nothing destructive is decided; creation never waits for Slurm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sidecars.slurm import states

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecars.slurm.records import Node

OPERATOR_REASON = "slurm-operator: "
"""Prefix of the drain reasons that the operator owns; any other non-empty reason is somebody else's."""

POD_REASON = "slurm-node: "
"""Prefix of the drain reasons that the `node` sidecar of a worker pod owns."""

RECORD_ORPHANED_SECONDS = 5.0
"""How long a Slurm node record must have been without its pod before it is deleted: longer than a watch event takes."""

NOT_REGISTERED_SECONDS = 10.0
"""How long a started slurmd gets to register before its absence from Slurm's list counts as "no job can be there"."""

_SLURMCTLD_REASONS = frozenset({"Not responding", "Node unexpectedly rebooted", "none"})
"""What slurmctld writes by itself on a node that fell silent (slurmctld/ping_nodes.c, node_mgr.c)."""

_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One pod of the NodeSet as observed. Times are seconds since the epoch.

    `cordon` tells who asked for the drain by annotation: a user, the operator, or nobody. `started` is False only
    while the slurmd container is known never to have run. `kube_node_cordon` is the drain reason that comes from the
    Kubernetes node, None while that node is schedulable or unknown.
    """

    name: str
    uid: str
    ordinal: int
    slurm_node: str
    kube_node: str | None
    revision: str
    phase: str
    ready: bool
    available: bool
    started: bool
    created: float
    ready_since: float | None = None
    deleting: bool = False
    cordon: Literal["user", "operator"] | None = None
    kube_node_cordon: str | None = None
    deletion_cost: int = 0

    @property
    def finished(self) -> bool:
        """All its containers have ended for good."""
        return self.phase in {"Failed", "Succeeded"}


@dataclass(frozen=True, slots=True)
class Desired:
    """What the NodeSet asks for. `max_unavailable` is already a number of pods, at least 1.

    `leaving` is True once the NodeSet is being deleted; `forced` once its Slurm cluster is going as well and
    `deletionTimeout` is over.
    """

    namespace: str
    replicas: int
    revision: str
    rolling: bool = True
    max_unavailable: int = 1
    leaving: bool = False
    forced: bool = False
    keep_records: bool = False


@dataclass(frozen=True, slots=True)
class SlurmView:
    """Slurm's nodes by name. `problem` is None for a complete and fresh view, else says why it isn't one."""

    nodes: Mapping[str, Node]
    problem: str | None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A pod that may go now. `grace_seconds` None keeps the pod's own grace period."""

    pod: WorkerPod
    because: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that is to go and can't yet."""

    pod: WorkerPod
    step: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions of one pass. Order within each: as they are to be carried out; drains come before deletions."""

    create: tuple[int, ...] = ()
    delete: tuple[Deletion, ...] = ()
    cordon: tuple[WorkerPod, ...] = ()
    uncordon: tuple[WorkerPod, ...] = ()
    drain: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    undrain: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    look_again_after: float | None = None


def plan(desired: Desired, pods: Iterable[WorkerPod], slurm: SlurmView, now: float) -> Plan:
    """Decide one pass over a NodeSet in StatefulSet mode."""
    everyone = tuple(pods)
    staying_names = {pod.name for pod in everyone if not pod.deleting}
    live = sorted((p for p in everyone if not p.deleting), key=lambda pod: deletion_order(pod, slurm.nodes))
    wanted = 0 if desired.leaving else desired.replicas
    finished = [pod for pod in live if pod.finished]
    working = [pod for pod in live if not pod.finished]
    condemned = {pod.name: "scale-in" for pod in working[: max(0, len(working) - wanted)]}
    if desired.leaving:
        condemned = dict.fromkeys(condemned, "removal of its NodeSet")
    elif not condemned:
        condemned = dict.fromkeys(outdated(desired, everyone), "an update")

    delete = [Deletion(pod, f"its phase is {pod.phase}") for pod in finished]
    waiting: list[Waiting] = []
    for pod in working:
        if pod.name in condemned:
            verdict = may_go(pod, desired, slurm, now)
            if isinstance(verdict, Deletion):
                delete.append(verdict)
            else:
                waiting.append(verdict)

    going = {deletion.pod.name for deletion in delete}
    drain: dict[str, list[str]] = {}
    undrain: list[str] = []
    cordon: list[WorkerPod] = []
    uncordon: list[WorkerPod] = []
    for pod in working:
        why = condemned.get(pod.name)
        if why is not None and pod.cordon is None and pod.name not in going:
            cordon.append(pod)
        elif why is None and pod.cordon == "operator":
            uncordon.append(pod)
        node = slurm.nodes.get(pod.slurm_node)
        if node is None or slurm.problem is not None or pod.name in going:
            continue
        reason = drain_reason(pod, desired.namespace, why)
        if reason is not None and should_drain(node, reason):
            drain.setdefault(reason, []).append(pod.slurm_node)
        elif reason is None and should_undrain(node):
            undrain.append(pod.slurm_node)

    create = free_ordinals(everyone, max(0, wanted - len(working) - (len(everyone) - len(live))))
    return Plan(
        create=create,
        delete=tuple(delete),
        cordon=tuple(cordon),
        uncordon=tuple(uncordon),
        drain={reason: tuple(names) for reason, names in drain.items()},
        undrain=tuple(undrain),
        waiting=tuple(waiting),
        look_again_after=1.0 if waiting and staying_names else None,
    )


def may_go(pod: WorkerPod, desired: Desired, slurm: SlurmView, now: float) -> Deletion | Waiting:
    """Whether a condemned pod can be deleted without a job being lost, and if not, what it waits for."""
    if not pod.started:
        return Deletion(pod, "its slurmd never started")
    if desired.forced:
        return Deletion(pod, "its Slurm cluster is being removed", grace_seconds=30)
    if slurm.problem is not None:
        return Waiting(pod, f"the state of Slurm node {pod.slurm_node} is unknown: {slurm.problem}")
    node = slurm.nodes.get(pod.slurm_node)
    if node is None:
        if now - (pod.ready_since or pod.created) < NOT_REGISTERED_SECONDS:
            return Waiting(pod, f"slurmd has just started and may yet register Slurm node {pod.slurm_node}")
        return Deletion(pod, f"Slurm has no node {pod.slurm_node}")
    if states.is_drained(node.states):
        return Deletion(pod, f"Slurm node {pod.slurm_node} is drained")
    if states.is_drain(node.states):
        return Waiting(pod, f"Slurm node {pod.slurm_node} is draining: its jobs are still running")
    return Waiting(pod, f"Slurm node {pod.slurm_node} is about to be drained")


def drain_reason(pod: WorkerPod, namespace: str, condemned_for: str | None) -> str | None:
    """The reason that the operator wants on the pod's Slurm node; None when it wants no drain."""
    if condemned_for is not None:
        return f"{OPERATOR_REASON}Pod ({namespace}/{pod.name}) is pending termination for {condemned_for}"
    if pod.kube_node_cordon is not None:
        return OPERATOR_REASON + pod.kube_node_cordon
    if pod.cordon == "user":
        return f"{OPERATOR_REASON}Pod ({namespace}/{pod.name}) was cordoned"
    return None


def should_drain(node: Node, reason: str) -> bool:
    """Drain what is not drained yet, and say the right reason; a reason of somebody else stays."""
    if not states.is_drain(node.states):
        return True
    return node.reason.startswith(OPERATOR_REASON) and node.reason != reason


def should_undrain(node: Node) -> bool:
    """Only the operator's own drains are lifted by the operator."""
    return states.is_drain(node.states) and node.reason.startswith(OPERATOR_REASON)


def deletion_order(pod: WorkerPod, nodes: Mapping[str, Node]) -> tuple[object, ...]:
    """Sort key: pods that go first come first (slinky.slurm.net NodeSet, scale-in preference).

    Not bound to a node, then pending, not ready, cheap, idle in Slurm, cordoned, high ordinal, ready for the shortest
    time, youngest.
    """
    node = nodes.get(pod.slurm_node)
    return (
        pod.kube_node is not None,
        _PHASE_ORDER.get(pod.phase, 2),
        pod.ready,
        pod.deletion_cost,
        node is not None and states.is_busy(node.states),
        pod.cordon is None,
        -pod.ordinal,
        -(pod.ready_since or math.inf),
        -pod.created,
    )


def outdated(desired: Desired, pods: Iterable[WorkerPod]) -> list[str]:
    """Names of the pods of an old revision that the RollingUpdate strategy replaces now.

    Unhealthy ones go first and cost nothing; healthy ones go while fewer than `max_unavailable` pods are missing or
    not available. Pods already condemned by the operator keep their place, so a roll doesn't wander between victims.
    """
    everyone = tuple(pods)
    if not desired.rolling or desired.leaving:
        return []
    live = [pod for pod in everyone if not pod.deleting and not pod.finished]
    old = [pod for pod in live if pod.revision != desired.revision]
    sick = [pod.name for pod in old if not pod.ready]
    healthy = sorted(
        (pod for pod in old if pod.ready), key=lambda pod: (pod.cordon != "operator", -pod.ordinal, -pod.created)
    )
    missing = max(0, desired.replicas - len(live))
    unavailable = sum(1 for pod in live if pod.revision == desired.revision and not pod.available)
    budget = max(0, desired.max_unavailable - missing - unavailable)
    return sick + [pod.name for pod in healthy[:budget]]


def free_ordinals(pods: Iterable[WorkerPod], count: int) -> tuple[int, ...]:
    """The `count` lowest ordinals that no pod has, ascending; a terminating pod keeps its own until it is gone."""
    taken = {pod.ordinal for pod in pods}
    free: list[int] = []
    ordinal = 0
    while len(free) < count:
        if ordinal not in taken:
            free.append(ordinal)
        ordinal += 1
    return tuple(free)


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """Slurm node records without a pod: to delete, to set DOWN by reason (None keeps theirs), when to look again."""

    delete: tuple[str, ...] = ()
    down: Mapping[str | None, tuple[str, ...]] = field(default_factory=dict)
    look_again_after: float | None = None


def orphaned_records(orphans: Iterable[Node], orphaned_since: Mapping[str, float], now: float) -> RecordPlan:
    """What to do about Slurm node records that carry the uid of a pod that is gone.

    `orphaned_since` says when each was first seen so; a record missing there was first seen now. A record with a
    foreign reason or a reservation is set DOWN and left for the administrator; a busy one is set DOWN, which ends its
    jobs in Slurm, and is deleted once it is free.
    """
    delete: list[str] = []
    down: dict[str | None, list[str]] = {}
    wait: list[float] = []
    for node in orphans:
        age = now - orphaned_since.get(node.name, now)
        if age < RECORD_ORPHANED_SECONDS:
            wait.append(RECORD_ORPHANED_SECONDS - age)
            continue
        busy = states.is_busy(node.states)
        foreign = is_foreign(node.reason)
        keep = foreign or bool(node.reservation)
        if (keep or busy) and not states.is_down(node.states):
            down.setdefault(None if foreign else f"{OPERATOR_REASON}its pod is gone", []).append(node.name)
        if busy and not keep:
            wait.append(1.0)
        elif not keep:
            delete.append(node.name)
    reasons = {reason: tuple(names) for reason, names in down.items()}
    return RecordPlan(tuple(delete), reasons, min(wait) if wait else None)


def is_foreign(reason: str) -> bool:
    """Whether a person or another program gave this reason, rather than the operator, the pod or slurmctld itself."""
    return bool(reason) and not reason.startswith((OPERATOR_REASON, POD_REASON)) and reason not in _SLURMCTLD_REASONS
