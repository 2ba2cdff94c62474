"""Slurm's reasons of jobs in words: cause, remedy, and what ends the wait (slurm.h, enum
job_state_reason).

Reasons of limits follow a grammar: whose limit it is (association or QOS), which limit, of what,
and for whom. They are read with it. All other reasons are in a table.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Limit(NamedTuple):
    """The limit that a reason names, in the words of `scontrol show assoc_mgr`."""

    of_qos: bool
    """Whether it is a limit of the QOS, not of the association."""
    key: str
    """`GrpTRES`, `MaxTRESPU`, `MaxJobs`, …"""
    tres: str
    """Slurm's name of the resource: `cpu`, `mem`, `gres`, …; "" for jobs and time; "?" where Slurm
    doesn't name it.
    """


class Words(NamedTuple):
    """A reason."""

    cause: str
    remedy: str
    event: str
    """What starts the job; "" where nothing happens without a remedy."""
    limit: Limit | None = None

    @property
    def waits(self) -> bool:
        """Whether the job starts without a remedy."""
        return bool(self.event)


_RELEASE = "Release the job: scontrol release JOB."
_RELEASE_LATER = "Correct the cause, then release the job: scontrol release JOB. Or cancel it."
_CANCEL = "Cancel the job, or change what it requests."
_FREE = "when running jobs end or nodes are added"
_PARTITION = "Submit the job to another partition, or ask the administrator of the partition."
_LIMIT_LOWER = "Request less, or ask an administrator to raise the limit."

REASONS: dict[str, Words] = {
    "None": Words(
        "The scheduler has not looked at the job yet.", "Wait.", "when the scheduler next runs"
    ),
    "Prolog": Words("PrologSlurmctld of the job runs.", "Wait.", "when the prolog ends"),
    "Priority": Words(
        "Jobs with a higher priority wait for the same partition.",
        "Wait.",
        "when the jobs ahead of it have started",
    ),
    "Dependency": Words(
        "The job waits for another job.", "Wait, or change the dependency.", "when that job ends"
    ),
    "DependencyNeverSatisfied": Words(
        "The job waits for another job, which ended in a way that the dependency excludes.",
        "Cancel the job, or change its dependency: scontrol update jobid=JOB dependency=",
        "",
    ),
    "Resources": Words(
        "It is the first in its partition, and the resources that it requests are not free.",
        "Wait, request less, or add nodes.",
        _FREE,
    ),
    "PartitionNodeLimit": Words(
        "The job requests more or fewer nodes than the partition allows or has.",
        "Request a number of nodes that the partition allows.",
        "",
    ),
    "PartitionTimeLimit": Words(
        "The time limit of the job is longer than the partition allows.",
        "Lower the time limit: scontrol update jobid=JOB timelimit=",
        "",
    ),
    "PartitionDown": Words("The partition is down: no job of it starts.", _PARTITION, ""),
    "PartitionInactive": Words("The partition is inactive: no job of it starts.", _PARTITION, ""),
    "PartitionConfig": Words(
        "The partition's configuration excludes the job: its nodes, accounts, QOS or limits.",
        _PARTITION,
        "",
    ),
    "JobHeldAdmin": Words(
        "An administrator has set the job's priority to 0.", "Ask the administrator.", ""
    ),
    "JobHeldUser": Words("The job was submitted or set to wait for its release.", _RELEASE, ""),
    "JobHoldMaxRequeue": Words(
        "The job was requeued as often as MaxBatchRequeue allows.", _RELEASE_LATER, ""
    ),
    "NvidiaImexChannels": Words(
        "All NVIDIA IMEX channels are in use.", "Wait.", "when a job with a channel ends"
    ),
    "BeginTime": Words(
        "The job may not start before its begin time.", "Wait.", "at its begin time"
    ),
    "Licenses": Words("The job waits for licenses.", "Wait.", "when jobs with these licenses end"),
    "AssociationJobLimit": Words(
        "The association has as many jobs as it may have.", "Wait.", "when jobs of it end"
    ),
    "AssociationResourceLimit": Words(
        "The association uses as many resources as it may use.",
        "Wait, or request less.",
        "when jobs of it end",
    ),
    "AssociationTimeLimit": Words("The association has used its time.", _LIMIT_LOWER, ""),
    "Reservation": Words(
        "The job waits for its reservation.", "Wait.", "when the reservation begins or has room"
    ),
    "ReservationDeleted": Words(
        "The reservation that the job requests was deleted.",
        "Remove or change it: scontrol update jobid=JOB reservationname=",
        "",
    ),
    "ReservationInvalid": Words(
        "The job may not use the reservation that it requests, or no such reservation exists.",
        "Change it: scontrol update jobid=JOB reservationname=",
        "",
    ),
    "ReqNodeNotAvail": Words(
        "Nodes that the job needs are drained, DOWN, reserved or not responding.",
        "Return the nodes to service, or request others.",
        "when enough of these nodes are available",
    ),
    "SchedDefer": Words(
        "Slurm does not try to start jobs when they are submitted.", "Wait.", "at the next cycle"
    ),
    "NodeDown": Words(
        "A node of the job failed.", "Wait: the job starts again.", "when other nodes are free"
    ),
    "BadConstraints": Words(
        "No set of nodes can have what the job requests. Slurm has set its priority to 0.",
        "Correct the request, then release the job: scontrol release JOB.",
        "",
    ),
    "Constraints": Words(
        "No node has the facts that the job requests with --extra now.",
        "Wait, or change the constraint.",
        "when the Extra of a node matches",
    ),
    "SystemFailure": Words(
        "Slurm failed while it handled the job.", "See the log of slurmctld.", ""
    ),
    "JobLaunchFailure": Words(
        "slurmd or a prolog failed at the start of the job.",
        "See the log of slurmd on the node, then release the job: scontrol release JOB.",
        "",
    ),
    "NonZeroExitCode": Words(
        "The job ended with another exit code than 0.", "See the output of the job.", ""
    ),
    "RaisedSignal": Words("A signal ended the job.", "See the output of the job.", ""),
    "TimeLimit": Words("The job reached its time limit.", "Submit it with a longer one.", ""),
    "InactiveLimit": Words(
        "The job's allocation was not used for InactiveLimit.", "Submit it again.", ""
    ),
    "InvalidAccount": Words(
        "The account of the job does not exist, or its user is not in it.",
        "Submit it with another account, or create the association: sacctmgr add user USER "
        "account=ACCOUNT.",
        "",
    ),
    "InvalidQOS": Words(
        "The job's association may not use its QOS.", "Submit it with another QOS.", ""
    ),
    "QOSUsageThreshold": Words(
        "The QOS requires a higher usage factor.", "Use another QOS, or wait.", ""
    ),
    "QOSJobLimit": Words(
        "The QOS has as many jobs as it may have.", "Wait.", "when jobs of this QOS end"
    ),
    "QOSResourceLimit": Words(
        "The QOS uses as much as it may use.", "Wait.", "when jobs of this QOS end"
    ),
    "QOSTimeLimit": Words("The QOS has used its time.", _LIMIT_LOWER, ""),
    "QOSNotAllowed": Words(
        "The partition or association does not allow the QOS.", "Use another QOS.", ""
    ),
    "AccountNotAllowed": Words(
        "The partition does not allow the account.", "Use another account or partition.", ""
    ),
    "AccountingPolicy": Words("A limit of accounting applies to the job.", _LIMIT_LOWER, ""),
    "Cleaning": Words(
        "The job was requeued, and its last run is still being cleaned up.",
        "Wait.",
        "when the nodes have ended it",
    ),
    "JobArrayTaskLimit": Words(
        "As many tasks of the array run as the array itself allows (--array=…%N).",
        "Wait, or raise it: scontrol update jobid=JOB arraytaskthrottle=",
        "when a task of the array ends",
    ),
    "BurstBufferResources": Words(
        "The burst buffer has no room.", "Wait.", "when other jobs release it"
    ),
    "BurstBufferStageIn": Words(
        "The job's files are copied to the burst buffer.", "Wait.", "when the copy ends"
    ),
    "BurstBufferOperation": Words("An operation of the burst buffer failed.", _RELEASE_LATER, ""),
    "DeadLine": Words(
        "The job can't end before its deadline.", "Submit it again with a later deadline.", ""
    ),
    "FedJobLock": Words(
        "Another cluster of the federation decides about the job.", "Wait.", "when it has decided"
    ),
    "OutOfMemory": Words(
        "The job used more memory than it requested.", "Submit it with more memory.", ""
    ),
    "MaxMemPerLimit": Words(
        "The job requests more memory than MaxMemPerCPU or MaxMemPerNode allows.",
        "Request less memory.",
        "",
    ),
    "MaxPoweredUpNodes": Words(
        "As many nodes are powered up as MaxPoweredUpNodes allows.",
        "Wait.",
        "when nodes are powered down",
    ),
    "MpiPortsBusy": Words(
        "The ports for MPI that the job needs are in use.", "Wait.", "when other steps end"
    ),
}
"""By Slurm's word. JOB, USER and ACCOUNT are replaced."""

