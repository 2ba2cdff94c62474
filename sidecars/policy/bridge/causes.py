"""Classes of Slurm's reasons of a pending job: few enough for a metric. Pure."""

from enum import StrEnum


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
    """The class of Slurm's reason. A job that Slurm has not looked at yet waits like one with a low priority."""
    found = _REASONS.get(reason)
    if found is not None:
        return found
    return next((cause for start, cause in _BEGINNINGS.items() if reason.startswith(start)), Cause.OTHER)
