"""Resource limits of slurmd."""

from typing import Any

from sidecars.workloads.resources import Json, NodeSet, ResourceError


def limits(nodeset: NodeSet) -> Json:
    """Return the limits of the slurmd container, and those of the pod where the container has none.
    Raises ResourceError.
    """
    return pod_limits(nodeset) | _limits(nodeset.spec.slurmd, "spec.slurmd")


def pod_limits(nodeset: NodeSet) -> Json:
    """Return the limits of the pod as a whole. Raises ResourceError."""
    return _limits(nodeset.spec.template.spec, "spec.template.spec")


def _limits(holder: Json, place: str) -> Json:
    resources = holder.get("resources") or {}
    limits = (resources.get("limits") or {}) if isinstance(resources, dict) else None
    if not isinstance(limits, dict):
        raise ResourceError(f"{place}.resources", "must be a map with a map `limits`")
    return limits


def register_resources(nodeset: NodeSet, devices: Json) -> Json | None:
    """Return what `register` requests, to see the CPUs and devices that the kubelet gives to
    slurmd, None for nothing. It is an init container, so the pod needs no more with it. `devices`:
    what slurmd requests for the NodeSet's GPUs.
    """
    found: dict[str, dict[str, Any]] = {kind: dict(items) for kind, items in devices.items()}
    resources = nodeset.spec.slurmd.get("resources")
    for kind in ("requests", "limits"):
        items = resources.get(kind) if isinstance(resources, dict) else None
        if isinstance(items, dict) and items.get("cpu") is not None:
            found.setdefault(kind, {})["cpu"] = items["cpu"]
    return found or None
