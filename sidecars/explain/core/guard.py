"""What a guard is: the job on a node with a slurmd that has what pods of the Slurm Bridge use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sidecars.contract import bridge
from sidecars.explain.core import objects
from sidecars.explain.core.records import Finding, Level

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object, Seen
    from sidecars.slurm.details import JobDetail

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_SILENT = (
    "If the pods are gone, see the log of the Slurm Bridge: while it does not run, the node "
    "remains COMPLETING. After ten minutes, the Epilog drains it."
)


SHOWN = 5
"""Pods that are shown one by one."""


def waits_for_pods(job: JobDetail) -> bool:
    """Return whether it is a guard that has ended, and whose nodes wait for its pods."""
    return job.guard and "COMPLETING" in job.states


def namespace_of(job: JobDetail) -> str:
    """Return the namespace of the guard's pods, "" if it isn't known."""
    comment = bridge.decode(job.comment)
    # Without an admin comment, its user has written it: nothing but a name may get into a command.
    return (
        comment.namespace if comment is not None and _NAMESPACE.fullmatch(comment.namespace) else ""
    )


def of_job(job: JobDetail, about: str) -> list[Finding]:
    """Explain a guard that has not ended, or whose Epilog waits. Return [] for any other job."""
    if not job.guard:
        return []
    namespace = namespace_of(job)
    where = f"-n {namespace}" if namespace else "-A"
    pods = f"kubectl get pods {where} -l {bridge.JOB_LABEL}={job.job_id} -o wide"
    if waits_for_pods(job):
        text = (
            f"It is a guard, and its nodes wait for its pods: {job.nodes}. Slurm gives what they "
            "use to nobody, and starts no other job there, until they are gone."
        )
        remedy = f"See why its pods don't end. {_SILENT}"
        return [
            Finding(
                "GuardCompleting",
                Level.WAITS,
                about,
                text,
                remedy,
                (pods,),
                event="its pods are gone",
            )
        ]
    if job.pending is None and not job.states & {"RUNNING", "SUSPENDED"}:
        return []
    text = (
        "It is a guard: it runs nothing itself, and has what pods of the Slurm Bridge use on "
        "nodes with a slurmd. Its end deletes them."
    )
    return [Finding("Guard", Level.SHOWS, about, text, "", (pods,))]


def left(seen: Seen) -> list[Finding]:
    """Find the pods for which the guard's nodes wait, and for how long at the most. The first to
    end come first.
    """
    pods = [
        it
        for it in seen.kube.guarded or ()
        if objects.text(it, "status", "phase") not in ("Succeeded", "Failed")
    ]
    ends = {objects.name(it): objects.time(it, "metadata", "deletionTimestamp") for it in pods}
    pods.sort(
        key=lambda it: (
            at if (at := ends[objects.name(it)]) is not None else float("inf"),
            objects.name(it),
        )
    )
    found = [_left(it, ends[objects.name(it)], seen) for it in pods[:SHOWN]]
    if len(pods) > SHOWN:
        text = f"{len(pods) - SHOWN} more of its pods have not ended."
        found.append(Finding("Terminating", Level.WAITS, found[0].about, text))
    return found


def _left(pod: Object, at: float | None, seen: Seen) -> Finding:
    namespace, name = objects.text(pod, "metadata", "namespace"), objects.name(pod)
    about = f"pod {namespace}/{name}"
    if at is None:
        text = "The pod of the guard has not been deleted yet."
        return Finding("Waiting", Level.WAITS, about, text, event="the Slurm Bridge deletes it")
    if at < seen.now:
        remedy = f"See why it doesn't end: kubectl -n {namespace} describe pod {name}"
        return Finding(
            "Terminating", Level.BLOCKS, about, "The pod of the guard should have ended.", remedy
        )
    seconds = objects.number(pod, "metadata", "deletionGracePeriodSeconds")
    text = f"The pod of the guard has {seconds} s to end (terminationGracePeriodSeconds)."
    return Finding("Terminating", Level.WAITS, about, text, event="it ends at the latest", at=at)


def of_pod(job: JobDetail, about: str) -> list[Finding]:
    """Find that a node waits for this pod, whose guard has ended. Return [] if none does."""
    if not waits_for_pods(job):
        return []
    text = (
        f"Its guard, Slurm job {job.job_id}, has ended. Until the pod is gone, its node is "
        "COMPLETING: Slurm gives what the pod uses to nobody, and starts no other job there."
    )
    remedy = "A shorter terminationGracePeriodSeconds of such pods returns the node sooner."
    return [Finding("GuardCompleting", Level.WAITS, about, text, remedy, event="the pod is gone")]
