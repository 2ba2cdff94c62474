"""What the custom resources report: conditions that aren't True, daemons that don't run, refused
pods, full quotas.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from sidecars.explain.core import objects, pod_trouble
from sidecars.explain.core.records import Finding, Level, plain
from sidecars.policy.reasons import CONDITION_TYPES, Ready
from sidecars.policy.reasons.autoscaling import Autoscaled
from sidecars.policy.reasons.base import NOTHING, WAIT

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object, Seen

SHOWN = 5
"""Pods of one NodeSet whose trouble is shown."""
_ENDS = frozenset(
    {
        Ready.STARTING,
        Ready.UPDATING,
        Ready.DRAINING,
        Ready.SCALING_IN,
        Ready.REMOVING,
        Ready.SIGNING,
    }
)
"""Reasons of a resource that isn't ready and becomes so without a remedy."""
_GROWING = frozenset({Autoscaled.DEMAND, Autoscaled.LEARNING, Autoscaled.STEP})
"""Reasons of a NodeSet that gets more workers."""
_REFUSED = frozenset({Ready.CONFIGURATION_REFUSED, Ready.CHANGE_NOT_APPLIED})
"""Reasons of a resource that is ready and needs a remedy."""
_WORDS = {kind.__name__: tuple(kind) for kind in CONDITION_TYPES}
"""The reasons of each condition type."""
_STOP = frozenset(
    {"Ready", "ConfigurationAccepted", "ConfigurationRunning", "SlurmReachable", "StartGated"}
)
"""Condition types without which something stops."""
_DAEMONS = {
    "slurmctld": "slurmctld: no job starts while it doesn't run; jobs that run continue",
    "slurmrestd": "slurmrestd: the operator drains and deletes no worker without it",
    "slurmdbd": "slurmdbd: accounting waits until it runs",
}


def about(resource: Object) -> str:
    """`NodeSet slurm/cpu`."""
    kind = objects.text(resource, "kind") or "Resource"
    return f"{kind} {objects.text(resource, 'metadata', 'namespace')}/{objects.name(resource)}"


def trouble(resource: Object) -> list[Finding]:
    """Return the conditions of a custom resource that need attention."""
    found = []
    generation = objects.number(resource, "metadata", "generation")
    for it in objects.items(resource, "status", "conditions"):
        kind, status, reason = (objects.text(it, key) for key in ("type", "status", "reason"))
        message = objects.text(it, "message")
        if status != "False" and not (kind == "Ready" and reason in _REFUSED):
            continue
        known = next((word for word in _WORDS.get(kind, ()) if word.value == reason), None)
        if kind not in _WORDS or (known is not None and known.remedy == NOTHING):
            continue
        waits = known in _ENDS or (known is not None and known.remedy.startswith(WAIT.rstrip(".")))
        cause = message or (plain(known.cause) if known is not None else f"{kind} is {status}.")
        level = (
            Level.WAITS
            if waits
            else Level.BLOCKS
            if kind in _STOP and reason != Ready.CHANGE_NOT_APPLIED
            else Level.WARNS
        )
        remedy = (
            plain(known.remedy) if known is not None else "See its conditions: kubectl describe."
        )
        event = "the operator continues" if waits else ""
        found.append(Finding(reason or kind, level, about(resource), cause, remedy, event=event))
    seen = objects.number(resource, "status", "observedGeneration")
    if seen and generation and seen < generation:
        text = (
            "The operator has not observed the last change: its status is of an earlier generation."
        )
        found.append(
            Finding(
                "NotObserved",
                Level.WARNS,
                about(resource),
                text,
                "See whether the operator runs, and its log.",
            )
        )
    return found


def daemons(seen: Seen) -> list[Finding]:
    """Find why Slurm's own daemons don't run, as far as Kubernetes shows it."""
    found: list[Finding] = []
    for resource in (*(seen.kube.controllers or ()), *(seen.kube.resources or ())):
        found += trouble(resource)
    for it in seen.kube.pods or ():
        what = _DAEMONS.get(objects.label(it, objects.APP))
        if what is None or pod_trouble.is_ready(it):
            continue
        found += pod_trouble.trouble(it, seen)
    if seen.kube.pods is not None and seen.kube.controllers:
        slurmctld = [it for it in seen.kube.pods if objects.label(it, objects.APP) == "slurmctld"]
        external = all(objects.dig(it, "spec", "external") for it in seen.kube.controllers)
        if not slurmctld and not external:
            name = objects.name(seen.kube.controllers[0])
            cause = "No slurmctld pod exists."
            found.append(
                Finding(
                    "NoSlurmctld",
                    Level.BLOCKS,
                    f"Controller {seen.namespace}/{name}",
                    cause,
                    "See the condition Ready of the Controller.",
                )
            )
    return found


