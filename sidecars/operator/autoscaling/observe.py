"""What a pass looks at: the queue, the nodes of Slurm, and the pods of the NodeSets that are
scaled.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sidecars import objects
from sidecars.autoscaling import applied, nodesets, offers
from sidecars.autoscaling.applied import Owner
from sidecars.autoscaling.nodesets import Pods, Worker
from sidecars.autoscaling.plan import Jobs
from sidecars.autoscaling.present import present, reserved
from sidecars.autoscaling.records import (
    Nodes,
    PresentNode,
    ScaledNodeSet,
    Settings,
    allocates_memory,
    patience,
)
from sidecars.contract.autoscaling import Applied, decode
from sidecars.contract.text import printable
from sidecars.kube import Manifest
from sidecars.operator.autoscaling.memory import Memory
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import timestamp
from sidecars.policy.node_autoscalers import Answer, gives_up_at
from sidecars.policy.nodeset.observation import CONTAINER, has_started, slurm_node, waits_for
from sidecars.policy.nodeset.records import FINISHED
from sidecars.slurm import conf, states
from sidecars.slurm.errors import Malformed, NotYet, SlurmError
from sidecars.slurm.owners import belongs_to
from sidecars.slurm.records import Node
from sidecars.workloads import names
from sidecars.workloads.resources import Controller, NodeSet

log = logging.getLogger(__name__)

FACTS_FOR = 15.0
"""Seconds for which partitions and reservations aren't read again."""
FACTS_VALID_FOR = 60.0
"""Seconds after which they are unknown."""
REGISTERS_WITHIN = 900.0
"""Seconds that a pod has from the start of slurmd until its node is in Slurm, and from its
scheduling until slurmd starts, but for the time in which its images are pulled.
"""
WHY_LIMIT = 256
"""Characters of why a pod can't start."""
_NO_IMAGE = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
        "ImageInspectError", "RegistryUnavailable", "CreateContainerConfigError",
        "CreateContainerError", "CrashLoopBackOff",
    }
)  # fmt: skip
"""Why a container waits for something that may never come."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One NodeSet."""

    manifest: Manifest
    nodeset: NodeSet
    applied: Applied | None
    pods: Pods
    registered: frozenset[str]
    """The Slurm nodes of its staying pods that are in Slurm."""
    scaled: ScaledNodeSet
    node: str
    """What a node offers, as it has registered, as a text; "" if none ever has."""
    owner: Owner | None
    """Another client that has set its replicas."""
    until: float | None
    """When autoscaling continues in spite of it, in seconds since the epoch; None: never."""
    problem: str
    """What is wrong with spec.autoscaling.node; "" for nothing."""
    declared: str
    """What it declares, as a text; "" for nothing."""
    differs: str
    """What the workers have registered otherwise; "" for nothing."""


async def facts(cluster: Cluster, memory: Memory) -> None:
    """Have the partitions and reservations. What can't be read stays as it was."""
    now = cluster.poller.now()
    if now - memory.facts_at < FACTS_FOR:
        return
    try:
        found = await cluster.poller.partitions(now - FACTS_FOR)
        reserved = await cluster.poller.reservations()
    except SlurmError as error:
        log.debug("partitions and reservations: %s", error)
        return
    memory.changed = memory.changed or (found, reserved) != (memory.partitions, memory.reservations)
    memory.partitions, memory.reservations, memory.facts_at = found, reserved, now


def settings(controller: Controller, memory: Memory) -> Settings:
    """Return the settings that apply to all NodeSets."""
    lines = conf.parse_readable(controller.spec.extra_conf)
    budget = controller.spec.autoscaling.budget
    return Settings.of(
        memory.partitions or (),
        budget=float(budget) if budget is not None else None,
        memory=allocates_memory(_words(lines, "SelectTypeParameters")),
        patience=patience(_words(lines, "SchedulerParameters")),
    )


def _words(lines: conf.Conf, key: str) -> tuple[str, ...]:
    """Return the words of a list in slurm.conf."""
    found = lines.all(key)
    text = found[-1].get(key) if found else None
    return tuple(text.split(",")) if text else ()


