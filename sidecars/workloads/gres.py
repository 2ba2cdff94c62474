"""GPUs of NodeSets: what their pods ask for, and the gres.conf that all nodes of a cluster share.

gres.conf reaches every slurmd, also those without a GPU (configless), so a NodeSet that differs
from the rest has lines of its own for the names that its workers may have.
https://slurm.schedmd.com/gres.conf.html
"""

from collections.abc import Iterable
from typing import Any

from sidecars.workloads import quantities
from sidecars.workloads.resources import Json, NodeSet, ResourceError

GRES_TYPES = "gpu"
"""GresTypes of slurm.conf, whether a NodeSet has GPUs or not.

A slurmctld that doesn't know the type yet creates records with `Gres=(null)` for workers that
register, and can't correct them (26.05); so the first NodeSet with GPUs must not have to wait for
it.
"""

LAST_ORDINAL = 9999
"""The highest ordinal for which a NodeSet's own lines count: a range that doesn't change with the
replicas.
"""


def count(nodeset: NodeSet, limits: Json) -> int:
    """Count the devices that each worker asks for. `limits` are the slurmd container's own. Raises
    ResourceError.
    """
    gpu = nodeset.spec.gpu
    own = limits.get(gpu.resource_name)
    if own is None:
        return gpu.count
    place = f"spec.slurmd.resources.limits.{gpu.resource_name}"
    found = quantities.whole(own, place)
    if not 1 <= found <= 1024:
        raise ResourceError(place, f"{own!r} isn't a number of devices from 1 to 1024")
    return found


def variables(nodeset: NodeSet, limits: Json) -> dict[str, Any]:
    """Return the variables of slurmd-gpu.yaml. Raises ResourceError."""
    gpu = nodeset.spec.gpu
    if not gpu.enabled:
        return {}
    asked = count(nodeset, limits)
    return {
        "gpuResources": {"limits": {gpu.resource_name: str(asked)}},
        "gpuExpected": str(asked if gpu.expected is None else gpu.expected),
        "gpuType": gpu.type,
        "gpuOnMismatch": gpu.on_mismatch,
    }


def detects(nodesets: Iterable[NodeSet]) -> bool:
    """Return whether a NodeSet has GPUs that slurmd is to detect as all do."""
    return any(_is_plain(nodeset) for nodeset in nodesets)


def gres_conf(nodeset: NodeSet) -> list[str]:
    """Return the lines of a NodeSet's own in gres.conf, none where it has no GPUs, or such as all
    detect. Raises ResourceError if its workers' names are unknown.
    """
    gpu = nodeset.spec.gpu
    if not gpu.enabled or _is_plain(nodeset):
        return []
    names = _names(nodeset, "devices" if gpu.devices else "autoDetect")
    if not gpu.devices:
        return [f"NodeName={names} AutoDetect={gpu.auto_detect}"]
    if not gpu.type:
        raise ResourceError("spec.gpu.type", "must be set where spec.gpu.devices are")
    return [
        f"NodeName={names} AutoDetect=off Name=gpu Type={gpu.type} File={file}"
        for file in gpu.devices
    ]


def _is_plain(nodeset: NodeSet) -> bool:
    gpu = nodeset.spec.gpu
    return gpu.enabled and not gpu.devices and gpu.auto_detect == "nvidia"


def _names(nodeset: NodeSet, field: str) -> str:
    """Return the hostlist of all workers that the NodeSet may ever have."""
    if nodeset.spec.scaling_mode != "StatefulSet" or nodeset.spec.template.spec.get("hostNetwork"):
        raise ResourceError(
            f"spec.gpu.{field}",
            "needs workers in mode StatefulSet on a network of their own: others are named as "
            "their Kubernetes nodes",
        )
    prefix = nodeset.spec.template.spec.get("hostname") or f"{nodeset.name}-"
    width = nodeset.spec.ordinal_padding
    return f"{prefix}[{0:0{width}d}-{LAST_ORDINAL}]"
