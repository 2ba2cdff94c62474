"""The reservation by which the operator closes powered-down nodes of a NodeSet: no job gets one.

It ignores the jobs that have the nodes, and Slurm ends it in time. It reserves nothing for anyone,
so it counts neither as a user's claim on a node, nor as what keeps a record.
"""

from typing import Final

CLOSED_PREFIX: Final = "SlurmOperatorClosed-"
"""Begins its name, which ends with the NodeSet's name in Slurm."""


def closed_name(slurm_name: str) -> str:
    """Return the reservation of the NodeSet with this name in Slurm."""
    return f"{CLOSED_PREFIX}{slurm_name}"


def is_closing(name: str) -> bool:
    """Return whether a reservation of this name closes nodes."""
    return name.startswith(CLOSED_PREFIX)


def names_of(shown: str) -> tuple[str, ...]:
    """Return the reservations of a node, as its record shows them, without those that close it."""
    return tuple(it for it in shown.split(",") if it and not is_closing(it))
