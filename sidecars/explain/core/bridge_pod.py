"""Why a pod that Slurm schedules waits: its placeholder job, and what the Slurm Bridge has reported
on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sidecars.contract import bridge, queued
from sidecars.explain.core import guard, objects
from sidecars.explain.core import job as of_job
from sidecars.explain.core.records import Finding, Level, plain
from sidecars.policy.reasons.bridge import BridgeEvent, PodQueued
from sidecars.slurm.job_reasons import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecars.explain.core.records import Moment, Object, Seen

BRIDGES = "app.kubernetes.io/part-of=slurm-bridge,app.kubernetes.io/component=bridge"
"""Labels of the bridge's Deployment and pods, whatever the names that the values of its chart set.
"""
NOT_SEEN_SECONDS = 30.0
"""Time after which a pod without a condition is not merely new."""
NO_ROLE_BINDING_SECONDS = 900.0
"""Time for which an Event of the bridge about a RoleBinding counts. A series is written each 10
minutes.
"""

_AGAIN = "after 60 s, the pod is queued again for another node"
_READY = f"the node is ready and uncordoned, or, {_AGAIN}"
_EVENTS = {
    queued.TOO_MANY_CPUS: "one of these jobs has ended",
    queued.BUSY_DEVICE: "the other ResourceClaim has given the device back",
    queued.CORDONED: _READY,
    queued.NOT_READY: _READY,
    queued.NO_KUBE_NODE: _AGAIN,
    queued.UNKNOWN_RECORD: "Slurm answers with the record of the node",
}
"""What ends a wait for a node or its devices, by the fact that the bridge reports."""
_LESS = (
    "Correct what the message names. A job that has less than its pods request gets no more: "
    "it is cancelled after 60 s, but for a user's."
)
_TENANTS = "--tenants="
_SLURMRESTD = "--slurmrestd-url="
_LEVELS = {
    PodQueued.INCOMPLETE.value: Level.BLOCKS,
    PodQueued.REFUSED.value: Level.BLOCKS,
    PodQueued.JOB_UNKNOWN.value: Level.BLOCKS,
    PodQueued.NO_JOB.value: Level.BLOCKS,
}
_OF_REQUEST = frozenset({"Impossible", "BadConstraints", "TooManyNodes", "PartitionExcludes"})
"""Findings about what a job requests."""
_LEFT_OUT = frozenset({"NotModelled", "Guard"})
"""Findings about jobs that say nothing about a placeholder."""


def is_bridged(pod: Object) -> bool:
    """Return whether Slurm schedules the pod."""
    return bridge.GATE in gates(pod) or bool(objects.label(pod, bridge.JOB_LABEL))


def gates(pod: Object) -> list[str]:
    """Return the names of its scheduling gates."""
    return [objects.text(it, "name") for it in objects.items(pod, "spec", "schedulingGates")]


def job_id(pod: Object) -> str:
    """Return the id of the pod's placeholder job, "" without one."""
    text = objects.label(pod, bridge.JOB_LABEL)
    return text if text.isascii() and text.isdecimal() else ""


def blocker(pod: Object) -> tuple[str, str] | None:
    """Return namespace and name of the pod that it waits for, whose job has ended, or has no cores
    for it.
    """
    shown = objects.condition(pod, bridge.CONDITION)
    if shown is None or shown.status != "True":
        return None
    blockers = (it.read(shown.message) for it in queued.BLOCKERS)
    found = next((it for it in blockers if it is not None), None)
    return (found["namespace"], found["name"]) if found is not None else None


def lacks_tenant(pod: Object) -> bool:
    """Return whether the bridge has refused the pod because its namespace has no Slurm user."""
    shown = objects.condition(pod, bridge.CONDITION)
    return (
        shown is not None
        and shown.reason == PodQueued.REFUSED.value
        and queued.NO_USER.read(shown.message) is not None
    )


def is_silent(pod: Object) -> bool:
    """Return whether the pod waits without a job, and without a condition of the bridge."""
    return (
        bridge.GATE in gates(pod)
        and not job_id(pod)
        and objects.condition(pod, bridge.CONDITION) is None
    )


def tenants_of(deployments: Iterable[Object]) -> tuple[str, str] | None:
    """Return namespace and name of the ConfigMap that the only bridge reads, None if none or
    several are among them.
    """
    found = {
        (objects.text(it, "metadata", "namespace"), word.removeprefix(_TENANTS))
        for it in deployments
        for container in objects.items(it, "spec", "template", "spec", "containers")
        for word in _words(container)
        if word.startswith(_TENANTS)
    }
    return found.pop() if len(found) == 1 else None


