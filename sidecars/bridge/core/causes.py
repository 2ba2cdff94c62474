"""What pods wait for, by classes of Slurm's reasons: few enough for a metric. Pure."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from sidecars.bridge.core import pods
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import Job, Phase, Why
from sidecars.contract import bridge


class Cause(StrEnum):
    """What a pending job waits for."""

    RESOURCES = "Resources"
    PRIORITY = "Priority"
    LIMIT = "Limit"
    DEPENDENCY = "Dependency"
    BEGIN_TIME = "BeginTime"
    LICENSES = "Licenses"
    RESERVATION = "Reservation"
    PARTITION = "Partition"
    NOT_RELEASED = "NotReleased"
    NODES = "Nodes"
    """Nodes that are out of service, or that don't have the labels that the pod selects."""
    OTHER = "Other"


_REASONS = {
    "": Cause.PRIORITY,
    "None": Cause.PRIORITY,
    "Resources": Cause.RESOURCES,
    "Priority": Cause.PRIORITY,
    "BeginTime": Cause.BEGIN_TIME,
    "Licenses": Cause.LICENSES,
    "BadConstraints": Cause.NODES,
    "Constraints": Cause.NODES,
    "NodeDown": Cause.NODES,
    "ReqNodeNotAvail": Cause.NODES,
    "AccountNotAllowed": Cause.LIMIT,
    "AccountingPolicy": Cause.LIMIT,
}
_BEGINNINGS = {
    "Assoc": Cause.LIMIT,
    "QOS": Cause.LIMIT,
    "Max": Cause.LIMIT,
    "InvalidAccount": Cause.LIMIT,
    "InvalidQOS": Cause.LIMIT,
    "Dependency": Cause.DEPENDENCY,
    "JobHeld": Cause.NOT_RELEASED,
    "JobHold": Cause.NOT_RELEASED,
    "Partition": Cause.PARTITION,
    "Reservation": Cause.RESERVATION,
}


def cause_of(reason: str) -> Cause:
    """Return the class of Slurm's reason. A job that Slurm has not looked at yet waits like one
    with a low priority.
    """
    found = _REASONS.get(reason)
    if found is not None:
        return found
    return next(
        (cause for start, cause in _BEGINNINGS.items() if reason.startswith(start)), Cause.OTHER
    )


def waiting(concerned: Iterable[Pod], jobs: Iterable[Job]) -> Counter[tuple[str, str]]:
    """Return the pods that wait, by the reason of their condition and the class of Slurm's
    reason.
    """
    found = Counter({(why.value, ""): 0 for why in Why if why not in (Why.RELEASED, Why.WAITING)})
    by_id = {job_id: job for job in jobs for job_id in job.ids}
    for pod in concerned:
        if not pods.is_gated(pod) or pod.finished or pod.metadata.deletion_timestamp is not None:
            continue
        shown = pod.status.condition(bridge.CONDITION)
        reason = shown.reason if shown is not None else Why.WAITING.value
        job = by_id.get(pods.job_id_of(pod) or 0)
        pending = reason == Why.WAITING.value and job is not None and job.phase is Phase.PENDING
        found[reason, cause_of(job.reason).value if pending and job is not None else ""] += 1
    return found
