"""Node records that outlive their NodeSet, because a job or a reservation names them: deleted when
nothing does.

So do records of power saving, because Slurm didn't answer when their NodeSet was deleted. These are
deleted only if they prove that this Kubernetes cluster has created them, by the uid of their
namespace: Slurm may have NodeSets of others.

A NodeSet that exists deletes the records of its own former pods
(`sidecars.policy.nodeset.node_records`).
"""

import logging
from collections.abc import Callable
from functools import partial

from sidecars.contract import reasons
from sidecars.contract.extra import PodFacts
from sidecars.custom_resources import NODESETS
from sidecars.kube import KubeError
from sidecars.kube.namespaces import uid_of
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset.node_records import (
    KEPT_SECONDS,
    is_cloud_left,
    is_cloud_orphan,
    is_left,
)
from sidecars.slurm import protocol, states
from sidecars.slurm.errors import NotFound, SlurmError
from sidecars.slurm.hostlists import compress
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.owners import pod_of, reason_to_write
from sidecars.slurm.pending import PATIENCE
from sidecars.slurm.records import Node

log = logging.getLogger(__name__)

MOST = 64
"""Records that one pass deletes or writes: each is read again first."""

_Exists = Callable[[str, str, str], bool]


async def prune(runtime: Runtime, key: Key) -> None:
    """Delete those of the Slurm cluster of this Controller that nothing names, and look again while
    others are left.
    """
    cluster = runtime.clusters.get(key)
    if cluster is None or cluster.poller.trouble:
        return
    exists = _existing(runtime)
    nodes = [*cluster.poller.nodes.values()]
    left = [node.name for node in nodes if is_left(node, exists)]
    cloud = [node for node in nodes if is_cloud_left(node, exists)]
    if left or any(is_cloud_orphan(node, exists) for node in nodes):
        runtime.queues.controllers.add_after(key, KEPT_SECONDS)
    try:
        proven = await _proven(runtime, cloud) if cloud else {}
        if not left and not proven:
            return
        jobs, reservations = await cluster.poller.jobs(), await cluster.poller.reservations()
        named = named_nodes(jobs.value.jobs, reservations, nodes)
        free = [name for name in (*left, *proven) if name not in named]
        deleted = [
            name
            for name in free[:MOST]
            if await _delete(runtime, cluster, name, proven.get(name, is_left))
        ]
        for name in [name for name in proven if name in named][:MOST]:
            await _keep(runtime, cluster, name, named[name])
    except (SlurmError, KubeError) as error:
        log.warning(
            "Controller %s/%s: node records of former NodeSets stay for now: %s", *key, error
        )
        return
    if deleted:
        log.info(
            "Controller %s/%s: deleted the records of former NodeSets' nodes: %s",
            *key,
            compress(deleted),
        )


def _existing(runtime: Runtime) -> _Exists:
    """`exists` of `is_left` at this moment."""
    watched, caches = runtime.settings.namespaces, runtime.caches
    nodesets = {it["metadata"]["uid"] for it in caches.nodesets.store.values()}
    pods = {pod.metadata.uid for pod in caches.pods.store.values()}

    def exists(namespace: str, nodeset_uid: str, pod_uid: str) -> bool:
        return (
            (bool(watched) and namespace not in watched)
            or nodeset_uid in nodesets
            or pod_uid in pods
        )

    return exists


_IsLeft = Callable[[Node, _Exists], bool]


async def _proven(runtime: Runtime, cloud: list[Node]) -> dict[str, _IsLeft]:
    """Return those of a namespace of this Kubernetes cluster without their NodeSet, by name, with
    what they have to be still.

    Raises KubeError: a cache may be old, so the API server is asked for the NodeSets that exist.
    """
    proven: dict[str, _IsLeft] = {}
    facts = {node.name: it for node in cloud if (it := pod_of(node)) is not None}
    for namespace in sorted({it.namespace for it in facts.values()}):
        uid = await uid_of(runtime.client, namespace)
        names = [name for name, it in facts.items() if it.namespace == namespace]
        if not uid or all(facts[name].namespace_uid != uid for name in names):
            continue
        items, _ = await runtime.client.list(NODESETS, namespace)
        nodesets = frozenset(str(it["metadata"]["uid"]) for it in items)
        for name in names:
            if _is_proven(facts[name], uid, nodesets):
                proven[name] = partial(_is_cloud_left, uid, nodesets)
    return proven


def _is_proven(facts: PodFacts, uid: str, nodesets: frozenset[str]) -> bool:
    """Return whether a record is of the namespace with this uid, and its NodeSet is gone."""
    return facts.namespace_uid == uid and facts.nodeset_uid not in nodesets


def _is_cloud_left(uid: str, nodesets: frozenset[str], node: Node, exists: _Exists) -> bool:
    facts = pod_of(node)
    return facts is not None and _is_proven(facts, uid, nodesets) and is_cloud_left(node, exists)


async def _delete(runtime: Runtime, cluster: Cluster, name: str, left: _IsLeft) -> bool:
    """Delete the record if it is still left at this moment. Return whether it was. Raises
    SlurmError.
    """
    try:
        node = await cluster.client.call(protocol.get_node(name), timeout=PATIENCE)
        if not left(node, _existing(runtime)):
            return False
        await cluster.poller.delete(name)
    except NotFound:
        return False
    return True


async def _keep(runtime: Runtime, cluster: Cluster, name: str, by: str) -> None:
    """Set the record of power saving DOWN, because `by` names it: Slurm doesn't start its node
    then.
    """
    node = cluster.poller.nodes.get(name)
    if node is None or not is_cloud_left(node, _existing(runtime)):
        return
    reason = reason_to_write(node, reasons.kept(reasons.RECORD_ORPHANED, by))
    if reason is not None and not (states.is_down(node.states) and node.reason == reason):
        await cluster.client.call(protocol.update_nodes([name], state=["DOWN"], reason=reason))
