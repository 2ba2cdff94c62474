"""Node records that outlive their NodeSet, because a job or a reservation names them: deleted when nothing does.

A NodeSet that exists deletes the records of its own former pods (`sidecars.policy.nodeset.node_records`).
"""

import logging
from collections.abc import Callable

from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset.node_records import KEPT_SECONDS, is_left
from sidecars.slurm import protocol
from sidecars.slurm.errors import NotFound, SlurmError
from sidecars.slurm.hostlists import compress
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.pending import PATIENCE

log = logging.getLogger(__name__)

MOST = 64
"""Records that one pass deletes: each is read again first."""


async def prune(runtime: Runtime, key: Key) -> None:
    """Delete those of the Slurm cluster of this Controller that nothing names, and look again while others are left."""
    cluster = runtime.clusters.get(key)
    if cluster is None or cluster.poller.trouble:
        return
    exists = _existing(runtime)
    left = [node.name for node in cluster.poller.nodes.values() if is_left(node, exists)]
    if not left:
        return
    runtime.queues.controllers.add_after(key, KEPT_SECONDS)
    try:
        jobs, reservations = await cluster.poller.jobs(), await cluster.poller.reservations()
        named = named_nodes(jobs.value.jobs, reservations)
        free = [name for name in left if name not in named]
        deleted = [name for name in free[:MOST] if await _delete(runtime, cluster, name)]
    except SlurmError as error:
        log.warning("Controller %s/%s: node records of former NodeSets stay for now: %s", *key, error)
        return
    if deleted:
        log.info("Controller %s/%s: deleted the records of former NodeSets' nodes: %s", *key, compress(deleted))


def _existing(runtime: Runtime) -> Callable[[str, str, str], bool]:
    """`exists` of `is_left` at this moment."""
    watched, caches = runtime.settings.namespaces, runtime.caches
    nodesets = {it["metadata"]["uid"] for it in caches.nodesets.store.values()}
    pods = {pod.metadata.uid for pod in caches.pods.store.values()}

    def exists(namespace: str, nodeset_uid: str, pod_uid: str) -> bool:
        return (bool(watched) and namespace not in watched) or nodeset_uid in nodesets or pod_uid in pods

    return exists


async def _delete(runtime: Runtime, cluster: Cluster, name: str) -> bool:
    """Whether the record, as it is at this moment, is still left, and was deleted. Raises SlurmError."""
    try:
        node = await cluster.client.call(protocol.get_node(name), timeout=PATIENCE)
        if not is_left(node, _existing(runtime)):
            return False
        await cluster.poller.delete(name)
    except NotFound:
        return False
    return True
