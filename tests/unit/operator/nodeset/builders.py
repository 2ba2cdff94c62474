"""Passes over a NodeSet in an operator of which nothing else runs."""

from typing import Any

from sidecars.operator.nodeset.passes import Pass
from sidecars.workloads.resources import NodeSet, read
from tests.support.operator_parts import NAMESPACE, Parts

SPEC = {"controllerRef": {"name": "slurm"}, "replicas": 3, "slurmd": {"image": "slurmd:26.05"}}
KEY = (NAMESPACE, "slinky")


def begin(parts: Parts, status: Any = None, meta: dict[str, Any] | None = None, **spec: Any) -> Pass:
    """A pass over NodeSet `slinky`, which is put into the caches. Its memory is that of the pass before."""
    manifest = parts.custom("NodeSet", "slinky", SPEC | spec, status, **(meta or {}))
    cluster = parts.runtime.clusters.get((NAMESPACE, "slurm"))
    return Pass(
        parts.runtime,
        parts.operator.nodesets.of(KEY),
        KEY,
        manifest,
        read(NodeSet, manifest),
        cluster,
        parts.operator.nodesets,
    )
