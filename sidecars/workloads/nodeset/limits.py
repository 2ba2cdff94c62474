"""Resource limits of slurmd."""

from sidecars.workloads.resources import Json, NodeSet, ResourceError


def limits(nodeset: NodeSet) -> Json:
    """The limits of the slurmd container, and those of the pod where the container has none. Raises ResourceError."""
    return pod_limits(nodeset) | _limits(nodeset.spec.slurmd, "spec.slurmd")


def pod_limits(nodeset: NodeSet) -> Json:
    """The limits of the pod as a whole. Raises ResourceError."""
    return _limits(nodeset.spec.template.spec, "spec.template.spec")


def _limits(holder: Json, place: str) -> Json:
    resources = holder.get("resources") or {}
    limits = (resources.get("limits") or {}) if isinstance(resources, dict) else None
    if not isinstance(limits, dict):
        raise ResourceError(f"{place}.resources", "must be a map with a map `limits`")
    return limits
