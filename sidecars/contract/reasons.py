"""The reason of a Slurm node, and who owns it: the one whose drain or DOWN the reason explains.

Slurm stores one reason per node, whoever sets it. Each owner lifts only its own drains and overwrites no foreign
reason. A prefix marks the reasons of this product.
"""

from enum import Enum

OPERATOR_PREFIX = "slurm-operator: "
"""Begins the reasons that the operator sets."""

POD_PREFIX = "slurm-node: "
"""Begins the reasons that a worker pod sets: its `register` and `node` containers and its health checks."""

HEALTH_PREFIX = POD_PREFIX + "health: "
"""Begins the reasons of Slurm's HealthCheckProgram (charts/slurm-operator/workloads/health-run.sh)."""

POD_LEAVING = POD_PREFIX + "the pod is leaving"
"""`node` drains the Slurm node with it when slurmd is about to be stopped."""

POD_GONE = POD_PREFIX + "the pod has gone"
"""`node` sets the Slurm node DOWN with it when slurmd has stopped and the node record can't be deleted yet."""

RECORD_ORPHANED = OPERATOR_PREFIX + "its pod is gone"
"""The operator sets a Slurm node DOWN with it when no pod is left that belongs to the node record."""

NOT_RESPONDING = "Not responding"
"""slurmctld sets it on a node whose slurmd is silent (slurmctld/ping_nodes.c)."""

UNEXPECTEDLY_REBOOTED = "Node unexpectedly rebooted"
"""slurmctld sets it on a node that registers with a later boot time (slurmctld/node_mgr.c)."""

MAX_LENGTH = 200
"""Characters of a reason that a worker pod registers with. Longer ones are cut off."""

_SLURMCTLD = frozenset({NOT_RESPONDING, UNEXPECTEDLY_REBOOTED})
"""The whole text: a text that merely begins with it was typed by a user. `sidecars.slurm.owners` knows
who set it."""


class Owner(Enum):
    """Whose a reason is."""

    NOBODY = "nobody"
    """The node has no reason."""

    OPERATOR = "operator"
    """The operator's."""

    POD = "pod"
    """A worker pod's: this one or an earlier one of the same node."""

    SLURMCTLD = "slurmctld"
    """slurmctld's own, about a node that does not respond. Nobody has to repair anything."""

    FOREIGN = "foreign"
    """An administrator's or another program's. Neither overwritten nor lifted, and its node record is not deleted."""


OURS = frozenset({Owner.OPERATOR, Owner.POD})
"""The owners that are part of this product."""

REPLACEABLE = OURS | {Owner.NOBODY}
"""The owners whose reasons this product may overwrite. Slurm itself returns a node that it set DOWN only if its own
words are still there (ReturnToService=1)."""


def owner(reason: str) -> Owner:
    """Whose the reason is. All decisions about reasons start here."""
    if not reason:
        return Owner.NOBODY
    if reason.startswith(OPERATOR_PREFIX):
        return Owner.OPERATOR
    if reason.startswith(POD_PREFIX):
        return Owner.POD
    return Owner.SLURMCTLD if reason in _SLURMCTLD else Owner.FOREIGN


def is_foreign(reason: str) -> bool:
    """Whether an administrator or another program set the reason."""
    return owner(reason) is Owner.FOREIGN


def is_health_check(reason: str) -> bool:
    """Whether a health check of the worker pod set the reason: the cause is the Kubernetes node, not the pod."""
    return reason.startswith(HEALTH_PREFIX)


def is_departure(reason: str) -> bool:
    """Whether `node` set the reason because its pod was stopped. slurmctld may have appended its own words."""
    return reason.startswith((POD_LEAVING, POD_GONE))


def of_operator(text: str) -> str:
    """A reason of the operator's."""
    return OPERATOR_PREFIX + text


def of_pod(text: str) -> str:
    """A reason that a worker pod registers with, "" for no text."""
    return (POD_PREFIX + text)[:MAX_LENGTH] if text else ""
