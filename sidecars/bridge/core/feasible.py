"""Which Kubernetes nodes a pod can never be bound to, whatever else runs there. Pure.

Slurm counts CPUs, memory and the mapped devices, and compares labels. Everything here becomes
excluded nodes of the job: otherwise Slurm prefers a node that takes no pod, because it is empty.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from sidecars.bridge.core.manifests import Container, Node, Toleration
from sidecars.contract import bridge
from sidecars.objects import Taint
from sidecars.policy.placement import tolerated
from sidecars.workloads.quantities import quantity
from sidecars.workloads.resources import ResourceError

_LIFECYCLE = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    }
)
"""Taints of nodes that are drained in Slurm anyway. Each pod gets tolerations of two of them."""

_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


class Needs(NamedTuple):
    """What a pod needs of a Kubernetes node that Slurm doesn't know."""

    tolerations: tuple[tuple[str, str, str, str], ...] = ()
    """Key, operator, value and effect of each."""
    resources: tuple[tuple[str, str], ...] = ()
    """What it requests beside what Slurm counts: ephemeral storage, huge pages, extended
    resources.
    """
    ports: tuple[str, ...] = ()
    """The ports of the node that it takes: no two such pods run on one node."""


NOTHING = Needs()


def needs_of(
    tolerations: Iterable[Toleration],
    resources: Mapping[str, Decimal],
    containers: Iterable[Container] = (),
) -> Needs:
    """Return the needs of a pod with these tolerations and containers that requests these
    resources. They are equal for pods that fit the same nodes.
    """
    tolerates = {
        (it.key, it.operator, it.value, it.effect)
        for it in tolerations
        if it.key not in _LIFECYCLE and it.key != bridge.TAINT
    }
    requests = {name: f"{amount.normalize():f}" for name, amount in resources.items() if amount}
    ports = {
        f"{port.host_port}/{port.protocol}"
        for container in containers
        for port in container.ports
        if port.host_port
    }
    return Needs(tuple(sorted(tolerates)), tuple(sorted(requests.items())), tuple(sorted(ports)))


def unfit(needs: Needs, node: Node) -> str:
    """Return why the node can't run such a pod, "" if it can."""
    fields = ("key", "operator", "value", "effect")
    tolerations = [dict(zip(fields, it, strict=True)) for it in needs.tolerations]
    for it in node.spec.taints:
        # The bridge adds a toleration of its own taint at the release.
        if it.effect not in _EFFECTS or it.key in _LIFECYCLE or it.key == bridge.TAINT:
            continue
        if not tolerated(Taint(key=it.key, value=it.value, effect=it.effect), tolerations):
            return f"it has the taint {it.key}:{it.effect}, which the pod doesn't tolerate"
    for name, amount in needs.resources:
        has = node.status.allocatable.get(name, "0")
        if _amount(has) < Decimal(amount):
            return f"the pod requests {amount} of {name}, and it has {has}"
    return ""


def _amount(text: str) -> Decimal:
    try:
        return quantity(text, "allocatable")
    except ResourceError:
        return Decimal(0)
