"""Which Kubernetes nodes to cordon because the Slurm node of a worker on it was drained. Pure.

Three rules prevent a loop. Drains of the operator and of terminating pods do not count. A cordon of the operator's has
a mark, and drains no Slurm node. A marked Kubernetes node that is schedulable was uncordoned by someone, and stays so
until that drain is lifted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sidecars.contract import reasons
from sidecars.contract.text import printable
from sidecars.slurm import states
from sidecars.slurm.records import Node


@dataclass(frozen=True, slots=True)
class KubeNode:
    """A Kubernetes node."""

    name: str
    cordoned: bool
    mark: str = ""
    """The Slurm cluster and the reason that it was cordoned for; "" if the operator did not cordon it."""


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
    """Kubernetes nodes to cordon because an administrator or a health check drained a worker there, with the reason.

    `nodes` are records of worker pods. A drain counts for the Kubernetes node on which the record was created (its
    instance id): a pod that replaces it elsewhere keeps the drain, but not its cause.
    """
    found: dict[str, str] = {}
    for node in nodes:
        ill = reasons.is_foreign(node.reason) or reasons.is_health_check(node.reason)
        if node.instance_id and states.is_drain(node.states) and ill:
            found.setdefault(node.instance_id, printable(node.reason))
    return found


def plan(
    drained: Mapping[str, Mapping[str, str]],
    unknown: Collection[str],
    workers: Mapping[str, Collection[str]],
    kube_nodes: Iterable[KubeNode],
    namespaces: Collection[str] = (),
) -> Changes:
    """What to change. `drained`: `to_cordon` of each Slurm cluster (NAMESPACE/NAME). `unknown`: silent clusters.

    `workers`: the Kubernetes nodes that run worker pods of each cluster. A cluster's drain counts only there, and for
    a Kubernetes node that was cordoned for this cluster, whose worker may be gone since. slurmd reports the Kubernetes
    node itself: the drain alone would let any Slurm cluster cordon any Kubernetes node.
    `namespaces`: those that the operator watches, empty for all. Other marks are another operator's.
    """
    cordon: dict[str, str] = {}
    uncordon: list[str] = []
    unmark: list[str] = []
    for node in kube_nodes:
        cluster = node.mark.partition(": ")[0]
        marks = [
            f"{each}: {reason_of[node.name]}"
            for each, reason_of in sorted(drained.items())
            if node.name in reason_of and (each == cluster or node.name in workers.get(each, ()))
        ]
        if marks:
            if not node.cordoned and not node.mark:
                cordon[node.name] = marks[0]
            continue
        ours = not namespaces or cluster.partition("/")[0] in namespaces
        if node.mark and ours and cluster not in unknown:
            (uncordon if node.cordoned else unmark).append(node.name)
    return Changes(cordon, tuple(uncordon), tuple(unmark))