UNKNOWN = Words(
    "Slurm reports a reason that this program does not know.",
    "See the list of reasons of your Slurm version.",
    "",
)

_LIMIT = re.compile(
    r"(Assoc|QOS)?(Grp|Max|Min)(Cpu|CPU|Memory|Mem|Node|GRES|Billing|License|BB|Energy|Unknown|SubmitJobs?|Jobs?|Wall(?:Duration)?)"
    r"(RunMinutes|RunMins|Minutes)?(PerJob|PerNode|PerUser|PerAccount)?(Limit|NotSatisfied)?"
)
_TRES = {
    "Cpu": "cpu",
    "CPU": "cpu",
    "Mem": "mem",
    "Memory": "mem",
    "Node": "node",
    "GRES": "gres",
    "Billing": "billing",
    "License": "license",
    "BB": "bb",
    "Energy": "energy",
    "Unknown": "?",
}
_NAMES = {
    "cpu": "CPUs",
    "mem": "memory",
    "node": "nodes",
    "gres": "GRES such as GPUs",
    "billing": "billing units",
    "license": "licenses",
    "bb": "burst buffer",
    "energy": "energy",
    "?": "a resource that Slurm does not name",
}
_WHOM = {
    "": "",
    "PerJob": " of one job",
    "PerNode": " on each node of a job",
    "PerUser": " of one user",
    "PerAccount": " of one account",
}
_SHORT = {"": "", "PerJob": "PJ", "PerNode": "PN", "PerUser": "PU", "PerAccount": "PA"}
_AT_ONCE = "when jobs that count for this limit end"
_OVER_TIME = "when the recorded usage decays or is reset, or the limit is raised"


