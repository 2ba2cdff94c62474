"""What the exporter reads from Slurm: counts, loads and allocations, which the operator doesn't
need.

Separate from `sidecars.slurm.records`: these values change all the time, and the operator acts on
each change of a record. Times are seconds since the epoch, 0 for never. Memory is MiB. Text is ""
when unset.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sidecars.slurm.records import Node, Reservation


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """A node and its load."""

    node: Node
    effective_cpus: int = 0
    """CPUs that jobs can use."""
    idle_cpus: int = 0
    """CPUs that no job has, whether the node takes jobs or not."""
    effective_memory: int = 0
    """Memory that jobs can use."""
    free_memory: int | None = None
    """What the operating system has free; None if slurmd hasn't reported it."""
    load: float | None = None
    """Of the last minute; None if slurmd hasn't reported it."""


@dataclass(frozen=True, slots=True)
class NodeUsages:
    """All nodes."""

    nodes: tuple[NodeUsage, ...]
    last_update: int


@dataclass(frozen=True, slots=True)
class JobUsage:
    """A job, or the pending tasks of a job array."""

    job_id: int
    states: frozenset[str] = frozenset()
    reason: str = ""
    """Slurm's word for why it is pending or has failed."""
    released: bool = True
    """False for a held job: its priority is 0."""
    tasks: int = 1
    """How many tasks of an array the record stands for; at least that many if Slurm shortened the
    list.
    """
    name: str = ""
    partition: str = ""
    """Several names for a pending job that may run in any of them, separated by commas."""
    user: str = ""
    """The name, or the number of a user without one."""
    user_id: int = 0
    account: str = ""
    submit_time: int = 0
    eligible_time: int = 0
    start_time: int = 0
    cpus: int = 0
    node_count: int = 0
    memory: int = 0
    """Allocated memory."""
    gres: tuple[str, ...] = ()
    """The allocated GRES of each node."""


@dataclass(frozen=True, slots=True)
class JobUsages:
    """All jobs."""

    jobs: tuple[JobUsage, ...]
    last_update: int


@dataclass(frozen=True, slots=True)
class RpcCount:
    """Requests of one type or user. `microseconds` is the time to process all of them."""

    label: str
    count: int
    microseconds: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """slurmctld's statistics (`sdiag`)."""

    values: Mapping[str, int]
    """By the name of the field; `schedule_exit.licenses` for a nested one. Times are microseconds.
    """
    rpcs_by_type: tuple[RpcCount, ...] = ()
    rpcs_by_user: tuple[RpcCount, ...] = ()
    pending_rpcs: tuple[RpcCount, ...] = ()


@dataclass(frozen=True, slots=True)
class License:
    """A license."""

    name: str
    total: int = 0
    used: int = 0
    free: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class ReservationUsage:
    """A reservation and its size."""

    reservation: Reservation
    node_count: int = 0
    core_count: int = 0
