"""What a pass over one Controller looks at."""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecars import objects
from sidecars.operator.core import claim
from sidecars.operator.core import topology as core
from sidecars.operator.runtime import topology, workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.policy.configuration import lint as rules
from sidecars.policy.reasons import SlurmReachable
from sidecars.slurm import versions
from sidecars.workloads import config, config_maps, names
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, NodeSet
from sidecars.workloads.topology import FILE


@dataclass(frozen=True, slots=True)
class Observed:
    """The configuration that a Controller and its NodeSets ask for."""

    nodesets: Sequence[NodeSet]
    facts: Facts
    config_set: ConfigSet
    faults: Sequence[str]
    """Why the configuration may not be published: each with place, value and remedy."""
    warnings: Sequence[str]
    """What is only shown."""


async def configuration(runtime: Runtime, controller: Controller) -> Observed:
    """Compose and check it. Raises NotUsableError and KubeError."""
    nodesets = runtime.lookup.nodesets_of(controller.namespace, controller.name)
    facts = await runtime.lookup.facts(controller)
    with workload.usable():
        config_set = config.compose(
            controller, nodesets, facts, topology.wanted_blocks(runtime, controller)
        )
    faults, warnings = _lint(runtime, controller, config_set, nodesets)
    readable = {nodeset.name for nodeset in nodesets}
    unread = [
        name
        for name in runtime.lookup.users_of(controller.namespace, controller.name)
        if name not in readable
    ]
    return Observed(nodesets, facts, config_set, [*map(_unread, unread), *faults], warnings)


def _unread(nodeset: str) -> str:
    return (
        f"NodeSet {nodeset} can't be read, and its jobs would end without its lines in "
        "slurm.conf: correct what its condition Ready names, or delete it"
    )


def claim_condition(runtime: Runtime, controller: Controller) -> Condition | None:
    """Return what is wrong with the claim of slurmctld's state. Raises NotUsableError if nothing
    may be applied before.
    """
    record = runtime.caches.other_claims.store.get(controller.namespace, claim.needed(controller))
    problem = claim.problem(controller, record.spec.access_modes if record is not None else None)
    if problem is None:
        return None
    if problem.blocks:
        raise NotUsableError(problem.reason, problem.message)
    return Condition("Ready", "False", problem.reason, problem.message)


def slurm_reachable(runtime: Runtime, key: Key) -> Condition:
    """Return the condition `SlurmReachable`: whether the operator sees the Slurm cluster through
    slurmrestd.
    """
    cluster = runtime.clusters.get(key)
    if cluster is None:
        message = (
            "no RestApi refers to this Controller, or its JWT key is missing, so workers can't "
            "be drained: create a RestApi with this controllerRef, and the Secret of "
            "spec.jwtKeyRef"
        )
        return Condition("SlurmReachable", "Unknown", SlurmReachable.NO_REST_API, message)
    problem = cluster.view().problem
    if problem is not None:
        return Condition(
            "SlurmReachable", "False", SlurmReachable.NO_ANSWER, f"{cluster.url}: {problem}"
        )
    return Condition("SlurmReachable", "True", SlurmReachable.POLLED, f"{cluster.url} answers")


def slurmctld_pods(runtime: Runtime, key: Key) -> list[objects.Pod]:
    """Return slurmctld's pods, by name."""
    return sorted(
        runtime.caches.slurmctld_pods.store.by("controller", key), key=lambda pod: pod.metadata.name
    )


def published(runtime: Runtime, controller: Controller) -> str | None:
    """Return the digest of what is published, or None if nothing is."""
    live = (
        runtime.caches.own_config_maps.store.get(
            controller.namespace, names.config(controller.name, 0)
        )
        or {}
    )
    return config_maps.published_digest(live)


def _lint(
    runtime: Runtime, controller: Controller, config_set: ConfigSet, nodesets: Sequence[NodeSet]
) -> tuple[list[str], list[str]]:
    """Find why the configuration may not be published, and what is only shown: each with place,
    value and what to do.
    """
    cluster = runtime.clusters.get((controller.namespace, controller.name))
    view = cluster.view() if cluster is not None else None
    nodes = view.nodes if view is not None and (view.nodes or view.problem is None) else None
    findings = rules.lint(
        config_set,
        nodesets,
        versions.of_image(str(controller.spec.slurmctld.get("image") or "")),
        nodes,
    )
    places = {it.name: it.topology for it in (nodes or {}).values()}
    lost = [f"{FILE}: {it}" for it in core.lost(places, config_set.files)]
    return (
        [str(finding) for finding in findings if finding.severity == "error"] + lost,
        [str(finding) for finding in findings if finding.severity == "warning"],
    )
