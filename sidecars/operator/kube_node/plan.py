"""Which Kubernetes nodes to cordon because the Slurm node of a worker on it was drained, and which
to label with the name of a worker's Slurm node. Pure.

Three rules prevent a loop. Drains of the operator and of terminating pods do not count. A cordon of
the operator's has a mark, and drains no Slurm node. A marked Kubernetes node that is schedulable
was uncordoned by someone, and stays so until that drain is lifted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sidecars.contract import reasons
from sidecars.contract.text import printable
from sidecars.objects import Node as KubeNode
from sidecars.slurm import states
from sidecars.slurm.records import Node
from sidecars.workloads import names


@dataclass(frozen=True, slots=True)
class Changes:
    """Kubernetes nodes to write to, by name."""

    cordon: Mapping[str, str]
    """To cordon and mark, with their mark."""
    uncordon: tuple[str, ...] = ()
    """To uncordon, with removal of the mark."""
    unmark: tuple[str, ...] = ()
    """To remove only the mark of."""


def to_cordon(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the Kubernetes nodes to cordon because an administrator or a health check drained a
    worker there, with the reason.

    `nodes` are records of worker pods. A drain counts for the Kubernetes node on which the record
    was created (its instance id): a pod that replaces it elsewhere keeps the drain, but not its
    cause.
    """
    reason_of: dict[str, str] = {}
    for node in nodes:
        ill = reasons.is_foreign(node.reason) or reasons.is_health_check(node.reason)
        if node.instance_id and states.is_drain(node.states) and ill:
            reason_of.setdefault(node.instance_id, printable(node.reason))
    return reason_of


def plan(
    drained: Mapping[str, Mapping[str, str]],
    unknown: Collection[str],
    workers: Mapping[str, Collection[str]],
    kube_nodes: Iterable[KubeNode],
    namespaces: Collection[str] = (),
) -> Changes:
    """Plan what to change.

    `drained`: `to_cordon` of each Slurm cluster (NAMESPACE/NAME). `unknown`: silent clusters.
    `workers`: the Kubernetes nodes that run worker pods of each cluster. A cluster's drain counts
    only there, and for a Kubernetes node that was cordoned for this cluster, whose worker may be
    gone since. slurmd reports the Kubernetes node itself: the drain alone would let any Slurm
    cluster cordon any Kubernetes node.

    `namespaces`: those that the operator watches, empty for all. Other marks are another
    operator's. A mark names the Slurm cluster and the reason that a node was cordoned for.
    """
    cordon: dict[str, str] = {}
    uncordon: list[str] = []
    unmark: list[str] = []
    for node in kube_nodes:
        name, cordoned = node.metadata.name, node.spec.unschedulable
        mark = node.metadata.annotations.get(names.CORDONED_FOR, "")
        cluster = mark.partition(": ")[0]
        marks = [
            f"{each}: {reason_of[name]}"
            for each, reason_of in sorted(drained.items())
            if name in reason_of and (each == cluster or name in workers.get(each, ()))
        ]
        if marks:
            if not cordoned and not mark:
                cordon[name] = marks[0]
            continue
        ours = not namespaces or cluster.partition("/")[0] in namespaces
        if mark and ours and cluster not in unknown:
            (uncordon if cordoned else unmark).append(name)
    return Changes(cordon, tuple(uncordon), tuple(unmark))


@dataclass(frozen=True, slots=True)
class Label:
    """The Slurm node of a Kubernetes node, as a label shows it."""

    slurm_node: str
    mark: str
    """The NodeSet, as NAMESPACE/NAME, that the operator has set the label for; "" if it has not."""


def labels(
    workers: Mapping[str, Collection[Label]],
    present: Mapping[str, Label],
    namespaces: Collection[str] = (),
) -> dict[str, Label | None]:
    """Return the labels to set, or None to remove one, by Kubernetes node.

    `workers`: those of NodeSets whose workers are pinned, by Kubernetes node. Of several on one
    Kubernetes node none has the label. `present`: the labels of all Kubernetes nodes, with "" for
    none. A label without a mark of the operator is a user's, and is not changed.

    `namespaces`: those that the operator watches, empty for all. Other marks are another
    operator's.
    """
    changes: dict[str, Label | None] = {}
    for name, label in present.items():
        here = tuple(workers.get(name, ()))
        watched = not namespaces or label.mark.partition("/")[0] in namespaces
        if label.slurm_node and not (label.mark and watched):
            continue
        if len(here) == 1:
            if here[0] != label:
                changes[name] = here[0]
        elif label.mark:
            changes[name] = None
    return changes
