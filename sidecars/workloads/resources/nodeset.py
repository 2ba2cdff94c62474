"""The kind NodeSet: worker pods."""

from sidecars.workloads.resources.common import Resource
from sidecars.workloads.resources.specs import NodeSetSpec, NodeSetStatus


class NodeSet(Resource, frozen=True, kw_only=True):
    """A set of worker pods, which run slurmd."""

    spec: NodeSetSpec
    kind: str = "NodeSet"
    status: NodeSetStatus = NodeSetStatus()

    @property
    def slurm_name(self) -> str:
        """Its name in Slurm: that of its node set, feature and partition."""
        prefix = str(self.spec.template.spec.get("hostname") or "").split()
        return (prefix[0].strip("-") if prefix else "") or self.name