async def jobs(runtime: Runtime, cluster: Cluster, memory: Memory, wanted: Settings) -> Jobs | None:
    """Return the queue, or None if it can't be read. While it is being read, as it was: the planner
    looks at its age.
    """
    answer = memory.answer
    try:
        answer = await cluster.poller.queue()
    except NotYet:
        if answer is None:
            return None
    except SlurmError as error:
        log.debug("the queue: %s", error)
        return None
    memory.answer = answer
    memory.changed = memory.changed or answer.value is not memory.queue.listed
    at = runtime.now() - (cluster.poller.now() - answer.asked_at)
    queue = memory.queue.update(answer.value, wanted)
    return Jobs(queue, at, await _licenses(cluster, memory) if queue.licensed else {})


async def _licenses(cluster: Cluster, memory: Memory) -> Mapping[str, int]:
    """Return the free licenses by name, as they were if they can't be read."""
    try:
        found = {it.name: it.free for it in await cluster.poller.licenses()}
    except SlurmError as error:
        log.debug("licenses: %s", error)
        return memory.licenses
    memory.changed = memory.changed or found != memory.licenses
    memory.licenses = found
    return found


def nodes_are_older(cluster: Cluster, memory: Memory) -> bool:
    """Return whether a job that has left the queue may have started on a node since the nodes were
    asked for.
    """
    asked_at = cluster.poller.last_good
    return memory.answer is not None and (asked_at is None or asked_at < memory.answer.arrived_at)


def queue_is_older(cluster: Cluster, memory: Memory) -> bool:
    """Return whether a job of the queue may be the one that a node has."""
    arrived_at = cluster.poller.last_arrived
    return (
        memory.answer is not None and arrived_at is not None and arrived_at > memory.answer.asked_at
    )


def nodes(
    runtime: Runtime,
    controller: Key,
    cluster: Cluster,
    memory: Memory,
    of: Mapping[str, str],
    leaving: frozenset[str],
) -> Nodes | None:
    """Return all nodes of Slurm, or None if they are unknown. `of` and `leaving`: see `by_node`."""
    poller, now = cluster.poller, runtime.now()
    if (
        not (poller.known or _is_empty(runtime, cluster, controller))
        or poller.last_good is None
        or poller.now() - memory.facts_at > FACTS_VALID_FOR
    ):
        return None
    try:
        reserved_from = reserved(memory.reservations, now)
    except Malformed as error:
        log.warning("the reservations can't be read, so no size changes: %s", error)
        return None
    found: dict[str, tuple[Node, str, float | None, PresentNode]] = {}
    result = []
    for node in poller.nodes.values():
        nodeset, reserved_at = of.get(node.name, ""), reserved_from.get(node.name)
        known = memory.nodes.get(node.name)
        if known is None or known[0] is not node or known[1:3] != (nodeset, reserved_at):
            known = node, nodeset, reserved_at, present(node, nodeset, reserved_at)
        found[node.name] = known
        result.append(_settled(known[3], memory, leaving, now))
    memory.nodes = found
    memory.not_idle_at = {name: at for name, at in memory.not_idle_at.items() if name in found}
    return Nodes(result, now - (poller.now() - poller.last_good))


def _is_empty(runtime: Runtime, cluster: Cluster, controller: Key) -> bool:
    """Return whether Slurm has no node, and no worker has started that it could hide. The poller
    doubts it for a minute.
    """
    if cluster.poller.nodes or not cluster.poller.fresh(cluster.poller.now()):
        return False
    pods = (
        pod for pod in runtime.caches.pods.store.values() if pod.metadata.namespace == controller[0]
    )
    return not any(
        has_started(pod) for pod in pods if pod.metadata.labels.get(names.CLUSTER) == controller[1]
    )


def _settled(node: PresentNode, memory: Memory, leaving: frozenset[str], now: float) -> PresentNode:
    """Return the node as idle only since it was last seen otherwise: Slurm's own time is that of
    its last job.
    """
    if node.name in leaving:
        return replace(node, nodeset="", usable=False, idle_since=None)
    if node.idle_since is None:
        memory.not_idle_at[node.name] = now
        return node
    since = memory.not_idle_at.get(node.name)
    return node if since is None or since <= node.idle_since else replace(node, idle_since=since)


