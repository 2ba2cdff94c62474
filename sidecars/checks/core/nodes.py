"""Which nodes a check may test, what becomes of one that it has tested, and when a check gives way
to a user's job.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from sidecars.contract.reasons import CHECK_PREFIX, MAX_LENGTH
from sidecars.contract.text import printable
from sidecars.policy.checks.declared import Check, Strategy
from sidecars.policy.checks.results import BAD, Kind, Verdict
from sidecars.slurm import gres, states
from sidecars.slurm.checks import WaitingJob
from sidecars.slurm.gres import GresError
from sidecars.slurm.records import Node, Partition

_UNFIT = frozenset(
    {
        "EXTERNAL",
        "NOT_RESPONDING",
        "INVALID",
        "INVALID_REG",
        "MAINTENANCE",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
    }
)
_WAITS_FOR_OTHERS = frozenset(
    {
        *(
            "BadConstraints",
            "BeginTime",
            "Constraints",
            "Deadline",
            "Dependency",
            "DependencyNeverSatisfied",
        ),
        *(
            "InvalidAccount",
            "InvalidQOS",
            "JobArrayTaskLimit",
            "JobHeldAdmin",
            "JobHeldUser",
            "JobHoldMaxRequeue",
        ),
        *(
            "Licenses",
            "PartitionDown",
            "PartitionInactive",
            "PartitionNodeLimit",
            "PartitionTimeLimit",
            "Prolog",
        ),
        *("Reservation", "ReservationDeleted", "NodeDown"),
    }
)
"""Reasons of pending jobs that no idle node ends. Any other one, and an unknown one, gets the
nodes.
"""
_CLOSED = frozenset({"DOWN", "DRAIN", "INACTIVE"})
"""States of a partition in which no new job starts."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What to write to a node. None: nothing."""

    drain: str | None = None
    """The reason."""
    undrain: bool = False
    comment: str | None = None


def prefix(check: str) -> str:
    """Return the beginning of the reasons of a check."""
    return f"{CHECK_PREFIX}{check}: "


def is_own(check: str, node: Node) -> bool:
    """Return whether the node's drain is the check's own."""
    return states.is_drain(node.states) and node.reason.startswith(prefix(check))


def belongs(check: Check, node: Node) -> bool:
    """Return whether the check tests nodes of this kind."""
    if check.partition and check.partition not in node.partitions:
        return False
    if not check.features <= set(node.active_features or node.features):
        return False
    return (
        node.partitions != ()
        and "EXTERNAL" not in node.states
        and (not check.gpus or has_gpus(node))
    )


def has_gpus(node: Node) -> bool:
    """Return whether the node has GPUs. Unreadable GRES count as none."""
    try:
        return any(it.name == "gpu" and it.count for it in gres.parse(node.gres))
    except GresError:
        return False


def is_idle(node: Node) -> bool:
    """Return whether a job can begin on the node now, and none is on it or planned for it."""
    words = node.states
    return (
        states.is_unused(words)
        and not states.is_drain(words)
        and not words & _UNFIT
        and not node.reservation
    )


def is_kept_idle(node: Node) -> bool:
    """Return whether a job can begin on the node now if it ends before Slurm begins those for which
    it keeps the node (PLANNED).
    """
    return is_idle(replace(node, states=node.states - {"PLANNED"}))


def is_retestable(check: Check, node: Node) -> bool:
    """Return whether the check may lift its own drain for a test, because it is the only cause, and
    nothing is on the node. A check that only reports would not drain a node that fails again.
    """
    words = node.states
    return (
        check.drain
        and check.undrain
        and is_own(check.name, node)
        and states.is_drained(words)
        and not states.is_down(words)
        and not words & _UNFIT
        and "FAIL" not in words
    )


def usable(check: Check, partitions: Iterable[Partition]) -> frozenset[str]:
    """Return the names of the partitions in which a job of the check can start."""
    size = 2 if check.strategy is Strategy.PAIRS else 1
    found = (
        it
        for it in partitions
        if not it.states & _CLOSED and (it.max_nodes is None or it.max_nodes >= size)
    )
    return frozenset(it.name for it in found if check.partition in ("", it.name))


def partition_of(partitions: Collection[str], nodes: Iterable[Node]) -> str | None:
    """Return the first of these partitions that has all nodes, in the order of the first node, or
    None without one.
    """
    first, *others = [node.partitions for node in nodes]
    return next(
        (it for it in first if it in partitions and all(it in other for other in others)), None
    )


def may_comment(check: Check, node: Node) -> bool:
    """Return whether the check writes to the node's comment, because it is empty, or a check's.

    Others keep data there: SchedMD's operator names the pod of the node in it
    (`sidecars.slurm.owners.pod_of`).
    """
    return check.comment and (not node.comment.strip() or node.comment.startswith(CHECK_PREFIX))


def reaction(check: Check, node: Node | None, verdict: Verdict) -> Reaction:
    """Return what to write to a node as it is now. None is a node without a record. A drain, or a
    DOWN, of another owner is never changed, nor is the comment of one.
    """
    if node is None:
        return Reaction()
    text = f"{prefix(check.name)}{verdict.kind}" + (f": {verdict.text}" if verdict.text else "")
    comment = (
        printable(text)[:MAX_LENGTH]
        if may_comment(check, node) and verdict.kind is not Kind.INTERRUPTED
        else None
    )
    own = is_own(check.name, node)
    if verdict.kind in BAD and check.drain:
        foreign = (states.is_drain(node.states) or states.is_down(node.states)) and not own
        reason = (
            None
            if foreign
            else printable(prefix(check.name) + (verdict.text or str(verdict.kind)))[:MAX_LENGTH]
        )
        return Reaction(drain=None if own and reason == node.reason else reason, comment=comment)
    return Reaction(undrain=verdict.kind is Kind.PASSED and own and check.undrain, comment=comment)


def wants_nodes(job: WaitingJob) -> bool:
    """Return whether a pending job may wait for nodes."""
    reason = job.reason
    return (
        job.waits
        and not job.blocked
        and reason not in _WAITS_FOR_OTHERS
        and not reason.startswith(("Assoc", "QOS", "Max"))
    )


def contested(jobs: Iterable[WaitingJob]) -> frozenset[str]:
    """Return the partitions in which users' jobs wait for nodes."""
    return frozenset(it for job in jobs if wants_nodes(job) for it in job.partitions)


def is_contested(node: Node, partitions: Collection[str]) -> bool:
    """Return whether a user's job may wait for this node."""
    return not set(partitions).isdisjoint(node.partitions)
