"""Who owns the state of a Slurm node. The reason alone does not show it: a state can be set without one."""

from sidecars.contract.reasons import NOT_RESPONDING, REPLACEABLE, Owner, owner
from sidecars.slurm import states
from sidecars.slurm.records import Node

_SLURMCTLDS_USERS = frozenset({"", "slurm"})
"""Whom Slurm names as the user of a reason that slurmctld set itself: SlurmUser, or nobody."""


def owner_of(node: Node) -> Owner:
    """Whose the node's drain, DOWN, FAIL or reason is.

    This product gives a reason with each state that it sets, and never sets FAIL. Words of slurmctld that another user
    set are that user's.
    """
    found = owner(node.reason)
    typed = found is Owner.SLURMCTLD and node.reason_set_by_user not in _SLURMCTLDS_USERS
    if "FAIL" in node.states or typed:
        return Owner.FOREIGN
    is_set = states.is_drain(node.states) or states.is_down(node.states)
    return Owner.FOREIGN if is_set and found is Owner.NOBODY else found


def reason_to_write(node: Node, reason: str) -> str | None:
    """The reason to give with a drain or a DOWN of this product; None where the present one must stay."""
    return reason if owner_of(node) in REPLACEABLE else None


def own_words(reason: str) -> str:
    """The reason without what slurmctld appended to it when the node stopped responding (set_node_reason)."""
    return reason.removesuffix(f" : {NOT_RESPONDING}")
