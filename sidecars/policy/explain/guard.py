"""What a guard is: the job on a node with a slurmd that has what pods of the Slurm Bridge use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sidecars.contract import bridge
from sidecars.policy.explain.records import Finding, Level

if TYPE_CHECKING:
    from sidecars.slurm.details import JobDetail

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_SILENT = (
    "If the pods are gone, see the log of the Slurm Bridge: while it does not run, the node remains COMPLETING. After "
    "ten minutes, the Epilog drains it."
)


def of_job(job: JobDetail, about: str) -> list[Finding]:
    """What a guard that has not ended, or whose Epilog waits, is for. [] for any other job."""
    if not job.guard:
        return []
    comment = bridge.decode(job.comment)
    # Without an admin comment, its user has written it: nothing but a name may get into a command.
    named = comment is not None and _NAMESPACE.fullmatch(comment.namespace)
    where = f"-n {named[0]}" if named else "-A"
    pods = f"kubectl get pods {where} -l {bridge.JOB_LABEL}={job.job_id} -o wide"
    if "COMPLETING" in job.states:
        text = (
            f"It is a guard, and its nodes wait for its pods: {job.nodes}. Slurm gives what they use to nobody, and "
            "starts no other job there, until they are gone."
        )
        remedy = f"See why its pods don't end. {_SILENT}"
        return [Finding("GuardCompleting", Level.WAITS, about, text, remedy, (pods,), event="its pods are gone")]
    if job.pending is None and not job.states & {"RUNNING", "SUSPENDED"}:
        return []
    text = (
        "It is a guard: it runs nothing itself, and has what pods of the Slurm Bridge use on nodes with a slurmd. Its "
        "end deletes them."
    )
    return [Finding("Guard", Level.SHOWS, about, text, "", (pods,))]


def of_pod(job: JobDetail, about: str) -> list[Finding]:
    """That a node waits for this pod, whose guard has ended; [] if none does."""
    if not job.guard or "COMPLETING" not in job.states:
        return []
    text = (
        f"Its guard, Slurm job {job.job_id}, has ended. Until the pod is gone, its node is COMPLETING: Slurm gives "
        "what the pod uses to nobody, and starts no other job there."
    )
    remedy = "A shorter terminationGracePeriodSeconds of such pods returns the node sooner."
    return [Finding("GuardCompleting", Level.WAITS, about, text, remedy, event="the pod is gone")]
