"""The states of a Slurm node: the words, and what they mean for work on the node.

A node has one base state and any number of flags (slurm.h NODE_STATE_*, the REST schema's
`node.state`). Words are upper case as the REST API spells them. Words that a newer Slurm adds are
kept and change no answer here.

| word | kind | means |
|---|---|---|
| IDLE | base | no job |
| ALLOCATED, MIXED | base | all, some of it is allocated to jobs: busy |
| DOWN, ERROR | base | can't be used |
| FUTURE, UNKNOWN | base | not defined yet; not known to slurmctld yet |
| COMPLETING | flag | a job's processes or epilog still run: busy |
| DRAIN | flag | takes no new job |
| FAIL | flag | takes no new job: an administrator expects the node to fail |
| UNDRAIN | flag | its DRAIN is being lifted |
| CLOUD | flag | Slurm's power saving decides whether the node runs |
| POWERED_DOWN, POWERING_DOWN | flag | it is off, is being stopped: no job starts |
| POWERING_UP | flag | it is being started; its jobs wait for a slurmd that is started for it |
| NOT_RESPONDING, INVALID, INVALID_REG, MAINTENANCE, … | flag | no effect on busy and drain |

| base, flags | busy | drain | drained | draining |
|---|---|---|---|---|
| IDLE | no | no | no | no |
| IDLE+DRAIN, DOWN+DRAIN, IDLE+FAIL | no | yes | yes | no |
| MIXED+DRAIN, ALLOCATED+DRAIN, IDLE+DRAIN+COMPLETING, MIXED+FAIL | yes | yes | no | yes |
| IDLE+DRAIN+UNDRAIN | no | no | no | no |
| UNKNOWN+DRAIN, no base state | no | yes | no | no |
"""

from collections.abc import Set as AbstractSet

BASE_STATES = frozenset({"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN"})

_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_NOT_KNOWN = frozenset({"UNKNOWN", "FUTURE"})
_WANTED = frozenset(
    {
        "COMPLETING",
        "MAINTENANCE",
        "PLANNED",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "RESERVED",
    }
)


def base_state(states: AbstractSet[str]) -> str | None:
    """Return the base state among the words, or None without one (an answer to distrust)."""
    found = states & BASE_STATES
    return min(found) if found else None


def is_busy(states: AbstractSet[str]) -> bool:
    """Return whether a job, or a process or epilog of one, is on the node."""
    return not _BUSY.isdisjoint(states)


def is_drain(states: AbstractSet[str]) -> bool:
    """Return whether the node takes no new jobs because of FAIL, or of a drain that is not being
    lifted.
    """
    return "FAIL" in states or ("DRAIN" in states and "UNDRAIN" not in states)


def is_drained(states: AbstractSet[str]) -> bool:
    """Return whether the node is drained and provably without work. A node with an unknown base
    state is not.
    """
    base = base_state(states)
    return is_drain(states) and not is_busy(states) and base is not None and base not in _NOT_KNOWN


def is_draining(states: AbstractSet[str]) -> bool:
    """Return whether the node is in drain and work is still on it."""
    return is_drain(states) and is_busy(states)


def is_powered_down(states: AbstractSet[str]) -> bool:
    """Return whether power saving has stopped the node or is stopping it."""
    return not states.isdisjoint({"POWERED_DOWN", "POWERING_DOWN"}) and "POWERING_UP" not in states


def is_powering_up(states: AbstractSet[str]) -> bool:
    """Return whether the node is being started. Its jobs have not begun: they wait for slurmd's
    first registration.
    """
    return "POWERING_UP" in states


def is_awaited(states: AbstractSet[str]) -> bool:
    """Return whether power saving is starting the node for a job, which Slurm ends or queues again
    if the node is lost.
    """
    return is_powering_up(states) and "CLOUD" in states and is_busy(states)


def is_under_power_saving(states: AbstractSet[str]) -> bool:
    """Return whether the record of a node without a slurmd has to stay, because power saving has
    stopped the node, or is starting it.
    """
    return "CLOUD" in states and (is_powered_down(states) or is_powering_up(states))


def is_vacant(states: AbstractSet[str]) -> bool:
    """Return whether the node is provably without work and no job can begin on it, because it is
    drained, or powered down.
    """
    if is_drained(states):
        return True
    return (
        is_powered_down(states) and not is_busy(states) and not states.isdisjoint({"IDLE", "DOWN"})
    )


def is_unused(states: AbstractSet[str]) -> bool:
    """Return whether the node is up, without work, and neither planned for a job nor reserved."""
    return states & (BASE_STATES | _WANTED) == {"IDLE"}


def is_down(states: AbstractSet[str]) -> bool:
    """Return whether the base state is one that can't run jobs (DOWN, ERROR)."""
    return not states.isdisjoint({"DOWN", "ERROR"})
