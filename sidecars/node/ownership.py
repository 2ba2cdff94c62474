"""Whose a node record and its drain are."""

from sidecars.contract import extra
from sidecars.contract.reasons import Owner, is_departure
from sidecars.slurm import states
from sidecars.slurm.owners import owner_of
from sidecars.slurm.records import Node


def is_own(node: Node, pod_uid: str) -> bool:
    """Whether the record carries the uid of this pod."""
    facts = extra.pod_facts(node.extra)
    return facts is not None and facts.pod_uid == pod_uid


def is_own_drain(node: Node) -> bool:
    """Whether a pod sidecar has drained the node for its pod's end."""
    return states.is_drain(node.states) and is_departure(node.reason)


def must_be_drained(node: Node) -> bool:
    """Whether a record that outlives its pod still has to be drained: a later slurmd may return it to service."""
    return owner_of(node) is Owner.FOREIGN and not states.is_drain(node.states)


def why_retained(node: Node) -> str:
    """Why the record must not be deleted; "" if it may be."""
    if owner_of(node) is Owner.FOREIGN:
        return f"it has the reason {node.reason!r}, which is not ours" if node.reason else "its state is not ours"
    if node.reservation:
        return f"it is in reservation {node.reservation}"
    return ""