def workers(
    runtime: Runtime, memory: Memory, nodeset: NodeSet, nodes: Mapping[str, Node] | None
) -> list[Worker]:
    """Return the NodeSet's pods that are neither finished nor being deleted. `nodes`: Slurm's.
    None: unknown.
    """
    found = []
    before = memory.in_slurm.get(nodeset.name, {})
    in_slurm = memory.in_slurm[nodeset.name] = {}
    for pod in runtime.caches.pods.store.by("owner", nodeset.own_id):
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED:
            continue
        name = slurm_node(pod)
        node = nodes.get(name) if nodes is not None else None
        # Slurm may have the node before the kubelet has reported that slurmd runs.
        started = has_started(pod) or (node is not None and belongs_to(node, pod.metadata.uid))
        since, why = (None, "") if started else _stuck(pod)
        late = None
        if node is not None or (started and nodes is None):
            in_slurm[pod.metadata.uid] = runtime.now()
        elif started:
            begin = before.get(pod.metadata.uid) or _started_at(pod) or runtime.now()
            in_slurm[pod.metadata.uid] = begin
            late = _late(begin, runtime.now(), _not_in_slurm(begin))
        elif since is None:
            late = _late(_scheduled_at(pod), runtime.now(), _missing(pod))
        since, why = late or (since, why)
        notice = runtime.notices.about(pod)
        until = None
        if since is not None and late is None and notice is not None:
            spec = nodeset.spec.autoscaling
            until = gives_up_at(since, float(spec.capacity_wait_seconds) if spec else 0.0, notice)
            why = notice.text if notice.answer is Answer.REFUSED and notice.text else why
        found.append(
            Worker(
                # With hostNetwork, a pod has none until Kubernetes has scheduled it.
                slurm_node=name or pod.metadata.name,
                started=started,
                created=pod.metadata.creation_timestamp.timestamp()
                if pod.metadata.creation_timestamp
                else 0.0,
                cordoned=pod.metadata.annotations.get(names.POD_CORDON) == "true",
                busy=node is not None and states.is_busy(node.states),
                stuck_since=since,
                why=why,
                failed=late is not None,
                given_up_at=until,
            )
        )
    return found


def _stuck(pod: objects.Pod) -> tuple[float | None, str]:
    """Return since when the pod waits for a Kubernetes node or for an image, and why. Return None
    if it doesn't.
    """
    scheduled = pod.status.condition("PodScheduled")
    created = pod.metadata.creation_timestamp
    if scheduled is not None and scheduled.status == "False":
        since, why = scheduled.last_transition_time or created, scheduled.message
    else:
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        waiting = (
            it
            for it in statuses
            if it.state.waiting is not None and it.state.waiting.reason in _NO_IMAGE
        )
        why = next(map(waits_for, waiting), "")
        if not why:
            return None, ""
        since = (scheduled.last_transition_time if scheduled is not None else None) or created
    return (since.timestamp() if since is not None else 0.0), printable(why, WHY_LIMIT)


def _late(since: float | None, now: float, why: str) -> tuple[float, str] | None:
    """Return since when the pod has had the time to register, and what is missing. Return None
    while it has time.
    """
    if since is None or not why or now - since <= REGISTERS_WITHIN:
        return None
    return since, why


def _not_in_slurm(since: float) -> str:
    return f"slurmd has run since {timestamp(since)} and is not in Slurm, see its log"


def _scheduled_at(pod: objects.Pod) -> float | None:
    found = pod.status.condition("PodScheduled")
    if found is None or found.status != "True" or found.last_transition_time is None:
        return None
    return found.last_transition_time.timestamp()


def _started_at(pod: objects.Pod) -> float | None:
    """Return when slurmd has started for the first time, None if the kubelet doesn't report it."""
    status = next((it for it in pod.status.container_statuses if it.name == CONTAINER), None)
    if status is None or status.restart_count or status.state.running is None:
        return None
    found = status.state.running.started_at
    return None if found is None else found.timestamp()