def workers(nodeset: Object, seen: Seen) -> list[Finding]:
    """Find why a NodeSet has fewer ready workers than it should have. Return [] if it has them or
    its pods are unknown.
    """
    if seen.kube.pods is None:
        return []
    pods = objects.owned(seen.kube.pods, nodeset)
    troubled = [it for it in pods if not pod_trouble.is_ready(it)]
    found: list[Finding] = []
    seen_causes: set[tuple[str, str]] = set()
    for it in islice(troubled, 10 * SHOWN):
        for finding in pod_trouble.trouble(it, seen):
            key = finding.code, finding.cause
            if key not in seen_causes and len(seen_causes) < SHOWN:
                seen_causes.add(key)
                found.append(finding)
    created = objects.number(nodeset, "status", "replicas")
    if created < objects.number(nodeset, "spec", "replicas"):
        found += refused_pods(nodeset, seen)
    return found


def waiting_workers(nodeset: Object, seen: Seen) -> bool:
    """Return whether a NodeSet has workers that have not registered, or should have more than it
    has: one more would wait like them.
    """
    registered = {it.name for it in seen.slurm.nodes or ()}
    pods = objects.owned(seen.kube.pods, nodeset)
    absent = [
        it
        for it in pods
        if objects.slurm_node(it) not in registered and not objects.terminating(it)
    ]
    return bool(absent) or len(pods) < objects.number(nodeset, "spec", "replicas")


_SCALING = frozenset({"Autoscaled", "PowerSaving"})


def scaling(nodeset: Object) -> list[Finding]:
    """Describe what autoscaling or power saving does with a NodeSet for which a job waits."""
    conditions = [
        it
        for it in objects.items(nodeset, "status", "conditions")
        if objects.text(it, "type") in _SCALING
    ]
    failing = trouble(nodeset | {"status": {"conditions": conditions}})
    # Nothing else starts the workers that the job waits for.
    found = [replace(it, level=Level.BLOCKS if it.remedy else it.level) for it in failing]
    for it in objects.conditions(nodeset):
        if it.type == "Autoscaled" and it.status == "True" and it.message:
            text = f"Autoscaling: {it.message}"
            level = Level.WAITS if it.reason in _GROWING else Level.SHOWS
            event = "autoscaling adds a node" if level is Level.WAITS else ""
            found.append(Finding(it.reason or it.type, level, about(nodeset), text, event=event))
    return found


def refused_pods(nodeset: Object, seen: Seen) -> list[Finding]:
    """Find pods that the API server refuses, and the quota that refuses them."""
    found = []
    for event in objects.events_of(seen.kube.events, "NodeSet", objects.name(nodeset))[:20]:
        if objects.text(event, "reason") != "FailedCreate":
            continue
        message = objects.text(event, "message")
        if "exceeded quota" in message:
            text = f"A ResourceQuota refuses its pods: {message}"
            found.append(
                Finding(
                    "ExceededQuota",
                    Level.BLOCKS,
                    about(nodeset),
                    text,
                    "Raise the quota, or delete pods that use it.",
                )
            )
        else:
            text = f"The API server refuses its pods: {message}"
            found.append(
                Finding(
                    "FailedCreate",
                    Level.BLOCKS,
                    about(nodeset),
                    text,
                    "Change what the message names.",
                )
            )
        break
    return found


def full_quotas(seen: Seen) -> list[Finding]:
    """Quotas of the namespace of which nothing is left."""
    found = []
    for quota in seen.kube.quotas or ():
        hard, used = objects.dig(quota, "status", "hard"), objects.dig(quota, "status", "used")
        if not isinstance(hard, dict) or not isinstance(used, dict):
            continue
        full = sorted(
            key for key, value in hard.items() if value == used.get(key) and value not in ("0", 0)
        )
        if full:
            text = f"Nothing is left of {', '.join(full)}: a new pod that requests it is refused."
            name = f"ResourceQuota {seen.namespace}/{objects.name(quota)}"
            found.append(Finding("QuotaUsedUp", Level.WARNS, name, text, "Raise the quota."))
    return found
