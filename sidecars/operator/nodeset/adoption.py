"""Worker pods that a NodeSet of the same name has left: `kubectl delete nodeset --cascade=orphan`
keeps them.

While such a deletion is in progress, Kubernetes' garbage collector takes the NodeSet out of their
owner references. The NodeSet then counts as one without pods. The next NodeSet of its name adopts
them.
"""

import contextlib
import logging
import re
from functools import partial

import msgspec

from sidecars import objects
from sidecars.custom_resources import NODESETS
from sidecars.kube import (
    CONTROLLER_REVISIONS,
    PODS,
    Conflict,
    Forbidden,
    Invalid,
    Manifest,
    NotFound,
)
from sidecars.operator.nodeset.memories import Memories
from sidecars.operator.nodeset.passes import Pass
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.waking import instance, key_of
from sidecars.workloads import assembly, names
from sidecars.workloads.resources import NodeSet

log = logging.getLogger(__name__)

ORPHANED = "orphaned"
"""Index of the worker pods without a controller: by the NodeSet that their labels name."""

ORPHAN_FINALIZER = "orphan"
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/"""


def index(pod: objects.Pod) -> tuple[Key, ...]:
    """Return the values of a pod in the index `ORPHANED`."""
    return (instance(pod),) if pod.metadata.controller is None else ()


def remember(memories: Memories, manifest: Manifest) -> None:
    """Note that a NodeSet is being deleted without its pods. The garbage collector soon removes its
    finalizer.
    """
    metadata = manifest["metadata"]
    if metadata.get("deletionTimestamp") and ORPHAN_FINALIZER in (metadata.get("finalizers") or ()):
        memories.of(key_of(manifest)).leaves_pods = metadata["uid"]


def leaves_pods(this: Pass) -> bool:
    """Return whether the NodeSet is being deleted without its pods and claims."""
    return this.memory.leaves_pods == this.nodeset.metadata.uid


async def delete_revisions(this: Pass) -> None:
    """Delete the ControllerRevisions of a NodeSet that is deleted without its pods; the next one
    stores the same again.

    Else the garbage collector would try for good to remove their owner: the API server takes any
    patch of one for a change of its data.
    """
    if not leaves_pods(this):
        return
    for manifest in this.runtime.caches.controller_revisions.store.by("owner", this.nodeset.own_id):
        metadata = manifest["metadata"]
        with contextlib.suppress(NotFound):
            await this.runtime.client.delete(
                CONTROLLER_REVISIONS, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )


async def adopt(this: Pass) -> bool:
    """Adopt pods. Return whether any were to be adopted. The watch then shows their owner, and
    starts another pass.

    Raises KubeError. A pod of which the API server refuses that stays as it is, and stops nothing
    else.
    """
    runtime, nodeset = this.runtime, this.nodeset
    if nodeset.metadata.deletion_timestamp is not None:
        return False
    orphaned = [
        pod for pod in runtime.caches.pods.store.by(ORPHANED, this.key) if _is_of(nodeset, pod)
    ]
    if not orphaned:
        return False
    # The cache may not show yet that it is being deleted without them.
    live = await runtime.client.get(NODESETS, *this.key)
    if live["metadata"]["uid"] != nodeset.metadata.uid or live["metadata"].get("deletionTimestamp"):
        return False
    results = await bulk.each(partial(_adopt, this, pod) for pod in orphaned)
    refused = [result for result in results if isinstance(result, Forbidden | Invalid)]
    for result in results:
        if isinstance(result, Exception) and not isinstance(
            result, Conflict | NotFound | Forbidden | Invalid
        ):
            raise result
    if refused:
        log.warning(
            "NodeSet %s/%s: %d pod(s) can't be adopted: %s", *this.key, len(refused), refused[0]
        )
    if adopted := len(orphaned) - len(refused):
        log.info("NodeSet %s/%s: adopted %d pod(s)", *this.key, adopted)
    return bool(adopted)


def _is_of(nodeset: NodeSet, pod: objects.Pod) -> bool:
    """Return whether the pod has the labels and the name of one of the NodeSet's."""
    meta = pod.metadata
    mode = meta.labels.get(names.SCALING_MODE, "StatefulSet")
    name = r"-\d+" if mode == "StatefulSet" else r"-.+"
    return (
        meta.deletion_timestamp is None
        and meta.labels.get(names.CLUSTER) == nodeset.spec.controller_ref.name
        and re.fullmatch(re.escape(nodeset.name) + name, meta.name) is not None
    )


async def _adopt(this: Pass, pod: objects.Pod) -> None:
    meta = pod.metadata
    owners = [*msgspec.to_builtins(meta.owner_references), assembly.owner_reference(this.nodeset)]
    patch = {"uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners}
    await this.runtime.client.merge_patch(PODS, meta.namespace, meta.name, {"metadata": patch})
