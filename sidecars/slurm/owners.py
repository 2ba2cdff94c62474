"""Whose a Slurm node's record and state are. The reason alone does not show it: a state can be set
without one.
"""

import json
import re

from sidecars.contract import bridge
from sidecars.contract.extra import PodFacts, are_names, pod_facts
from sidecars.contract.reasons import NOT_RESPONDING, REPLACEABLE, Owner, is_departure, owner
from sidecars.contract.reservations import names_of
from sidecars.slurm import states
from sidecars.slurm.records import Node

_SLURMCTLDS_USERS = frozenset({"", "slurm"})
"""Whom Slurm names as the user of a reason that slurmctld set itself: SlurmUser, or nobody."""
CHECKED_WITHIN = 300
"""Seconds after the start of slurmd in which a program such as a site's own health check has looked
at the node.
"""

_LESS = re.compile(
    r"(?:gres/.+ count reported lower than configured \(|Low "
    r"(?:RealMemory|TmpDisk|CPUs|socket\*core))"
)


def owner_of(node: Node) -> Owner:
    """Return the owner of the node's drain, DOWN, FAIL or reason.

    This product gives a reason with each state that it sets, and never sets FAIL. Words of
    slurmctld that another user set are that user's.
    """
    found = owner(node.reason)
    typed = found is Owner.SLURMCTLD and node.reason_set_by_user not in _SLURMCTLDS_USERS
    if "FAIL" in node.states or typed:
        return Owner.FOREIGN
    is_set = states.is_drain(node.states) or states.is_down(node.states)
    return Owner.FOREIGN if is_set and found is Owner.NOBODY else found


def reason_to_write(node: Node, reason: str) -> str | None:
    """Return the reason to give with a drain or a DOWN of this product, or None where the present
    one must stay.
    """
    return reason if owner_of(node) in REPLACEABLE else None


def belongs_to(node: Node, pod_uid: str) -> bool:
    """Return whether the record carries the uid of this pod."""
    facts = pod_facts(node.extra)
    return facts is not None and facts.pod_uid == pod_uid


def pod_of(node: Node) -> PodFacts | None:
    """Return the worker pod that the record names in its `Extra`, or in the comment that SchedMD's
    operator 1.2 writes.

    The comment has no uid of the pod: it is "". That of 1.0 and 1.1 has no uid of the NodeSet
    either, so a record with it is nobody's. None where no pod is named.
    """
    facts = pod_facts(node.extra)
    if facts is not None:
        return facts
    try:
        fields = json.loads(node.comment) if node.comment.startswith("{") else {}
    except (ValueError, RecursionError):
        return None
    named = [fields.get(name) for name in ("podName", "namespace", "nodeSetUID")]
    pod, namespace, nodeset_uid = (value if isinstance(value, str) else "" for value in named)
    known = pod and namespace and nodeset_uid and are_names(pod, namespace)
    return PodFacts("", pod, namespace, nodeset_uid) if known else None


def is_departing(node: Node) -> bool:
    """Return whether a pod sidecar has drained the node for its pod's end."""
    return states.is_drain(node.states) and is_departure(node.reason)


def must_be_drained(node: Node) -> bool:
    """Return whether a record that outlives its pod still has to be drained, because a later slurmd
    may return it to service.
    """
    return (
        owner_of(node) is Owner.FOREIGN
        and not states.is_drain(node.states)
        and not _has_been_the_bridges(node)
    )


def is_intended(node: Node) -> bool:
    """Return whether the node takes no jobs on purpose: an administrator, the operator or the end
    of its pod wants that.

    A user's drain or DOWN counts as the result of a check, and not as intended, if it follows
    slurmd's start at once.
    """
    found = owner_of(node)
    if found is Owner.FOREIGN:
        if "FAIL" in node.states:
            return True
        # Slurm lets nobody set DRAIN or DOWN without a reason.
        checked = 0 <= node.reason_changed_at - node.slurmd_start_time < CHECKED_WITHIN
        return bool(node.reason) and not checked
    return found is Owner.OPERATOR or (found is Owner.POD and is_departure(node.reason))


def why_retained(node: Node) -> str:
    """Return why a record without a pod must not be deleted, "" if it may be.

    A drain of slurmctld's because slurmd had less than the record doesn't count: it is the record
    that is wrong.
    """
    too_large = has_less_than_its_record(node) and "FAIL" not in node.states
    if owner_of(node) is Owner.FOREIGN and not (too_large or _has_been_the_bridges(node)):
        return (
            f"it has the reason {node.reason!r}, which is not ours"
            if node.reason
            else "its state is not ours"
        )
    claimed = ", ".join(names_of(node.reservation))
    return f"it is in reservation {claimed}" if claimed else ""


def _has_been_the_bridges(node: Node) -> bool:
    """Return whether the Slurm Bridge has ended its drain of a node that is DOWN. Such a node keeps
    its reason.
    """
    ended = states.is_down(node.states) and not states.is_drain(node.states)
    return ended and node.reason.startswith(bridge.DRAIN_PREFIX)


def own_words(reason: str) -> str:
    """Return the reason without what slurmctld appended to it when the node stopped responding
    (set_node_reason).
    """
    return reason.removesuffix(f" : {NOT_RESPONDING}")


def has_less_than_its_record(node: Node) -> bool:
    """Return whether the node's slurmd registered with less than the record shows. slurmctld drains
    such a node.
    """
    by_slurmctld = node.reason_set_by_user in _SLURMCTLDS_USERS
    return "INVALID_REG" in node.states and by_slurmctld and _LESS.match(node.reason) is not None


def is_free(node: Node) -> bool:
    """Return whether nobody has drained the node, set it DOWN or given it a reason, besides this
    product an earlier one.

    Powering a node down ends a drain of the operator, of a worker pod or, because of its worker, of
    slurmctld, and keeps the reason.
    """
    unavailable = states.is_drain(node.states) or states.is_down(node.states)
    ours = owner_of(node) in REPLACEABLE or has_less_than_its_record(node)
    return ours and not unavailable
