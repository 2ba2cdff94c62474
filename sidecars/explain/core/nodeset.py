"""Why a NodeSet has not the workers that it should have, and why Slurm can't use those that it
has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sidecars.explain.core import node, nodeset_partitions, objects, pod_trouble, resources
from sidecars.explain.core.records import Answer, Finding, Level, ranked
from sidecars.slurm import states

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object, Seen

SHOWN = 5
"""Nodes and pods that are shown one by one."""


def explain(seen: Seen, name: str) -> Answer:
    """Return the answer for the NodeSet of this name."""
    about = f"NodeSet {seen.namespace}/{name}"
    if seen.kube.nodesets is None:
        return Answer(
            about, "unknown: the NodeSets could not be read", missing=seen.missing, known=False
        )
    found = objects.named(seen.kube.nodesets, name)
    if found is None:
        others = ", ".join(sorted(map(objects.name, seen.kube.nodesets))) or "none"
        return Answer(
            about,
            f"does not exist; the NodeSets of this namespace: {others}",
            missing=seen.missing,
            known=False,
        )
    findings = examine(found, seen)
    if not any(it.level is Level.BLOCKS for it in findings):
        findings += resources.full_quotas(seen)
    timeline = sorted(
        objects.moments(
            objects.recent(
                objects.events_of(seen.kube.events, "NodeSet", name),
                objects.text(found, "metadata", "uid"),
            ),
            about,
        ),
        key=lambda it: it.at,
    )
    return Answer(
        about, state(found), ranked(findings), timeline=tuple(timeline), missing=seen.missing
    )


def state(nodeset: Object) -> str:
    """Describe in one line how many workers are ready, and the reason of the condition Ready."""
    ready = objects.condition(nodeset, "Ready")
    wanted = objects.dig(nodeset, "spec", "replicas")
    desired = wanted if isinstance(wanted, int) else "?"
    counts = f"{objects.number(nodeset, 'status', 'readyReplicas')} of {desired} workers ready"
    return f"{ready.reason}, {counts}" if ready is not None and ready.reason else counts


def examine(nodeset: Object, seen: Seen) -> list[Finding]:
    """Find all that is wrong with the NodeSet, its pods and its nodes in Slurm. Return [] for
    nothing.
    """
    about = resources.about(nodeset)
    findings = [*resources.trouble(nodeset), *resources.workers(nodeset, seen)]
    if objects.dig(nodeset, "spec", "replicas") == 0:
        findings.append(
            Finding("ScaledToZero", Level.SHOWS, about, "It has no workers: spec.replicas is 0.")
        )
    for condition in objects.conditions(nodeset):
        if condition.type == "Autoscaled" and condition.status == "True" and condition.message:
            text = f"Autoscaling: {condition.message}"
            findings.append(Finding(condition.reason or condition.type, Level.SHOWS, about, text))
    return findings + _nodes(nodeset, seen, about)


def _nodes(nodeset: Object, seen: Seen, about: str) -> list[Finding]:
    if seen.slurm.nodes is None:
        return []
    mine = {
        name
        for name, owner in nodeset_partitions.by_node(seen).items()
        if owner == objects.name(nodeset)
    }
    registered = {it.name: it for it in seen.slurm.nodes}
    findings: list[Finding] = []
    absent = [
        it
        for it in objects.owned(seen.kube.pods, nodeset)
        if pod_trouble.is_ready(it) and objects.slurm_node(it) not in registered
    ]
    if absent:
        names = ", ".join(objects.name(it) for it in absent[:SHOWN])
        text = f"{len(absent)} workers are ready, and Slurm has no nodes of them: {names}."
        command = f"kubectl -n {seen.namespace} logs {objects.name(absent[0])} -c logfile"
        event = "the operator replaces a worker that Slurm doesn't know after a minute"
        findings.append(
            Finding(
                "NotRegistered",
                Level.BLOCKS,
                about,
                text,
                f"See the log of slurmd.{node.of_both_families(absent[0])}",
                (command,),
                event,
            )
        )
    out = [registered[name] for name in sorted(mine & registered.keys())]
    found = [(it, node.trouble(it, seen)) for it in out]
    troubled = [(it, each) for it, each in found if each]
    for _, each in troubled[:SHOWN]:
        findings += each
    if len(troubled) > SHOWN:
        text = f"{len(troubled)} of its {len(out)} nodes have trouble; {SHOWN} are shown."
        findings.append(Finding("MoreNodes", Level.SHOWS, about, text))
    # One NodeSet's drain by an administrator stops that node, not the NodeSet.
    some = any(
        not each and states.base_state(it.states) in ("IDLE", "MIXED", "ALLOCATED")
        for it, each in found
    )
    return [
        replace(it, level=Level.WARNS)
        if some and it.code in ("Drained", "Down") and it.level is Level.BLOCKS
        else it
        for it in findings
    ]
