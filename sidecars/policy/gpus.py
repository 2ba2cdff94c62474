"""May workers ask for a part of a Kubernetes node's GPUs? Not where slurmd is privileged, for it sees all of them.

A privileged container has every device of its host, whatever it requests from Kubernetes; slurmd would detect, and give
to jobs, GPUs that belong to other pods.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sidecars.policy import placement
from sidecars.workloads import assembly
from sidecars.workloads.resources import Manifest, NodeSet


@dataclass(frozen=True, slots=True)
class KubeNode:
    """What is known of a Kubernetes node."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]
    """Kubernetes' quantities by resource."""


def refusal(nodeset: NodeSet, template: Manifest, nodes: Iterable[KubeNode], used: Collection[str] = ()) -> str:
    """Why the NodeSet may not have pods of this template, with the remedy; "" when it may.

    Looked at are the nodes that its pods run on (`used`), and those that fit the template's nodeSelector and affinity.
    """
    gpu = nodeset.spec.gpu
    if not gpu.enabled:
        return ""
    slurmd = assembly.container(template["spec"], "slurmd")
    if not (slurmd.get("securityContext") or {}).get("privileged"):
        return ""
    asked = _whole(((slurmd.get("resources") or {}).get("limits") or {}).get(gpu.resource_name))
    rules = placement.Rules.of(template["spec"])
    for node in nodes:
        has = _whole(node.allocatable.get(gpu.resource_name))
        meant = node.name in used or rules.fits(placement.KubeNode(node.name, node.labels))
        if meant and has > asked > 0:
            return (
                f"spec.gpu.count: workers ask for {asked} of the {has} {gpu.resource_name} of Kubernetes node "
                f"{node.name}, but slurmd is privileged and would use them all: set gpu.count to {has}, pick other "
                "nodes with a nodeSelector, or set slurmd.securityContext.privileged to false"
            )
    return ""


def _whole(quantity: object) -> int:
    """A device plugin's quantity, a plain number; 0 for anything else."""
    text = str(quantity)
    return int(text) if text.isascii() and text.isdecimal() else 0
