"""May workers ask for a part of a Kubernetes node's GPUs? Not where slurmd is privileged, for it
sees all of them.

A privileged container has every device of its host, whatever it requests from Kubernetes; slurmd
would detect, and give to jobs, GPUs that belong to other pods.
"""

from collections.abc import Collection, Iterable

from sidecars.objects import Node
from sidecars.policy import placement
from sidecars.workloads import assembly
from sidecars.workloads.resources import Manifest, NodeSet


def refusal(
    nodeset: NodeSet, template: Manifest, nodes: Iterable[Node], used: Collection[str] = ()
) -> str:
    """Return why the NodeSet may not have pods of this template, with the remedy, "" when it may.
    It looks at the nodes that its pods run on (`used`), and at those that fit the template's
    nodeSelector and affinity.
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
        name = node.metadata.name
        has = _whole(node.status.allocatable.get(gpu.resource_name))
        meant = name in used or rules.fits(node)
        if meant and has > asked > 0:
            return (
                f"spec.gpu.count: workers ask for {asked} of the {has} {gpu.resource_name} of "
                f"Kubernetes node {name}, but slurmd is privileged and would use them all: "
                f"set gpu.count to {has}, pick other nodes with a nodeSelector, or set "
                "slurmd.securityContext.privileged to false"
            )
    return ""


def _whole(quantity: object) -> int:
    """Return a device plugin's quantity, a plain number, or 0 for anything else."""
    text = str(quantity)
    return int(text) if text.isascii() and text.isdecimal() else 0
