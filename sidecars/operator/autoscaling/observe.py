"""What a pass looks at: the queue, the nodes of Slurm, and the pods of the NodeSets that are scaled."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sidecars.contract.text import printable
from sidecars.kube import Manifest, records
from sidecars.operator.autoscaling.memory import Memory
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.pods import has_started, slurm_node, waits_for
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.autoscaling import applied, nodesets, offers
from sidecars.policy.autoscaling.applied import Applied, Owner
from sidecars.policy.autoscaling.nodesets import Pods, Worker
from sidecars.policy.autoscaling.plan import Jobs
from sidecars.policy.autoscaling.present import present, reserved
from sidecars.policy.autoscaling.records import Nodes, PresentNode, ScaledNodeSet, Settings, allocates_memory
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
WHY_LIMIT = 256
"""Characters of why a pod can't start."""
_NO_IMAGE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "CrashLoopBackOff"}
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
    """What applies to all NodeSets."""
    lines = conf.parse_readable(controller.spec.extra_conf).all("SelectTypeParameters")
    found = lines[-1].get("SelectTypeParameters") if lines else None
    budget = controller.spec.autoscaling.budget
    return Settings(
        budget=float(budget) if budget is not None else None,
        tiers={it.name: it.tier for it in memory.partitions or () if it.tier != 1},
        max_nodes={it.name: it.max_nodes for it in memory.partitions or () if it.max_nodes is not None},
        memory=allocates_memory(found.split(",") if found else ()),
    )


async def jobs(runtime: Runtime, cluster: Cluster, memory: Memory, wanted: Settings) -> Jobs | None:
    """The queue; None if it can't be read. While it is being read, as it was: the planner looks at its age."""
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
    return Jobs(memory.queue.update(answer.value, wanted), at)


def nodes_are_older(cluster: Cluster, memory: Memory) -> bool:
    """Whether a job that has left the queue may have started on a node since the nodes were asked for."""
    asked_at = cluster.poller.last_good
    return memory.answer is not None and (asked_at is None or asked_at < memory.answer.arrived_at)


def queue_is_older(cluster: Cluster, memory: Memory) -> bool:
    """Whether a job of the queue may be the one that a node has."""
    arrived_at = cluster.poller.last_arrived
    return memory.answer is not None and arrived_at is not None and arrived_at > memory.answer.asked_at


def nodes(
    runtime: Runtime,
    controller: Key,
    cluster: Cluster,
    memory: Memory,
    of: Mapping[str, str],
    leaving: frozenset[str],
) -> Nodes | None:
    """All nodes of Slurm; None if they are unknown. `of` and `leaving`: see `by_node`."""
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
    """Whether Slurm has no node, and no worker has started that it could hide: the poller doubts it for a minute."""
    if cluster.poller.nodes or not cluster.poller.fresh(cluster.poller.now()):
        return False
    pods = (pod for pod in runtime.caches.pods.store.values() if pod.metadata.namespace == controller[0])
    return not any(has_started(pod) for pod in pods if pod.metadata.labels.get(names.CLUSTER) == controller[1])


def _settled(node: PresentNode, memory: Memory, leaving: frozenset[str], now: float) -> PresentNode:
    """The node as idle only since it was last seen otherwise: Slurm's own time is that of its last job."""
    if node.name in leaving:
        return replace(node, nodeset="", usable=False, idle_since=None)
    if node.idle_since is None:
        memory.not_idle_at[node.name] = now
        return node
    since = memory.not_idle_at.get(node.name)
    return node if since is None or since <= node.idle_since else replace(node, idle_since=since)


def workers(runtime: Runtime, nodeset: NodeSet, nodes: Mapping[str, Node]) -> list[Worker]:
    """Its pods that are neither finished nor being deleted. `nodes`: Slurm's, as far as known."""
    found = []
    for pod in runtime.caches.pods.store.by("owner", nodeset.own_id):
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED:
            continue
        name = slurm_node(pod)
        node = nodes.get(name)
        # Slurm may have the node before the kubelet has reported that slurmd runs.
        started = has_started(pod) or (node is not None and belongs_to(node, pod.metadata.uid))
        since, why = (None, "") if started else _stuck(pod)
        found.append(
            Worker(
                # With hostNetwork, a pod has none until Kubernetes has scheduled it.
                slurm_node=name or pod.metadata.name,
                started=started,
                created=pod.metadata.creation_timestamp.timestamp() if pod.metadata.creation_timestamp else 0.0,
                cordoned=pod.metadata.annotations.get(names.POD_CORDON) == "true",
                busy=node is not None and states.is_busy(node.states),
                stuck_since=since,
                why=why,
            )
        )
    return found


def _stuck(pod: records.Pod) -> tuple[float | None, str]:
    """Since when it waits for a Kubernetes node or for an image, and why; None if it doesn't."""
    scheduled = pod.status.condition("PodScheduled")
    created = pod.metadata.creation_timestamp
    if scheduled is not None and scheduled.status == "False":
        since, why = scheduled.last_transition_time or created, scheduled.message
    else:
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        waiting = (it for it in statuses if it.state.waiting is not None and it.state.waiting.reason in _NO_IMAGE)
        why = next(map(waits_for, waiting), "")
        if not why:
            return None, ""
        since = (scheduled.last_transition_time if scheduled is not None else None) or created
    return (since.timestamp() if since is not None else 0.0), printable(why, WHY_LIMIT)


def registered(pods: Pods, nodes: Mapping[str, Node]) -> frozenset[str]:
    """Those of the staying pods that are in Slurm. A pod that hasn't started may have a former one's record."""
    return frozenset(name for name, it in pods.staying.items() if it.started and name in nodes)


def seen(runtime: Runtime, memory: Memory, manifest: Manifest, nodeset: NodeSet, nodes: Mapping[str, Node]) -> Seen:
    """The NodeSet and its pods."""
    spec, meta = nodeset.spec, nodeset.metadata
    before = applied.read(meta.annotations)
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
    pods = nodesets.pods(workers(runtime, nodeset, nodes), ours, spec.replicas)
    names_ = registered(pods, nodes)
    own = [present(nodes[name], nodeset.name) for name in sorted(names_)]
    learnt = offers.learnt(own)
    node = offers.text(learnt) if learnt is not None else before.node if before is not None else ""
    offer, problem = learnt or _remembered(node), ""
    try:
        offer = offers.declared(nodeset) or offer
    except offers.OfferError as error:
        problem = f"spec.autoscaling.node: {error}"
    partitions = offers.partitions(nodeset, memory.partitions or (), own)
    scaled = nodesets.scaled(nodeset, offer, partitions, pods)
    if owner is not None:
        scaled = replace(scaled, min=scaled.replicas, max=scaled.replicas, windows=())
    return Seen(manifest, nodeset, before, pods, names_, scaled, node, owner, until, problem)


def _remembered(node: str) -> offers.Offer | None:
    try:
        return offers.read(node) if node else None
    except offers.OfferError as error:
        log.warning("the annotation %s has an unreadable node: %s", names.AUTOSCALING, error)
        return None


def by_node(seen: Sequence[Seen]) -> tuple[dict[str, str], frozenset[str]]:
    """The NodeSets of the registered nodes, and the nodes that take no job: of former pods, and of pods that go."""
    of = {name: it.nodeset.name for it in seen for name in it.registered}
    return of, frozenset(name for it in seen for name in (*it.pods.leaving, *(it.pods.staying.keys() - it.registered)))