def _missing(pod: objects.Pod) -> str:
    """Return why slurmd doesn't run in a pod that is scheduled, "" while an image may be pulled."""
    ready = pod.status.condition("PodReadyToStartContainers")
    init, own = pod.status.init_container_statuses, pod.status.container_statuses
    if not own and not init:
        return "the kubelet has not reported its containers"
    if ready is not None and ready.status != "True":
        return "its volumes or its network are not ready, see the pod's events"
    if any(it.state.waiting is not None for it in init):
        return ""
    waiting = (it.state.waiting.reason for it in own if it.state.waiting is not None)
    return (
        "" if "PodInitializing" not in waiting else "an init container has not ended, see its log"
    )


def registered(pods: Pods, nodes: Mapping[str, Node]) -> frozenset[str]:
    """Return the Slurm nodes of the staying pods that are in Slurm. A pod that hasn't started may
    have a former one's record.
    """
    return frozenset(name for name, it in pods.staying.items() if it.started and name in nodes)


def seen(
    runtime: Runtime,
    memory: Memory,
    manifest: Manifest,
    nodeset: NodeSet,
    known: Mapping[str, Node] | None,
) -> Seen:
    """Return the NodeSet and its pods. `known`: Slurm's nodes; None: unknown."""
    nodes = known or {}
    spec, meta = nodeset.spec, nodeset.metadata
    before = decode(meta.annotations.get(names.AUTOSCALING, ""))
    owner, until = applied.other_owner(manifest["metadata"], spec.replicas, before), None
    cool_down = spec.autoscaling.cool_down_seconds if spec.autoscaling is not None else 0
    number, first_seen = memory.others.get(nodeset.name, (-1, 0.0))
    if owner is None:
        memory.others.pop(nodeset.name, None)
    elif number != spec.replicas:
        first_seen = runtime.now()
        memory.others[nodeset.name] = spec.replicas, first_seen
    if owner is not None and owner.person:
        until = (first_seen if owner.since is None else owner.since) + cool_down
        owner = owner if runtime.now() < until else None
    ours = before if before is not None and before.replicas == spec.replicas else None
    pods = nodesets.pods(workers(runtime, memory, nodeset, known), ours, spec.replicas)
    names_ = registered(pods, nodes)
    own = [present(nodes[name], nodeset.name) for name in sorted(names_)]
    learnt = offers.learnt(own)
    declared, problem = None, ""
    try:
        declared = offers.declared(nodeset)
    except offers.OfferError as error:
        problem = f"spec.autoscaling.node: {error}"
    described = offers.text(declared) if declared is not None else ""
    node = ""
    if learnt is not None:
        node = offers.text(learnt)
    elif before is not None and (problem or before.declared == described):
        node = before.node
    offer = learnt or _remembered(node) or declared
    differs = offers.differs(declared, learnt) if declared is not None and learnt else ""
    partitions = offers.partitions(nodeset, memory.partitions or (), own)
    scaled = nodesets.scaled(nodeset, offer, partitions, pods)
    scaled = replace(
        scaled, closed_until=memory.closed.observe(pods, names_, nodeset.name, runtime.now())
    )
    if owner is not None:
        scaled = replace(scaled, min=scaled.replicas, max=scaled.replicas, windows=())
    return Seen(
        manifest,
        nodeset,
        before,
        pods,
        names_,
        scaled,
        node,
        owner,
        until,
        problem,
        described,
        differs,
    )


def _remembered(node: str) -> offers.Offer | None:
    try:
        return offers.read(node) if node else None
    except offers.OfferError as error:
        log.warning("the annotation %s has an unreadable node: %s", names.AUTOSCALING, error)
        return None


def by_node(seen: Sequence[Seen]) -> tuple[dict[str, str], frozenset[str]]:
    """Return the NodeSets of the registered nodes, and the nodes that take no job: of former pods,
    and of terminating pods.
    """
    of = {name: it.nodeset.name for it in seen for name in it.registered}
    return of, frozenset(
        name
        for it in seen
        for name in (*it.pods.leaving, *(it.pods.staying.keys() - it.registered))
    )