def words(reason: str) -> Words:
    """Describe the reason in words. Return `UNKNOWN` for one that no known Slurm reports."""
    return REASONS.get(reason) or _of_limit(reason) or UNKNOWN


def is_final(reason: str) -> bool:
    """Return whether a job with this reason never starts without a remedy. An unknown reason may
    end.
    """
    found = words(reason)
    return found is not UNKNOWN and not found.waits


def _of_limit(reason: str) -> Words | None:
    found = _LIMIT.fullmatch(reason)
    if found is None:
        return None
    owner, kind, what, minutes, whom = (part or "" for part in found.groups()[:5])
    of_qos = owner != "Assoc"
    whose = "QOS" if of_qos else "association"
    least, group = kind == "Min", kind == "Grp"
    if what.startswith(("Submit", "Job")):
        submitted = what.startswith("Submit")
        key = f"{kind}{'SubmitJobs' if submitted else 'Jobs'}{_SHORT[whom]}"
        cause = (
            f"The {whose} limits the number of jobs that are "
            f"{'submitted' if submitted else 'running'}{_WHOM[whom]}"
        )
        return Words(f"{cause} ({key}).", "Wait.", _AT_ONCE, Limit(of_qos, key, ""))
    if what.startswith("Wall"):
        if group:
            text = f"The {whose} has used the time of jobs that it may use (GrpWall)."
            return Words(text, _LIMIT_LOWER, _OVER_TIME, Limit(of_qos, "GrpWall", ""))
        text = f"The time limit of the job is longer than the {whose} allows (MaxWallPJ)."
        remedy = "Lower the time limit: scontrol update jobid=JOB timelimit="
        return Words(text, remedy, "", Limit(of_qos, "MaxWallPJ", ""))
    tres = _TRES[what]
    running = minutes.startswith("Run")
    middle = {"": "TRES", "Minutes": "TRESMins"}.get(minutes, "TRESRunMins")
    key = f"{kind}{middle}{'PJ' if least else _SHORT[whom]}"
    limit = Limit(of_qos, key, tres)
    what_of = _NAMES[tres]
    if least:
        return Words(
            f"The job requests fewer {what_of} than the {whose} requires ({key}).",
            "Request more.",
            "",
            limit,
        )
    measure = f"minutes times {what_of}" if minutes else what_of
    if group or whom in ("PerUser", "PerAccount"):
        text = (
            f"The {whose} limits the {measure}{_WHOM[whom]}, and the job would exceed the limit "
            f"({key})."
        )
        if running:
            text = (
                f"With this job, running jobs{_WHOM[whom]} might use more {measure} than the "
                f"{whose} allows ({key})."
            )
        return Words(text, _LIMIT_LOWER, _OVER_TIME if minutes == "Minutes" else _AT_ONCE, limit)
    return Words(
        f"The job requests more {measure}{_WHOM[whom]} than the {whose} allows ({key}).",
        _LIMIT_LOWER,
        "",
        limit,
    )
