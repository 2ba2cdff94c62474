"""A NodeSet that is scaled, in an operator of which nothing else runs."""

from typing import Any

from sidecars.kube import Manifest
from tests.support.operator_parts import Parts

SPEC = {
    "controllerRef": {"name": "slurm"},
    "replicas": 1,
    "slurmd": {"image": "slurmd:26.05"},
    "autoscaling": {"max": 5, "node": "CPUs=4 RealMemory=16000"},
}


def nodeset(
    parts: Parts, name: str = "slinky", meta: dict[str, Any] | None = None, **spec: Any
) -> Manifest:
    """Put it into the caches."""
    return parts.custom("NodeSet", name, SPEC | spec, **(meta or {}))
