"""persistentVolumeClaimRetentionPolicy: which claims are deleted together with what.

A claim is deleted with its owner. With `whenDeleted: Delete` the owner is the NodeSet. With
`whenScaled: Delete` it is the pod, from the moment it is to be scaled in until it is rescued.
Claims with another owner are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecars.policy.nodeset.actions import SetOwners
from sidecars.workloads import assembly, names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecars.policy.nodeset.pods import PodPlan
    from sidecars.policy.nodeset.records import Claim, WorkerPod
    from sidecars.workloads.resources import Json, NodeSet


@dataclass(frozen=True, slots=True)
class ClaimChanges:
    """Which claims get other owners."""

    before_deletion: Mapping[str, tuple[SetOwners, ...]]
    """By uid of a pod that is deleted in this pass: what has to be done first."""
    others: tuple[SetOwners, ...] = ()


def changes(
    nodeset: NodeSet, claims: Iterable[Claim], pods: Sequence[WorkerPod], plan: PodPlan
) -> ClaimChanges:
    """Return what to change so that the owners of all claims are as the policy asks for."""
    if not nodeset.spec.volume_claim_templates:
        return ClaimChanges({})
    policy = nodeset.spec.persistent_volume_claim_retention_policy
    delete_scaled = policy.when_scaled == "Delete"
    deleted = {deletion.pod.uid for deletion in plan.delete}
    staying = {pod.uid for pod in pods if not pod.terminating and pod.uid not in deleted}
    find = _Finder(nodeset, claims)

    before: dict[str, tuple[SetOwners, ...]] = {}
    for deletion in plan.delete if delete_scaled else ():
        pod = deletion.pod
        if deletion.scaled_in:
            before[pod.uid] = tuple(
                SetOwners(claim, (_owner(pod),))
                for claim in find.of(pod)
                if _is_ours(claim, nodeset, {pod.uid}) and claim.owners != {pod.uid}
            )

    handled = {change.claim.uid for group in before.values() for change in group}
    for_all = (assembly.owner_reference(nodeset),) if policy.when_deleted == "Delete" else ()
    scaled_in = [pod for pod in plan.scaled_in if pod.uid in staying] if delete_scaled else []
    pod_of = {claim.uid: pod for pod in scaled_in for claim in find.of(pod)}
    others = []
    for claim in find.everything:
        owning = pod_of.get(claim.uid)
        owners = (_owner(owning),) if owning is not None else for_all
        ours = claim.uid not in handled and _is_ours(claim, nodeset, staying)
        if ours and claim.owners != {owner["uid"] for owner in owners}:
            others.append(SetOwners(claim, owners))
    return ClaimChanges(before, tuple(others))


class _Finder:
    """Finds the claims of a pod."""

    def __init__(self, nodeset: NodeSet, claims: Iterable[Claim]) -> None:
        self.everything = tuple(claims)
        self._templates = [
            str(it["metadata"]["name"]) for it in nodeset.spec.volume_claim_templates or ()
        ]
        self._by_name = {claim.name: claim for claim in self.everything}
        self._by_place: dict[str | None, list[Claim]] = {}
        for claim in self.everything:
            self._by_place.setdefault(claim.place, []).append(claim)

    def of(self, pod: WorkerPod) -> Sequence[Claim]:
        """Return the claims of a pod, by their names in StatefulSet mode, else by the Kubernetes
        node that they are for.
        """
        if pod.mode != "StatefulSet":
            return self._by_place.get(pod.place, ()) if pod.place is not None else ()
        found = (self._by_name.get(names.claim(template, pod.name)) for template in self._templates)
        return [claim for claim in found if claim is not None]


def _owner(pod: WorkerPod) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}


def _is_ours(claim: Claim, nodeset: NodeSet, pods: set[str]) -> bool:
    """Return whether the claim's owners may be changed, because it has none, this NodeSet, or one
    of these pods.
    """
    return not claim.terminating and claim.owners <= {nodeset.metadata.uid, *pods}
