"""Why a pod that Slurm schedules waits: its placeholder job, and what the Slurm Bridge has reported on it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from sidecars.contract import bridge
from sidecars.policy.explain import guard, objects
from sidecars.policy.explain import job as of_job
from sidecars.policy.explain.records import Finding, Level, plain
from sidecars.policy.explain.words import words
from sidecars.policy.reasons.bridge import PodQueued

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecars.policy.explain.records import Moment, Object, Seen

BRIDGES = "app.kubernetes.io/part-of=slurm-bridge,app.kubernetes.io/component=bridge"
"""Labels of the bridge's Deployment and pods, whatever the names that the values of its chart set."""
NOT_SEEN_SECONDS = 30.0
"""Time after which a pod without a condition is not merely new."""

_WAITS = re.compile(r"Slurm job [0-9]+ waits: ([A-Za-z0-9_]+)(?=$|\.)")
_BLOCKER = re.compile(
    r"pod ([a-z0-9.-]+)/([a-z0-9.-]+)"
    r"(?: of an ended job is still| of a suspended job is|, whose job has no place there, is) on node"
)
_AGAIN = "after 60 s, the pod is queued again for another node"
_READY = f"the node is ready and uncordoned, or, {_AGAIN}"
_EVENTS = {
    "more CPUs than it has": "one of these jobs has ended",
    "still allocated to another ResourceClaim": "the other ResourceClaim has given the device back",
    " is cordoned": _READY,
    " isn't ready": _READY,
    "Kubernetes has no node": _AGAIN,
    " is not known yet": "Slurm answers with the record of the node",
}
"""What ends a wait for a node or its devices, by a part of the bridge's words."""
_LESS = (
    "Correct what the message names. A job that has less than its pods request gets no more: "
    "it is cancelled after 60 s, but for a user's."
)
_NO_USER = "has no Slurm user"
_TENANTS = "--tenants="
_LEVELS = {
    PodQueued.INCOMPLETE.value: Level.BLOCKS,
    PodQueued.REFUSED.value: Level.BLOCKS,
    PodQueued.JOB_UNKNOWN.value: Level.BLOCKS,
    PodQueued.NO_JOB.value: Level.BLOCKS,
}
_LEFT_OUT = frozenset({"NotModelled", "Guard"})
"""Findings about jobs that say nothing about a placeholder."""


def is_bridged(pod: Object) -> bool:
    """Whether Slurm schedules the pod."""
    return bridge.GATE in gates(pod) or bool(objects.label(pod, bridge.JOB_LABEL))


def gates(pod: Object) -> list[str]:
    """The names of its scheduling gates."""
    return [objects.text(it, "name") for it in objects.items(pod, "spec", "schedulingGates")]


def job_id(pod: Object) -> str:
    """The id of its placeholder job; "" without one."""
    text = objects.label(pod, bridge.JOB_LABEL)
    return text if text.isascii() and text.isdecimal() else ""


def blocker(pod: Object) -> tuple[str, str] | None:
    """Namespace and name of the pod that it waits for, whose job has ended, or has no cores for it."""
    shown = objects.condition(pod, bridge.CONDITION)
    found = _BLOCKER.search(shown.message) if shown is not None and shown.status == "True" else None
    return (found[1], found[2]) if found is not None else None


def lacks_tenant(pod: Object) -> bool:
    """Whether the bridge has refused the pod because its namespace has no Slurm user."""
    shown = objects.condition(pod, bridge.CONDITION)
    return shown is not None and shown.reason == PodQueued.REFUSED.value and _NO_USER in shown.message


def tenants_of(deployments: Iterable[Object]) -> tuple[str, str] | None:
    """Namespace and name of the ConfigMap that the only bridge reads; None if none or several are among them."""
    found = {
        (objects.text(it, "metadata", "namespace"), word.removeprefix(_TENANTS))
        for it in deployments
        for container in objects.items(it, "spec", "template", "spec", "containers")
        for word in _words(container)
        if word.startswith(_TENANTS)
    }
    return found.pop() if len(found) == 1 else None


def _words(container: Object) -> list[str]:
    args = objects.dig(container, "args")
    return [it for it in args if isinstance(it, str)] if isinstance(args, list) else []