def clusters_of(deployments: Iterable[Object]) -> set[str]:
    """Return the namespaces of the Slurm clusters for which bridges work, as far as they use a
    Service of Kubernetes.
    """
    hosts = (
        (urlsplit(word.removeprefix(_SLURMRESTD)).hostname or "").split(".")
        for it in deployments
        for container in objects.items(it, "spec", "template", "spec", "containers")
        for word in _words(container)
        if word.startswith(_SLURMRESTD)
    )
    return {labels[1] for labels in hosts if len(labels) > 1}


def _words(container: Object) -> list[str]:
    args = objects.dig(container, "args")
    return [it for it in args if isinstance(it, str)] if isinstance(args, list) else []


def state(pod: Object, seen: Seen) -> str:
    """Describe the pod's job with its state in a few words, "" for nothing."""
    number = job_id(pod)
    if not number:
        return "no Slurm job yet" if bridge.GATE in gates(pod) else ""
    jobs = seen.slurm.jobs
    states = "+".join(sorted(jobs[-1].states)) if jobs else "unknown to Slurm" if jobs == () else ""
    return f"Slurm job {number}" + (f" ({states})" if states else "")


def findings(pod: Object, seen: Seen) -> list[Finding]:
    """Find why the pod waits, or that its job runs. What its containers do is not looked at."""
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
    """Find what waits for the end of the pod."""
    jobs, where = seen.slurm.jobs, objects.text(pod, "spec", "nodeName")
    found = guard.of_pod(jobs[-1], about) if jobs else []
    if found or not where or objects.text(pod, "status", "phase") in ("Succeeded", "Failed"):
        return found
    text = (
        f"Until the pod is gone, nobody else gets what it uses on Kubernetes node {where}, even "
        "if its job has ended."
    )
    remedy = "A shorter terminationGracePeriodSeconds of such pods returns the node sooner."
    return [Finding("NodeRetained", Level.SHOWS, about, text, remedy)]


def timeline(seen: Seen) -> tuple[Moment, ...]:
    """Return the history of the pod's job."""
    jobs = seen.slurm.jobs
    return of_job.explain(seen, str(jobs[-1].job_id)).timeline if jobs else ()


def _gate(name: str, about: str) -> Finding:
    text = f"The scheduling gate {name} of another program is on the pod, too."
    return Finding(
        "OtherGate",
        Level.BLOCKS,
        about,
        text,
        "Wait for the program that removes it, or look for its fault.",
    )


def _not_seen(pod: Object, seen: Seen, about: str) -> list[Finding]:
    created = objects.time(pod, "metadata", "creationTimestamp")
    number = job_id(pod)
    lacking = _no_role_binding(seen, about) if is_silent(pod) else None
    if lacking is not None:
        return [lacking]
    if created is not None and seen.now - created < NOT_SEEN_SECONDS:
        text = (
            f"The pod is new, and has Slurm job {number}."
            if number
            else "The pod is new, and has no job yet."
        )
        return [
            Finding(
                "New",
                Level.WAITS,
                about,
                text,
                event="the Slurm Bridge reports what its job waits for",
            )
        ]
    if number and seen.slurm.jobs is not None:
        text = (
            f"The Slurm Bridge has not reported what Slurm job {number} waits for. Slurm itself "
            "does."
        )
        return [Finding("NotReported", Level.SHOWS, about, text), *_of_job(number, seen, about)]
    text = "The Slurm Bridge has reported nothing about the pod"
    if number:
        text = (
            f"The pod has Slurm job {number}, and the Slurm Bridge has not reported what the job "
            "waits for"
        )
    text += (
        ": thousands of pods wait, and it reports on 20 a second, or it does not run, or Slurm "
        "does not answer it."
    )
    remedy = "See its log. It changes nothing while Slurm's answers are missing or not plausible."
    place = f"-n {seen.slurm_namespace} " if seen.slurm_namespace else ""
    command = f"kubectl {place}logs -l {BRIDGES} --tail=50"
    return [
        Finding(
            "NotReported", Level.WARNS if number else Level.BLOCKS, about, text, remedy, (command,)
        )
    ]


def _no_role_binding(seen: Seen, about: str) -> Finding | None:
    """Read the bridge's Event about the namespace, if it is recent: the bridge repeats it while
    pods wait.
    """
    for event in seen.bridge_events:
        at = objects.event_time(event)
        lacking = queued.NO_RIGHTS.read(objects.text(event, "message"))
        recent = at is not None and seen.now - at < NO_ROLE_BINDING_SECONDS
        if recent and lacking is not None and lacking["namespace"] == seen.namespace:
            text = (
                f"The Slurm Bridge may not change the pods of namespace {seen.namespace}: no "
                "RoleBinding gives it the right."
            )
            remedy = "An administrator runs the command. The pod gets its job within seconds."
            command = lacking["command"]
            return Finding(
                BridgeEvent.NO_ROLE_BINDING.value, Level.BLOCKS, about, text, remedy, (command,)
            )
    return None


