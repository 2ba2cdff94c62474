"""What Slurm knows of a worker, shown on its pod: conditions, the label that protects it, and its
deadline.

Pure. The words are those that tools for Slinky's slurm-operator look for: condition types
`SlurmNodeState…` with status True and the node's reason as message, the label `pod-protect`, the
annotation `pod-deadline`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sidecars.contract.reasons import is_for_deletion
from sidecars.contract.text import printable
from sidecars.policy.reasons import SlurmNodeState
from sidecars.slurm import states
from sidecars.slurm.records import Job, Node

CONDITION_PREFIX = "SlurmNodeState"

SHOWN = {state.name: state.value for state in SlurmNodeState}
"""States of a Slurm node that are shown, and the end of their condition's type."""

DELETION_SECONDS = 5.0
"""How soon after its node was drained for its deletion a pod without a job is deleted at the
latest, normally.
"""

ENDLESS_MINUTES = 365 * 24 * 60
"""The time limit with which the backfill scheduler starts a job that has none (slurmctld,
sched/backfill/backfill.c); the main scheduler sets none, so of two such jobs one may seem to end.
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a pod shows, or is to show. `conditions`: message by type; `deadline`: as
    `deadline_text`, None for none.
    """

    conditions: Mapping[str, str]
    protect: bool
    deadline: str | None


IDLE = Shown({CONDITION_PREFIX + SHOWN["IDLE"]: ""}, protect=False, deadline=None)
"""A worker that could have a job and has none."""


def shown(node: Node | None, *, protection: bool, deadline: float | None) -> Shown:
    """Return what the pod of this node record is to show. None: Slurm, which answers, has no such
    node.

    `deadline`: see `deadlines`. It is shown while the node drains and is busy. `protection`:
    whether busy pods are protected from eviction.
    """
    if node is None:
        return Shown({}, protect=False, deadline=None)
    draining = states.is_draining(node.states)
    return Shown(
        {
            CONDITION_PREFIX + SHOWN[word]: printable(node.reason)
            for word in sorted(node.states & SHOWN.keys())
        },
        protect=protection and states.is_busy(node.states),
        deadline=deadline_text(deadline) if draining and deadline is not None else None,
    )


def until_shown(node: Node | None, now: float) -> float:
    """Return the seconds for which nothing is written to the pod of this node record: its deletion
    is due, and a write delays it.

    That is so for a moment after a node without a job was drained for it. `now` is seconds since
    the epoch.
    """
    if node is None or not states.is_drained(node.states) or not is_for_deletion(node.reason):
        return 0.0
    age = now - node.reason_changed_at
    return DELETION_SECONDS - age if 0 <= age < DELETION_SECONDS else 0.0


def deadlines(jobs: Iterable[Job]) -> dict[str, float]:
    """Return when the last running job of each node ends at the latest, in seconds since the epoch.

    A job without a time limit (see `ENDLESS_MINUTES`), and a suspended one, whose clock stands
    still, never ends here: infinity. Raises Malformed for a job whose nodes can't be read.
    """
    ends: dict[str, float] = {}
    for job in jobs:
        if not job.nodes or job.states.isdisjoint({"RUNNING", "SUSPENDED"}):
            continue
        limit = (
            math.inf
            if job.time_limit is None or job.time_limit >= ENDLESS_MINUTES
            else job.time_limit
        )
        end = math.inf if "SUSPENDED" in job.states else job.start_time + 60.0 * limit
        for node in job.node_names():
            ends[node] = max(end, ends.get(node, end))
    return ends


def deadline_text(deadline: float) -> str:
    """Write a deadline as RFC 3339, in UTC and whole seconds. What lies beyond the year 9999 is its
    end.
    """
    try:
        moment = datetime.fromtimestamp(deadline, UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.max.replace(tzinfo=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
