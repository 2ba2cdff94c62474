"""Worker pods, their claims, and what the NodeSets of one Controller share."""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, Json, Manifest, NodeSet


@dataclass(frozen=True, slots=True)
class Revision:
    """What a worker pod is made from: the NodeSet's choices and the base that was current when they were made.

    `hash` depends on the choices alone, so that a new release's base is adopted only at a roll made for another reason.
    It is the pod label controller-revision-hash and NodeSet.status.nodeSetHash.
    """

    hash: str
    data: Json


def revision(nodeset: NodeSet, facts: Facts) -> Revision:
    """The revision that the NodeSet asks for now, with the present base."""
    raise NotImplementedError


def revision_object(nodeset: NodeSet, revision: Revision, number: int) -> Manifest:
    """The revision as a ControllerRevision `<nodeset>-<hash>`; `number` grows with every new choice."""
    raise NotImplementedError


def revision_of(controller_revision: Manifest) -> Revision:
    """The revision that a ControllerRevision holds. Raises ValueError for one that isn't of this form."""
    raise NotImplementedError


def pod_template(nodeset: NodeSet, controller: Controller, facts: Facts, revision: Revision | None = None) -> Manifest:
    """All that the pods of a NodeSet have in common: {metadata, spec}. Render once, then `pod` per ordinal.

    With `revision` (a stored one) its choices and its base are used, else the NodeSet's own and the present base.
    Raises ResourceError and MissingReferenceError.
    """
    raise NotImplementedError


def pod(
    nodeset: NodeSet, template: Manifest, ordinal: int, revision_hash: str, kube_node: str | None = None
) -> Manifest:
    """The pod of an ordinal in StatefulSet mode, to be created. With `kube_node` it may run on that node only."""
    raise NotImplementedError


def pod_name(nodeset: NodeSet, ordinal: int) -> str:
    """The pod of an ordinal."""
    raise NotImplementedError


def ordinal_of(nodeset: NodeSet, name: str) -> int | None:
    """The ordinal in a pod's name; None if the name isn't one of this NodeSet's."""
    raise NotImplementedError


def hostname(nodeset: NodeSet, ordinal: int) -> str:
    """The hostname, and thereby the Slurm node name, of an ordinal's pod that isn't on the host's network."""
    raise NotImplementedError


def slurm_node_name(pod: Manifest) -> str:
    """The Slurm node of a worker pod. On the host's network it is the Kubernetes node's; empty before it is bound."""
    raise NotImplementedError


def claims(nodeset: NodeSet, ordinal: int) -> list[Manifest]:
    """The PersistentVolumeClaims that a pod needs, without owners; to be created before it, never changed."""
    raise NotImplementedError


def objects(nodeset: NodeSet, controller: Controller, facts: Facts) -> list[Manifest]:
    """What a NodeSet owns beside pods, claims and revisions: the sshd ConfigMap, if it wants ssh."""
    raise NotImplementedError


def shared_objects(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> list[Manifest]:
    """What all NodeSets of a Controller share: the headless Service and the PodDisruptionBudget, owned by all of them.

    Empty without NodeSets.
    """
    raise NotImplementedError


def selector(nodeset: NodeSet) -> dict[str, str]:
    """The labels that pick this NodeSet's pods."""
    raise NotImplementedError
