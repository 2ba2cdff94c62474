"""Passes over a NodeSet in an operator of which nothing else runs."""

from typing import Any

from sidecars.operator.nodeset.observe import observe
from sidecars.operator.nodeset.passes import Pass
from sidecars.operator.nodeset.template import pod_source
from sidecars.policy.nodeset.records import Observed
from sidecars.workloads.resources import NodeSet, read
from tests.support.operator_parts import NAMESPACE, Parts

SPEC = {"controllerRef": {"name": "slurm"}, "replicas": 3, "slurmd": {"image": "slurmd:26.05"}}
KEY = (NAMESPACE, "slinky")


def begin(
    parts: Parts, status: Any = None, meta: dict[str, Any] | None = None, **spec: Any
) -> Pass:
    """A pass over NodeSet `slinky`, which is put into the caches. Its memory is that of the pass
    before.
    """
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


async def observed_by(this: Pass) -> Observed:
    """What a pass observes after it has stored what new pods are created from."""
    _, observed = observe(this, await pod_source(this))
    return observed