def _of_job(number: str, seen: Seen, about: str) -> list[Finding]:
    """Find what Slurm reports of the pod's job."""
    jobs = seen.slurm.jobs
    if (
        jobs
        and jobs[-1].pending is not None
        and jobs[-1].pending.priority == 0
        and jobs[-1].reason.startswith("JobHeld")
    ):
        text = (
            f"Slurm job {number} may not start yet: the Slurm Bridge lets it start when all pods "
            "have its id."
        )
        return [
            Finding(
                "NotStarted", Level.WAITS, about, text, event="the Slurm Bridge lets the job start"
            )
        ]
    return [
        _of_template(it) for it in of_job.explain(seen, number).findings if it.code not in _LEFT_OUT
    ]


def _of_template(finding: Finding) -> Finding:
    """Return a finding about a job whose request is that of a pod: nobody can change it there, and
    the bridge itself releases the job.
    """
    if finding.code not in _OF_REQUEST:
        return finding
    remedy = "Delete the pod, and correct what its template requests, or add such nodes."
    return replace(finding, remedy=remedy, commands=())


def _waiting(pod: Object, message: str, seen: Seen, about: str) -> list[Finding]:
    number = job_id(pod)
    if seen.slurm.jobs:
        return _of_job(number, seen, about)
    waits = queued.WAITS.read(message)
    if waits is None:
        return [Finding("Waiting", Level.WAITS, about, f"{message}.", event="Slurm runs the job")]
    reason = words(waits["reason"])
    level = Level.WAITS if reason.waits else Level.BLOCKS
    remedy = reason.remedy.replace("JOB", number)
    return [Finding(waits["reason"], level, about, f"{message}.", remedy, event=reason.event)]


def _reported(pod: Object, shown: objects.ConditionSeen, seen: Seen, about: str) -> Finding:
    """Find what the bridge has reported, beside what its job waits for."""
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
        remedy = (
            f"An administrator adds {seen.namespace} to `tenants` in the values of the chart "
            "slurm-bridge."
        )
        commands = (
            ()
            if seen.tenants is None
            else ("kubectl -n {} get configmap {} -o yaml".format(*seen.tenants),)
        )
        return replace(found, code="NoTenant", remedy=remedy, commands=commands)
    if shown.reason == PodQueued.REFUSED.value and queued.REFUSED_JOB.read(shown.message):
        return replace(
            found, event="the Slurm Bridge submits the job again, at most 2 minutes later"
        )
    if shown.reason == PodQueued.JOB_UNKNOWN.value:
        return replace(
            found, commands=(f"kubectl -n {seen.namespace} delete pod {objects.name(pod)}",)
        )
    if shown.reason == PodQueued.NODE_NOT_FREE.value:
        return _not_free(found, pod, seen)
    return found


def _not_free(found: Finding, pod: Object, seen: Seen) -> Finding:
    other = blocker(pod)
    if other is None:
        events = (event for fact, event in _EVENTS.items() if fact.read(found.cause) is not None)
        event = next(events, "")
        return (
            replace(found, event=event)
            if event
            else replace(found, level=Level.BLOCKS, remedy=_LESS)
        )
    namespace, name = other
    present = next(
        (
            it
            for it in seen.kube.pods or ()
            if (objects.text(it, "metadata", "namespace"), objects.name(it)) == other
        ),
        None,
    )
    at = objects.time(present, "metadata", "deletionTimestamp") if present is not None else None
    late = at is not None and at < seen.now
    remedy = (
        f"See why it doesn't end: kubectl -n {namespace} describe pod {name}"
        if late
        else found.remedy
    )
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
    tried = (
        scheduled is not None
        and scheduled.status == "False"
        and scheduled.reason != "SchedulingGated"
    )
    if scheduled is None or not tried or not scheduled.message:
        return Finding("Released", Level.WAITS, about, text, event="the scheduler binds it")
    remedy = (
        "Remove the cause that the scheduler names. The next job avoids this node for ten minutes."
    )
    event = "after 15 s without a binding, the Slurm Bridge cancels the job"
    return Finding(
        "NotBound",
        Level.BLOCKS,
        about,
        f"{text} Its reason: {scheduled.message}",
        remedy,
        event=event,
    )


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
