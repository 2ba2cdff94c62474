"""Decisions for one NodeSet: which worker pods to create, drain and delete, and what it is waiting for.

The rule behind all of it: a pod is deleted only when its Slurm node is known to be drained, or when its slurmd never
ran. Where Slurm's state is unknown nothing destructive is decided; creation never waits for Slurm.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from sidecars.contract import reasons
from sidecars.contract.extra import pod_facts
from sidecars.contract.reasons import Owner
from sidecars.slurm import hostlists, states

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sidecars.policy.placement import Place
    from sidecars.slurm.records import Job, Node

RECORD_ORPHANED_SECONDS = 5.0
"""How long a Slurm node record must have been without its pod before it is deleted: longer than a watch event takes."""

NOT_REGISTERED_SECONDS = 10.0
"""How long a started slurmd gets to register before its absence from Slurm's list counts as "no job can be there"."""

_JOB_NOT_THERE = frozenset(
    {
        *("PENDING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
        *("DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED", "REVOKED"),
    }
)
"""States of a job that hasn't begun or has ended (squeue, JOB STATE CODES)."""

FORCED_GRACE_SECONDS = 30
"""Grace of a pod that goes because its Slurm cluster goes."""

FAILED_WAIT_MOST = 900.0
"""Longest wait in seconds before a failed pod is made again."""

TOGETHER = 16
"""From how many pods that go for the same cause on their drain reasons are worded alike, to be one request."""

_SCALE_IN = "scale-in"
_MODE_CHANGE = "a change of scalingMode"
_NO_MATCH = "its Kubernetes node, which no longer matches"
_OTHER_HOSTNAME = "a change of its hostname"
_EVENTS = {_OTHER_HOSTNAME: "HostnameMismatch"}
_NOT_REPLACED = frozenset({_SCALE_IN, _MODE_CHANGE, _NO_MATCH})

_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One pod of the NodeSet as observed. Times are seconds since the epoch.

    `cordon` tells who asked for the drain by annotation: a user, the operator, or nobody. `started` is False only
    while the slurmd container is known never to have run. `kube_node_cordon` is the drain reason that comes from the
    Kubernetes node, None while that node is schedulable or unknown; `kube_node_gone`: bound to one that there is not;
    `out_of_service`: to one that is tainted so; `machine_silent`: to one whose kubelet doesn't report. `slurmd_since`:
    when slurmd started to run, None if it doesn't. `terminating_grace`: seconds of grace that a pod being deleted was
    given; `terminating_until`: when it is over. `mode`: the scaling mode that it was made in; `place`: the Kubernetes
    node that it is for, in DaemonSet mode.
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
    slurmd_since: float | None = None
    deleting: bool = False
    terminating_until: float | None = None
    cordon: Literal["user", "operator"] | None = None
    kube_node_cordon: str | None = None
    deletion_cost: int = 0
    kube_node_gone: bool = False
    out_of_service: bool = False
    machine_silent: bool = False
    terminating_grace: int | None = None
    mode: str = "StatefulSet"
    place: str | None = None
    resource_version: str = ""

    @property
    def finished(self) -> bool:
        """All its containers have ended for good."""
        return self.phase in {"Failed", "Succeeded"}


@dataclass(frozen=True, slots=True)
class Desired:
    """What the NodeSet asks for. `max_unavailable` is already a number of pods, at least 1.

    `places` is None in StatefulSet mode; in DaemonSet mode it holds each Kubernetes node by name, and `replicas` is how
    many of them a pod belongs on. `rolling`: pods of an old revision are replaced a few at a time; `reservation`: they
    are while their Slurm node is in the maintenance of that name. `leaving` is True once the NodeSet is being deleted;
    `forced` once its Slurm cluster is going as well and `deletionTimeout` is over. `pins`: the Kubernetes node that the
    pod of an ordinal has to run on.
    """

    namespace: str
    replicas: int
    revision: str
    rolling: bool = True
    max_unavailable: int = 1
    leaving: bool = False
    forced: bool = False
    name: str = ""
    places: Mapping[str, Place] | None = None
    reservation: str | None = None
    pins: Mapping[str, str] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        """spec.scalingMode."""
        return "StatefulSet" if self.places is None else "DaemonSet"


@dataclass(frozen=True, slots=True)
class SlurmView:
    """Slurm's nodes by name. `problem` is None for a complete and fresh view, else says why it isn't one.

    `unsettled`: nodes that were written to since they were read. `held`: nodes with a job that has begun and not ended,
    in whatever state the node is; None as long as nobody has asked. `unread`: nodes that changed since their jobs were
    asked for, so that nobody knows yet. `deadlines`: when the jobs of a node end at the
    latest, as far as that has been read.
    """

    nodes: Mapping[str, Node]
    problem: str | None
    unsettled: frozenset[str] = frozenset()
    held: frozenset[str] | None = None
    unread: frozenset[str] = frozenset()
    deadlines: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A pod that may go now. `grace_seconds` None keeps the pod's own grace; `drained`: Slurm says that it is free;
    `absent`: that it has no such node.
    `scaled_in`: nothing comes in its place.
    `as_seen`: the pod's own status is why, so it may go only if that hasn't changed since it was read.
    `machine_lost`: that its machine is lost is why, so likewise. `event`, `severity`: of the event that tells of it.
    """

    pod: WorkerPod
    because: str
    grace_seconds: int | None = None
    drained: bool = False
    absent: bool = False
    scaled_in: bool = False
    as_seen: bool = False
    machine_lost: bool = False
    event: str = "SuccessfulDelete"
    severity: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that is to go and can't yet. `again`: seconds until time alone may have changed that."""

    pod: WorkerPod
    step: str
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions of one pass. Order within each: as they are to be carried out; drains come before deletions.

    `create` are ordinals, or Kubernetes nodes' names in `create_on`. `problems`: pods that can't be made, and why.
    `scaled_in`: pods that are to go, now or later, and in whose place nothing comes.
    """

    create: tuple[int, ...] = ()
    create_on: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    delete: tuple[Deletion, ...] = ()
    cordon: tuple[WorkerPod, ...] = ()
    uncordon: tuple[WorkerPod, ...] = ()
    drain: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    undrain: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    scaled_in: tuple[WorkerPod, ...] = ()
    look_again_after: float | None = None


def plan(desired: Desired, pods: Iterable[WorkerPod], slurm: SlurmView, now: float) -> Plan:
    """Decide one pass over a NodeSet."""
    everyone = tuple(pods)
    live = [pod for pod in everyone if not pod.deleting]
    if desired.leaving or len(live) > desired.replicas:
        # Not in each pass: of thousands it is dear.
        live.sort(key=lambda pod: deletion_order(pod, slurm))
    finished = [pod for pod in live if pod.finished]
    working = [pod for pod in live if not pod.finished]
    condemned = condemn(desired, everyone, working, slurm)
    counts = Counter(condemned.values())

    delete = [_made_again(pod) for pod in finished]
    if desired.forced:
        delete += [
            Deletion(pod, "its Slurm cluster is being removed", FORCED_GRACE_SECONDS)
            for pod in everyone
            if pod.deleting and (pod.terminating_grace or 0) > FORCED_GRACE_SECONDS
        ]
    waiting: list[Waiting] = []
    for pod in working:
        if pod.name in condemned:
            verdict = may_go(pod, desired, slurm, now)
            if isinstance(verdict, Deletion):
                cause = condemned[pod.name]
                event = _EVENTS.get(cause, verdict.event)
                delete.append(replace(verdict, scaled_in=cause in _NOT_REPLACED, event=event))
            else:
                waiting.append(verdict)

    going = {deletion.pod.name for deletion in delete}
    drain: dict[str, list[str]] = {}
    undrain: list[str] = []
    cordon: list[WorkerPod] = []
    uncordon: list[WorkerPod] = []
    for pod in working:
        why = condemned.get(pod.name)
        node = slurm.nodes.get(pod.slurm_node)
        machine = _machine_cordon(pod, node if slurm.problem is None else None)
        if (why is not None or machine is True) and pod.cordon is None and pod.name not in going:
            cordon.append(pod)
        elif why is None and machine is False and pod.cordon == "operator":
            uncordon.append(pod)
        if node is None or slurm.problem is not None or pod.name in going:
            continue
        reason = drain_reason(pod, desired.namespace, why)
        if reason is not None:
            together = why is not None and counts[why] >= TOGETHER
            wording = common_reason(desired, why) if why is not None and together else reason
            said = (reason, common_reason(desired, why)) if why is not None else (reason,)
            if should_drain(node, said):
                drain.setdefault(wording, []).append(pod.slurm_node)
        elif not pod.kube_node_gone and should_undrain(node, pod):
            undrain.append(pod.slurm_node)

    create: tuple[int, ...] = ()
    create_on: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    if not desired.leaving and desired.places is not None:
        create_on, problems = free_places(everyone, desired.places)
    elif not desired.leaving:
        numbered = sum(1 for pod in everyone if pod.mode == desired.mode)
        create = free_ordinals(everyone, max(0, desired.replicas - numbered))
    return Plan(
        create=create,
        create_on=create_on,
        problems=problems,
        delete=tuple(delete),
        cordon=tuple(cordon),
        uncordon=tuple(uncordon),
        drain={reason: tuple(names) for reason, names in drain.items()},
        undrain=tuple(undrain),
        waiting=tuple(waiting),
        scaled_in=tuple(pod for pod in working if condemned.get(pod.name) in _NOT_REPLACED) if condemned else (),
        look_again_after=min((it.again for it in waiting if it.again is not None), default=None),
    )


def _made_again(pod: WorkerPod) -> Deletion:
    why = f"its phase is {pod.phase}"
    if pod.mode != "DaemonSet":
        return Deletion(pod, why, as_seen=True)
    if pod.phase == "Failed":
        return Deletion(pod, why, as_seen=True, event="FailedDaemonPod", severity="Warning")
    return Deletion(pod, why, as_seen=True, event="SucceededDaemonPod")


def condemn(
    desired: Desired, everyone: Sequence[WorkerPod], working: Sequence[WorkerPod], slurm: SlurmView
) -> dict[str, str]:
    """The pods that are to go, by name, and why. `working`: those that run or may, in deletion order."""
    if desired.leaving:
        return {pod.name: "removal of its NodeSet" for pod in working}
    condemned = {pod.name: _MODE_CHANGE for pod in working if pod.mode != desired.mode}
    ours = [pod for pod in working if pod.mode == desired.mode]
    if desired.places is None:
        condemned |= {pod.name: _SCALE_IN for pod in ours[: max(0, len(ours) - desired.replicas)]}
    else:
        condemned |= misplaced(ours, desired.places)
    staying = [pod for pod in everyone if pod.mode == desired.mode and pod.name not in condemned]
    return condemned | dict.fromkeys(outdated(desired, staying, slurm), "an update")


def misplaced(pods: Iterable[WorkerPod], places: Mapping[str, Place]) -> dict[str, str]:
    """The pods of DaemonSet mode that have no place, by name, and why. Of several in one place the oldest stays."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for pod in sorted(pods, key=lambda pod: pod.created):
        place = places.get(pod.place or "")
        if place is None:
            found[pod.name] = "its Kubernetes node, which is gone"
        elif not place.may_stay:
            found[pod.name] = _NO_MATCH
        elif pod.slurm_node and place.slurm_node != pod.slurm_node and not place.problem:
            found[pod.name] = _OTHER_HOSTNAME
        elif place.kube_node in taken:
            found[pod.name] = "another pod on its Kubernetes node"
        taken.add(pod.place or "")
    return found


def free_places(pods: Iterable[WorkerPod], places: Mapping[str, Place]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The Kubernetes nodes where a pod is missing and can be made, by name; and why others can't be made.

    A name in Slurm that a pod still has, be it a terminating one, is not given to another. A pod whose place can't be
    called as it should keeps its former name.
    """
    everyone = tuple(pods)
    called = {(pod.place, pod.slurm_node) for pod in everyone}
    occupied = {pod.place for pod in everyone if pod.place is not None}
    names = {pod.slurm_node for pod in everyone}
    missing = [place for _, place in sorted(places.items()) if place.should_run and place.kube_node not in occupied]
    able = tuple(place.kube_node for place in missing if not place.problem and place.slurm_node not in names)
    problems = (place for _, place in sorted(places.items()) if place.should_run and place.problem)
    return able, tuple(place.problem for place in problems if (place.kube_node, place.slurm_node) not in called)


def may_go(pod: WorkerPod, desired: Desired, slurm: SlurmView, now: float) -> Deletion | Waiting:
    """Whether a condemned pod can be deleted without a job being lost, and if not, what it waits for."""
    node = slurm.nodes.get(pod.slurm_node)
    facts = pod_facts(node.extra) if node is not None else None
    # The kubelet's report may lag behind: a pod that Slurm knows has started.
    if not pod.started and (facts is None or facts.pod_uid != pod.uid):
        return Deletion(pod, "its slurmd never started", as_seen=True)
    if desired.forced:
        return Deletion(pod, "its Slurm cluster is being removed", FORCED_GRACE_SECONDS)
    if slurm.problem is not None:
        # Nobody tells when what failed once, like the list of all jobs, could be read again.
        return Waiting(pod, f"the state of Slurm node {pod.slurm_node} is unknown: {slurm.problem}", again=5.0)
    if pod.slurm_node in slurm.unsettled:
        return Waiting(pod, f"Slurm node {pod.slurm_node} was changed just now and is being read again", again=1.0)
    if node is None:
        left = 0.0 if pod.slurmd_since is None else pod.slurmd_since + NOT_REGISTERED_SECONDS - now
        if left > 0:
            return Waiting(pod, f"slurmd has just started and may yet register Slurm node {pod.slurm_node}", again=left)
        return Deletion(pod, f"Slurm has no node {pod.slurm_node}", absent=True)
    if states.is_drained(node.states):
        if pod.slurm_node in slurm.unread:
            said = f"Slurm node {pod.slurm_node} is drained; whether a suspended job is there is being read"
            return Waiting(pod, said, again=5.0)
        if slurm.held is not None and pod.slurm_node in slurm.held:
            return Waiting(pod, f"Slurm node {pod.slurm_node} is drained but holds a suspended job", again=5.0)
        return Deletion(pod, f"Slurm node {pod.slurm_node} is drained", drained=True)
    if states.is_drain(node.states):
        return Waiting(pod, f"Slurm node {pod.slurm_node} is draining: its jobs are still running")
    return Waiting(pod, f"Slurm node {pod.slurm_node} is about to be drained", again=1.0)


def undecided(plan: Plan) -> Plan:
    """The plan while it is being read whose jobs end first: nobody new is chosen to go."""
    condemned = {it.pod.name for it in plan.waiting}
    chosen = {pod.name: pod.slurm_node for pod in plan.cordon if pod.name in condemned}
    others = {why: [name for name in names if name not in chosen.values()] for why, names in plan.drain.items()}
    return replace(
        plan,
        cordon=tuple(pod for pod in plan.cordon if pod.name not in chosen),
        scaled_in=tuple(pod for pod in plan.scaled_in if pod.name not in chosen),
        drain={why: tuple(names) for why, names in others.items() if names},
        waiting=tuple(
            replace(it, step="the jobs are being read, to see whose end first") if it.pod.name in chosen else it
            for it in plan.waiting
        ),
    )


def held_nodes(jobs: Iterable[Job]) -> frozenset[str]:
    """Nodes with a job that has begun and not ended: a suspended one leaves its node IDLE (scontrol, suspend)."""
    held: set[str] = set()
    for job in jobs:
        if job.nodes and job.states.isdisjoint(_JOB_NOT_THERE):
            held.update(hostlists.expand(job.nodes))
    return frozenset(held)


def drain_reason(pod: WorkerPod, namespace: str, condemned_for: str | None) -> str | None:
    """The reason that the operator wants on the pod's Slurm node; None when it wants no drain."""
    if condemned_for is not None:
        return reasons.of_operator(f"Pod ({namespace}/{pod.name}) is pending termination for {condemned_for}")
    if pod.kube_node_cordon is not None:
        return reasons.of_operator(pod.kube_node_cordon)
    if pod.cordon == "user":
        return reasons.of_operator(f"Pod ({namespace}/{pod.name}) was cordoned")
    return None


def _machine_cordon(pod: WorkerPod, node: Node | None) -> bool | None:
    """Whether the pod's node is, or is to be, drained because its Kubernetes node is cordoned; None if unknown."""
    if pod.kube_node_cordon is None:
        return False
    return _is_ours(node) if node is not None else None


def common_reason(desired: Desired, condemned_for: str) -> str:
    """The wording of a drain reason for many pods that go for the same cause."""
    whose = f"{desired.namespace}/{desired.name}"
    return reasons.of_operator(f"Pods of NodeSet ({whose}) are pending termination for {condemned_for}")


def should_drain(node: Node, wordings: Collection[str]) -> bool:
    """Drain what is not drained yet, and say one of the right reasons; a reason of somebody else stays."""
    return not states.is_drain(node.states) or (_is_ours(node) and node.reason not in wordings)


def _is_ours(node: Node) -> bool:
    """Whether nobody else has drained it."""
    return not states.is_drain(node.states) or reasons.owner(node.reason) is Owner.OPERATOR


def should_undrain(node: Node, pod: WorkerPod) -> bool:
    """The operator lifts its own drains, and one that a pod asked for that is gone.

    On a record that another pod left behind only when this one is ready: before, no slurmd may be there for a job.
    """
    if not states.is_drain(node.states):
        return False
    facts = pod_facts(node.extra)
    own = facts is not None and facts.pod_uid == pod.uid
    owner = reasons.owner(node.reason)
    if owner is Owner.OPERATOR:
        return own or pod.ready
    return owner is Owner.POD and facts is not None and not own and pod.ready


def is_busy(pod: WorkerPod, slurm: SlurmView) -> bool:
    """Whether Slurm says that the pod's node holds a job."""
    node = slurm.nodes.get(pod.slurm_node)
    return node is not None and states.is_busy(node.states)


def deletion_order(pod: WorkerPod, slurm: SlurmView) -> tuple[object, ...]:
    """Sort key: pods that go first come first (slinky.slurm.net NodeSet, scale-in preference).

    Not bound to a node, then pending, not ready, cheap, idle in Slurm, free of jobs the soonest, cordoned, high
    ordinal, ready for the shortest time, youngest.
    """
    busy = is_busy(pod, slurm)
    return (
        pod.kube_node is not None,
        _PHASE_ORDER.get(pod.phase, 2),
        pod.ready,
        pod.deletion_cost,
        busy,
        # Of jobs whose end nobody has read, none is known to end soon.
        slurm.deadlines.get(pod.slurm_node, math.inf) if busy else 0.0,
        pod.cordon is None,
        -pod.ordinal,
        -(pod.ready_since or math.inf),
        -pod.created,
    )


def outdated(desired: Desired, pods: Iterable[WorkerPod], slurm: SlurmView) -> list[str]:
    """Names of the pods of an old revision that the update strategy replaces now; none with OnDelete.

    Those that are of no use to Slurm go first and cost nothing. Not being ready alone is not enough for that: every
    worker is that while slurmctld restarts. RollingUpdate takes of the others, those not ready first, while fewer than
    `max_unavailable` pods are missing or not available, so that it stops when new pods fail. ScheduledUpdate takes
    those whose Slurm node is in maintenance by the reservation. Pods already condemned keep their place, so that a roll
    doesn't wander between victims. One on a Kubernetes node where none would be made anew is left until one would.
    """
    if desired.leaving or not (desired.rolling or desired.reservation is not None):
        return []
    live = [pod for pod in pods if not pod.deleting and not pod.finished and not lingers(pod, desired)]
    old = [pod for pod in live if pod.revision != desired.revision]
    if not old:
        return []
    useless = {pod.name for pod in old if not pod.started or (not pod.ready and _unusable(pod, slurm))}
    others = sorted(
        (pod for pod in old if pod.name not in useless),
        key=lambda pod: (pod.cordon != "operator", pod.ready, -pod.ordinal, -pod.created),
    )
    if desired.reservation is not None:
        chosen = [pod for pod in others if in_maintenance(slurm.nodes.get(pod.slurm_node), desired.reservation)]
    else:
        missing = max(0, desired.replicas - len(live))
        unavailable = sum(1 for pod in live if pod.revision == desired.revision and not pod.available)
        chosen = others[: max(0, desired.max_unavailable - missing - unavailable)]
    return [*(pod.name for pod in old if pod.name in useless), *(pod.name for pod in chosen)]


def lingers(pod: WorkerPod, desired: Desired) -> bool:
    """Whether the pod is on a Kubernetes node where it may stay and none would be made anew: it is not a replica."""
    place = desired.places.get(pod.place or "") if desired.places is not None else None
    return place is not None and not place.should_run


def in_maintenance(node: Node | None, reservation: str) -> bool:
    """Whether the Slurm node is in the maintenance of that reservation now."""
    return node is not None and "MAINTENANCE" in node.states and reservation in node.reservation.split(",")


def _unusable(pod: WorkerPod, slurm: SlurmView) -> bool:
    node = slurm.nodes.get(pod.slurm_node)
    return slurm.problem is None and (node is None or states.is_down(node.states) or "NOT_RESPONDING" in node.states)


def free_ordinals(pods: Iterable[WorkerPod], count: int) -> tuple[int, ...]:
    """The `count` lowest ordinals that no pod has, ascending; a terminating pod keeps its own until it is gone."""
    taken = {pod.ordinal for pod in pods if pod.mode == "StatefulSet"}
    free: list[int] = []
    ordinal = 0
    while len(free) < count:
        if ordinal not in taken:
            free.append(ordinal)
        ordinal += 1
    return tuple(free)


@dataclass(frozen=True, slots=True)
class Failures:
    """How often the pods of one name failed in a row, the last of them, and until when the next one has to wait."""

    count: int
    uid: str
    until: float


def failures(
    before: Mapping[str, Failures],
    pods: Iterable[WorkerPod],
    now: float,
    *,
    unregistered: Collection[str] = (),
    absent: Collection[str] = (),
) -> tuple[dict[str, Failures], float | None]:
    """The failures by pod name after this pass, and after how many seconds the next pod may be made.

    The wait doubles from a second to `FAILED_WAIT_MOST` (as the DaemonSet controller's does), and is forgotten once a
    pod of that name is available. `unregistered`: uids of pods that never got known to Slurm, which is a failure;
    `absent`: of those that Slurm doesn't know at this moment.
    """
    found = {name: item for name, item in before.items() if item.until + FAILED_WAIT_MOST > now}
    for pod in pods:
        known = found.get(pod.name)
        failed = pod.phase == "Failed" or pod.uid in unregistered
        if failed and (known is None or known.uid != pod.uid):
            count = 1 if known is None else known.count + 1
            found[pod.name] = Failures(count, pod.uid, now + min(FAILED_WAIT_MOST, 2.0 ** (count - 1)))
        elif pod.available and not pod.deleting and pod.uid not in absent:
            found.pop(pod.name, None)
    waits = [item.until - now for item in found.values() if item.until > now]
    return found, min(waits, default=None)


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
        foreign = reasons.is_foreign(node.reason)
        keep = foreign or bool(node.reservation)
        if (keep or busy) and not states.is_down(node.states):
            down.setdefault(None if foreign else reasons.RECORD_ORPHANED, []).append(node.name)
        if busy and not keep:
            wait.append(1.0)
        elif not keep:
            delete.append(node.name)
    by_reason = {reason: tuple(names) for reason, names in down.items()}
    return RecordPlan(tuple(delete), by_reason, min(wait) if wait else None)
