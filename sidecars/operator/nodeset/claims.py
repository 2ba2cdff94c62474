"""persistentVolumeClaimRetentionPolicy: who owns the claims of the workers, and thereby takes them along.

whenDeleted=Delete: the NodeSet. whenScaled=Delete: the pod, from when it is to be scaled in until it is rescued. Claims
that somebody else controls are left alone.
"""

from collections.abc import Sequence
from functools import partial

from sidecars.kube import PERSISTENT_VOLUME_CLAIMS, NotFound, records
from sidecars.operator.nodeset.memory import Memory
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset.pods import PodPlan
from sidecars.policy.nodeset.records import Deletion, WorkerPod
from sidecars.workloads import assembly, names
from sidecars.workloads.resources import Json, NodeSet


async def keep(runtime: Runtime, memory: Memory, nodeset: NodeSet, pods: Sequence[WorkerPod], plan: PodPlan) -> bool:
    """Bring the owners of all claims to what the policy says. Returns whether time sufficed. Raises ApiError."""
    if not nodeset.spec.volume_claim_templates:
        return True
    going = {deletion.pod.uid for deletion in plan.delete}
    staying = {pod.uid for pod in pods if not pod.terminating and pod.uid not in going}
    policy_of = nodeset.spec.persistent_volume_claim_retention_policy
    of_all = [assembly.owner_reference(nodeset)] if policy_of.when_deleted == "Delete" else []
    leaving = [pod for pod in plan.scaled_in if pod.uid in staying] if policy_of.when_scaled == "Delete" else []
    pod_of = {claim.metadata.uid: pod for pod in leaving for claim in _claims_of(runtime, nodeset, pod)}
    steps = []
    for claim in runtime.caches.claims.store.by("instance", (nodeset.namespace, nodeset.name)):
        pod = pod_of.get(claim.metadata.uid)
        owners = [_owner(pod)] if pod is not None else of_all
        if _ours(claim, nodeset, staying) and _uids(claim) != {owner["uid"] for owner in owners}:
            steps.append(partial(_own, runtime, claim, owners))
    return await bulk.all_of(steps, bulk.a_slice(runtime.now, lambda: memory.urgent))


async def hand_over(runtime: Runtime, nodeset: NodeSet, deletion: Deletion) -> None:
    """Before a pod is scaled in, have it take its claims along if whenScaled says so. Raises ApiError."""
    policy_of = nodeset.spec.persistent_volume_claim_retention_policy
    if not deletion.scaled_in or policy_of.when_scaled != "Delete" or not nodeset.spec.volume_claim_templates:
        return
    pod = deletion.pod
    for claim in _claims_of(runtime, nodeset, pod):
        if _ours(claim, nodeset, {pod.uid}) and _uids(claim) != {pod.uid}:
            await _own(runtime, claim, [_owner(pod)])


def _claims_of(runtime: Runtime, nodeset: NodeSet, pod: WorkerPod) -> Sequence[records.PersistentVolumeClaim]:
    """By their names in StatefulSet mode, else by the Kubernetes node that they are for."""
    store = runtime.caches.claims.store
    if pod.mode != "StatefulSet":
        return store.by("place", (nodeset.namespace, nodeset.name, pod.place))
    templates = nodeset.spec.volume_claim_templates or ()
    found = (store.get(nodeset.namespace, names.claim(it["metadata"]["name"], pod.name)) for it in templates)
    return [claim for claim in found if claim is not None]


def _owner(pod: WorkerPod) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}


def _ours(claim: records.PersistentVolumeClaim, nodeset: NodeSet, pods: set[str]) -> bool:
    """Whether its owners are for us to change: none, this NodeSet, or one of these pods."""
    return not claim.metadata.deletion_timestamp and _uids(claim) <= {nodeset.metadata.uid, *pods}


def _uids(claim: records.PersistentVolumeClaim) -> set[str]:
    return {owner.uid for owner in claim.metadata.owner_references}


async def _own(runtime: Runtime, claim: records.PersistentVolumeClaim, owners: Sequence[Json]) -> None:
    metadata = claim.metadata
    patch = {"metadata": {"uid": metadata.uid, "ownerReferences": list(owners) or None}}
    try:
        await runtime.client.merge_patch(PERSISTENT_VOLUME_CLAIMS, metadata.namespace, metadata.name, patch)
    except NotFound:
        return
