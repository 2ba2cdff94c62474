"""Cordons of worker pods that SchedMD's operator has set, which this operator takes over and ends.

SchedMD's operator marks a pod with the annotation that a user sets too. The API server knows who
has set it (metadata.managedFields). The mark of a user stays.
"""

import logging
from functools import partial

from sidecars import objects
from sidecars.kube import PODS, Conflict, Forbidden, Invalid, NotFound
from sidecars.operator.nodeset.passes import Pass
from sidecars.operator.runtime import bulk, managed_fields
from sidecars.operator.upgrade import takeover
from sidecars.workloads import names

log = logging.getLogger(__name__)


async def take_over(this: Pass) -> bool:
    """Take cordons over. Return whether any were to be taken over. The watch then shows it, and
    starts another pass. Raises KubeError.
    """
    pods = this.runtime.caches.pods.store.by("owner", this.nodeset.own_id)
    unclear = [
        pod
        for pod in pods
        if _is_unclear(pod) and pod.metadata.uid not in this.memory.cordoned_by_users
    ]
    results = await bulk.each(partial(_take_over, this, pod) for pod in unclear)
    for pod, result in zip(unclear, results, strict=True):
        if isinstance(result, Forbidden | Invalid):
            # No reason to stop everything else of the NodeSet.
            this.memory.cordoned_by_users.add(pod.metadata.uid)
            log.warning(
                "NodeSet %s/%s: the cordon of pod %s stays: %s",
                *this.key,
                pod.metadata.name,
                result,
            )
        elif isinstance(result, Exception) and not isinstance(result, Conflict | NotFound):
            raise result
    return not all(result is False or isinstance(result, Forbidden | Invalid) for result in results)


def _is_unclear(pod: objects.Pod) -> bool:
    meta = pod.metadata
    cordoned = (
        meta.annotations.get(names.POD_CORDON) == "true"
        and names.POD_CORDONED_BY not in meta.annotations
    )
    return cordoned and meta.deletion_timestamp is None and takeover.is_former(pod)


async def _take_over(this: Pass, pod: objects.Pod) -> bool:
    """Take the cordon of a pod over, if the mark is that of SchedMD's operator. Return whether it
    was.
    """
    meta = pod.metadata
    # The cached record lacks managedFields.
    live = await this.runtime.client.get(PODS, meta.namespace, meta.name)
    metadata = live["metadata"]
    if metadata["uid"] != meta.uid:
        return True
    if not managed_fields.is_set_by_former(live, "metadata", "annotations", names.POD_CORDON):
        this.memory.cordoned_by_users.add(meta.uid)
        return False
    patch = {
        "uid": meta.uid,
        "resourceVersion": metadata["resourceVersion"],
        "annotations": {names.POD_CORDONED_BY: "operator"},
    }
    await this.runtime.client.merge_patch(PODS, meta.namespace, meta.name, {"metadata": patch})
    log.info("NodeSet %s/%s: the cordon of pod %s is taken over", *this.key, meta.name)
    return True
