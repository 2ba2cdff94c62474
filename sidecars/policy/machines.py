"""Which Kubernetes nodes to cordon because somebody drained a worker there in Slurm. Pure.

That nothing goes round in circles: drains of the operator and of leaving pods don't count; a cordon of the operator's
bears a mark, and drains no Slurm node; and a marked machine that is schedulable has been uncordoned by somebody, who is
not contradicted until that drain is lifted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sidecars.contract.reasons import is_foreign, is_health_check
from sidecars.slurm import states
from sidecars.slurm.records import Node


@dataclass(frozen=True, slots=True)
class Machine:
    """A Kubernetes node. `mark`: the Slurm cluster and reason that it was cordoned for, "" if not by the operator."""

    name: str
    cordoned: bool
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """Machines to cordon, with their mark; and those to give free: `uncordon` as well, of `unmark` only the mark."""

    cordon: Mapping[str, str]
    uncordon: tuple[str, ...] = ()
    unmark: tuple[str, ...] = ()


def to_cordon(nodes: Iterable[Node]) -> dict[str, str]:
    """Kubernetes nodes that a drain in Slurm of somebody or of a health check speaks against, with the reason.

    `nodes` are records of worker pods. A drain counts for the machine that the record was made on (its instance id): a
    successor elsewhere keeps the drain, but has no part in its cause.
    """
    found: dict[str, str] = {}
    for node in nodes:
        ill = is_foreign(node.reason) or is_health_check(node.reason)
        if node.instance_id and states.is_drain(node.states) and ill:
            found.setdefault(node.instance_id, node.reason)
    return found


def plan(
    drained: Mapping[str, Mapping[str, str]],
    unknown: Collection[str],
    machines: Iterable[Machine],
    namespaces: Collection[str] = (),
) -> Changes:
    """What to change. `drained`: `to_cordon` of each Slurm cluster (NAMESPACE/NAME); `unknown`: silent ones.

    `namespaces`: those that the operator watches, empty for all. Marks of others are another operator's.
    """
    wanted: dict[str, str] = {}
    for cluster, reasons in sorted(drained.items()):
        for name, reason in reasons.items():
            wanted.setdefault(name, f"{cluster}: {reason}")
    cordon: dict[str, str] = {}
    uncordon: list[str] = []
    unmark: list[str] = []
    for machine in machines:
        if machine.name in wanted:
            if not machine.cordoned and not machine.mark:
                cordon[machine.name] = wanted[machine.name]
            continue
        cluster = machine.mark.partition(": ")[0]
        ours = not namespaces or cluster.partition("/")[0] in namespaces
        if machine.mark and ours and cluster not in unknown:
            (uncordon if machine.cordoned else unmark).append(machine.name)
    return Changes(cordon, tuple(uncordon), tuple(unmark))
