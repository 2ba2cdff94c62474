"""The objects that a NodeSet owns, and those that all NodeSets of a Controller share."""

from collections.abc import Sequence

from sidecars.workloads import assembly, health
from sidecars.workloads.facts import Facts
from sidecars.workloads.nodeset import ssh
from sidecars.workloads.nodeset.limits import limits
from sidecars.workloads.resources import Controller, Manifest, NodeSet


def objects(nodeset: NodeSet, controller: Controller, facts: Facts) -> list[Manifest]:
    """Return what a NodeSet owns beside pods, claims and revisions: the ConfigMaps of node health
    and, with ssh, of sshd. Raises ResourceError and MissingReferenceError.
    """
    found = [health.config_map(nodeset, limits(nodeset), facts.site.workloads)]
    if nodeset.spec.ssh.enabled:
        found.append(ssh.config_map(nodeset, controller, facts))
    return [assembly.owned(manifest, nodeset) for manifest in found]


def shared_objects(
    controller: Controller, nodesets: Sequence[NodeSet], facts: Facts
) -> list[Manifest]:
    """Return what all NodeSets of a Controller share: the headless Service and the
    PodDisruptionBudget.

    All NodeSets own them. Without NodeSets, nothing is returned. No owner is marked as the
    controller.
    """
    if not nodesets:
        return []
    owners = [
        assembly.owner_reference(nodeset, controller=False)
        for nodeset in sorted(nodesets, key=lambda item: item.name)
    ]
    return [
        manifest
        | {
            "metadata": manifest["metadata"]
            | {"namespace": controller.namespace, "ownerReferences": owners}
        }
        for manifest in facts.site.workloads.render("workers", [], {"controller": controller.name})
    ]