def state(pod: Object, seen: Seen) -> str:
    """Its job with its state, in a few words; "" for nothing."""
    number = job_id(pod)
    if not number:
        return "no Slurm job yet" if bridge.GATE in gates(pod) else ""
    jobs = seen.slurm.jobs
    states = "+".join(sorted(jobs[-1].states)) if jobs else "unknown to Slurm" if jobs == () else ""
    return f"Slurm job {number}" + (f" ({states})" if states else "")


def findings(pod: Object, seen: Seen) -> list[Finding]:
    """Why it waits, or that its job runs. What its containers do is not looked at."""
    about = f"pod {seen.namespace}/{objects.name(pod)}"
    found = [_gate(it, about) for it in gates(pod) if it != bridge.GATE]
    if objects.text(pod, "spec", "nodeName"):
        return [*found, *_running(pod, seen, about)]
    if bridge.GATE not in gates(pod):
        return [*found, _released(pod, about)]
    shown = objects.condition(pod, bridge.CONDITION)
    if shown is None:
        return [*found, *_not_seen(pod, seen, about)]
    if shown.reason == PodQueued.WAITING.value:
        return [*found, *_waiting(pod, shown.message, seen, about)]
    return [*found, _reported(pod, shown, seen, about)]


def ending(pod: Object, seen: Seen, about: str) -> list[Finding]:
    """What waits for the end of the pod."""
    jobs, where = seen.slurm.jobs, objects.text(pod, "spec", "nodeName")
    found = guard.of_pod(jobs[-1], about) if jobs else []
    if found or not where or objects.text(pod, "status", "phase") in ("Succeeded", "Failed"):
        return found
    text = (
        f"Until the pod is gone, nobody else gets what it uses on Kubernetes node {where}, even if its job has ended."
    )
    remedy = "A shorter terminationGracePeriodSeconds of such pods returns the node sooner."
    return [Finding("NodeRetained", Level.SHOWS, about, text, remedy)]


def timeline(seen: Seen) -> tuple[Moment, ...]:
    """What happened to its job."""
    jobs = seen.slurm.jobs
    return of_job.explain(seen, str(jobs[-1].job_id)).timeline if jobs else ()


def _gate(name: str, about: str) -> Finding:
    text = f"The scheduling gate {name} of another program is on the pod, too."
    return Finding(
        "OtherGate", Level.BLOCKS, about, text, "Wait for the program that removes it, or look for its fault."
    )


def _not_seen(pod: Object, seen: Seen, about: str) -> list[Finding]:
    created = objects.time(pod, "metadata", "creationTimestamp")
    number = job_id(pod)
    if created is not None and seen.now - created < NOT_SEEN_SECONDS:
        text = f"The pod is new, and has Slurm job {number}." if number else "The pod is new, and has no job yet."
        return [Finding("New", Level.WAITS, about, text, event="the Slurm Bridge reports what its job waits for")]
    if number and seen.slurm.jobs is not None:
        text = f"The Slurm Bridge has not reported what Slurm job {number} waits for. Slurm itself does."
        return [Finding("NotReported", Level.SHOWS, about, text), *_of_job(number, seen, about)]
    text = "The Slurm Bridge has reported nothing about the pod"
    if number:
        text = f"The pod has Slurm job {number}, and the Slurm Bridge has not reported what the job waits for"
    text += ": thousands of pods wait, and it reports on 20 a second, or it does not run, or Slurm does not answer it."
    remedy = "See its log. It changes nothing while Slurm's answers are missing or not plausible."
    place = f"-n {seen.slurm_namespace} " if seen.slurm_namespace else ""
    command = f"kubectl {place}logs -l {BRIDGES} --tail=50"
    return [Finding("NotReported", Level.WARNS if number else Level.BLOCKS, about, text, remedy, (command,))]


def _of_job(number: str, seen: Seen, about: str) -> list[Finding]:
    """What Slurm reports of its job."""
    jobs = seen.slurm.jobs
    if (
        jobs
        and jobs[-1].pending is not None
        and jobs[-1].pending.priority == 0
        and jobs[-1].reason.startswith("JobHeld")
    ):
        text = f"Slurm job {number} may not start yet: the Slurm Bridge lets it start when all pods have its id."
        return [Finding("NotStarted", Level.WAITS, about, text, event="the Slurm Bridge lets the job start")]
    return [it for it in of_job.explain(seen, number).findings if it.code not in _LEFT_OUT]


