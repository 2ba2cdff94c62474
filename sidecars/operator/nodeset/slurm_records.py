"""Slurm node records that pods of a NodeSet left behind."""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from sidecars.contract import reasons
from sidecars.contract.extra import pod_facts
from sidecars.kube import PODS, NotFound, records
from sidecars.operator.nodeset.memory import Memory
from sidecars.operator.nodeset.steps import bound
from sidecars.operator.runtime.bulk import all_of, each
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.pods import slurm_node
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset.node_records import RecordPlan, orphaned_records
from sidecars.policy.nodeset.records import SlurmView
from sidecars.slurm.hostlists import compress
from sidecars.slurm.records import Node
from sidecars.workloads.resources import NodeSet

log = logging.getLogger(__name__)


async def prune(
    runtime: Runtime, memory: Memory, nodeset: NodeSet, cluster: Cluster | None, view: SlurmView
) -> float | None:
    """Records that pods of this NodeSet left behind. Returns when to look again, None when there is nothing left."""
    if cluster is None or view.problem is not None or nodeset.spec.node_records == "Keep":
        return None
    since = memory.orphaned_since
    orphans = _orphans(runtime, nodeset, view.nodes)
    for name in set(since) - {node.name for node in orphans}:
        del since[name]
    for node in orphans:
        since.setdefault(node.name, runtime.now())
    plan = orphaned_records(orphans, since, runtime.now())
    unseen = await _unseen(runtime, nodeset, plan, {node.name: node for node in orphans})

    async def delete(nodes: Sequence[str]) -> None:
        for name in nodes:
            await cluster.poller.delete(name)

    deleted: list[str] = []
    steps = [bound(delete, [name], done=deleted) for name in plan.delete if name not in unseen]
    down = partial(cluster.poller.down, owners=reasons.NOT_FOREIGN)
    steps += [
        bound(down, [name for name in nodes if name not in unseen], reason) for reason, nodes in plan.down.items()
    ]
    await all_of(steps)
    if deleted:
        log.info(
            "NodeSet %s/%s: deleted the records of Slurm nodes %s, whose pods are gone",
            nodeset.namespace,
            nodeset.name,
            compress(deleted),
        )
    return 1.0 if unseen or len(deleted) < len(plan.delete) else plan.look_again


async def _unseen(
    runtime: Runtime, nodeset: NodeSet, plan: RecordPlan, records_of: Mapping[str, Node]
) -> frozenset[str]:
    """Those of the plan's nodes whose pod the cache may just not show yet: slurmd may run there."""
    names = sorted({*plan.delete, *(name for nodes in plan.down.values() for name in nodes)})
    seen = {pod.metadata.uid for pod in runtime.caches.pods.store.values()} if names else set()
    answers = await each(partial(_may_live, runtime, nodeset, records_of[name], seen) for name in names)
    return frozenset(name for name, answer in zip(names, answers, strict=True) if answer is not False)


async def _may_live(runtime: Runtime, nodeset: NodeSet, node: Node, seen: Collection[str]) -> bool:
    """Whether there is a pod of that name other than those `seen` in the cache, by uid. Raises KubeError."""
    facts = pod_facts(node.extra)
    if facts is None or not facts.pod:
        return False
    try:
        pod = await runtime.client.get(PODS, nodeset.namespace, facts.pod, records.Pod)
    except NotFound:
        return False
    return pod.metadata.uid not in seen


def _orphans(runtime: Runtime, nodeset: NodeSet, nodes: Mapping[str, Node]) -> list[Node]:
    # Reading the JSON of thousands of records in each pass would cost more than the rest of it.
    owned = [node for node in nodes.values() if nodeset.metadata.uid in node.extra]
    if not owned:
        return []
    pods = runtime.caches.pods.store.values()
    alive = {pod.metadata.uid for pod in pods}
    # A record keeps the uid of the pod that made it even when a successor of the same name has registered with it. One
    # that has no machine yet has no slurmd, and there may never be a machine for it.
    in_use = {slurm_node(pod) for pod in pods if pod.metadata.namespace == nodeset.namespace and pod.spec.node_name}
    found = []
    for node in owned:
        if node.name in in_use:
            continue
        facts = pod_facts(node.extra)
        if facts is not None and facts.nodeset_uid == nodeset.metadata.uid and facts.pod_uid not in alive:
            found.append(node)
    return found
