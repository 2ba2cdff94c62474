"""Resource limits of slurmd."""

from sidecars.workloads.resources import Json, NodeSet, ResourceError


def limits(nodeset: NodeSet) -> Json:
    """The limits of the slurmd container, and those of the pod where the container has none. Raises ResourceError."""
    found: Json = {}
    for holder, place in ((nodeset.spec.template.spec, "spec.template.spec"), (nodeset.spec.slurmd, "spec.slurmd")):
        resources = holder.get("resources") or {}
        limits = (resources.get("limits") or {}) if isinstance(resources, dict) else None
        if not isinstance(limits, dict):
            raise ResourceError(f"{place}.resources", "must be a map with a map `limits`")
        found |= limits
    return found