def _waiting(pod: Object, message: str, seen: Seen, about: str) -> list[Finding]:
    number = job_id(pod)
    if seen.slurm.jobs:
        return _of_job(number, seen, about)
    found = _WAITS.search(message)
    if found is None:
        return [Finding("Waiting", Level.WAITS, about, f"{message}.", event="Slurm runs the job")]
    reason = words(found[1])
    level = Level.WAITS if reason.waits else Level.BLOCKS
    remedy = reason.remedy.replace("JOB", number)
    return [Finding(found[1], level, about, f"{message}.", remedy, event=reason.event)]


def _reported(pod: Object, shown: objects.ConditionSeen, seen: Seen, about: str) -> Finding:
    """What the bridge has reported, beside what its job waits for."""
    known = next((it for it in PodQueued if it.value == shown.reason), None)
    cause = f"{shown.message[:1].upper()}{shown.message[1:]}".rstrip(".") + "."
    found = Finding(
        shown.reason,
        _LEVELS.get(shown.reason, Level.WAITS),
        about,
        cause,
        plain(known.remedy) if known is not None else "",
    )
    if lacks_tenant(pod):
        remedy = f"An administrator adds {seen.namespace} to `tenants` in the values of the chart slurm-bridge."
        commands = () if seen.tenants is None else ("kubectl -n {} get configmap {} -o yaml".format(*seen.tenants),)
        return replace(found, code="NoTenant", remedy=remedy, commands=commands)
    if shown.reason == PodQueued.REFUSED.value and shown.message.startswith("Slurm refuses"):
        return replace(found, event="the Slurm Bridge submits the job again, at most 2 minutes later")
    if shown.reason == PodQueued.JOB_UNKNOWN.value:
        return replace(found, commands=(f"kubectl -n {seen.namespace} delete pod {objects.name(pod)}",))
    if shown.reason == PodQueued.NODE_NOT_FREE.value:
        return _not_free(found, pod, seen)
    return found


def _not_free(found: Finding, pod: Object, seen: Seen) -> Finding:
    other = blocker(pod)
    if other is None:
        event = next((event for words, event in _EVENTS.items() if words in found.cause), "")
        return replace(found, event=event) if event else replace(found, level=Level.BLOCKS, remedy=_LESS)
    namespace, name = other
    present = next(
        (it for it in seen.kube.pods or () if (objects.text(it, "metadata", "namespace"), objects.name(it)) == other),
        None,
    )
    at = objects.time(present, "metadata", "deletionTimestamp") if present is not None else None
    late = at is not None and at < seen.now
    remedy = f"See why it doesn't end: kubectl -n {namespace} describe pod {name}" if late else found.remedy
    gone = f"pod {namespace}/{name} is gone, or, {_AGAIN}"
    return replace(
        found,
        remedy=remedy,
        event=gone if late or at is None else f"pod {namespace}/{name} ends at the latest",
        at=None if late else at,
    )


def _released(pod: Object, about: str) -> Finding:
    scheduled = objects.condition(pod, "PodScheduled")
    where = objects.annotation(pod, bridge.NODE_ANNOTATION)
    place = f" on Kubernetes node {where}" if where else ""
    text = f"Slurm job {job_id(pod)} runs{place}, and the scheduler has not bound the pod yet."
    tried = scheduled is not None and scheduled.status == "False" and scheduled.reason != "SchedulingGated"
    if scheduled is None or not tried or not scheduled.message:
        return Finding("Released", Level.WAITS, about, text, event="the scheduler binds it")
    remedy = "Remove the cause that the scheduler names. The next job avoids this node for ten minutes."
    event = "after 15 s without a binding, the Slurm Bridge cancels the job"
    return Finding("NotBound", Level.BLOCKS, about, f"{text} Its reason: {scheduled.message}", remedy, event=event)


def _running(pod: Object, seen: Seen, about: str) -> list[Finding]:
    number = job_id(pod)
    shown = objects.condition(pod, bridge.CONDITION)
    if shown is not None and shown.reason == PodQueued.JOB_UNKNOWN.value:
        return [_reported(pod, shown, seen, about)]
    if objects.text(pod, "status", "phase") in ("Succeeded", "Failed"):
        return []
    started = objects.time(pod, "status", "startTime")
    seconds = objects.number(pod, "spec", "activeDeadlineSeconds")
    ends = started + seconds if started is not None and seconds else None
    event = "the time limit of its job ends it" if ends is not None and ends > seen.now else ""
    text = f"Slurm job {number} runs for it. The end of the job deletes the pod."
    return [Finding("Running", Level.SHOWS, about, text, event=event, at=ends if event else None)]
