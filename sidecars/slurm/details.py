"""What `explain` reads of Slurm beside the planner's records: one job with its account, and the
limits of partitions.

Times are seconds since the epoch, 0 for never. Text is "" when unset.
"""

from dataclasses import dataclass

from sidecars.slurm.records import Partition, QueuedJob


@dataclass(frozen=True, slots=True)
class JobDetail(QueuedJob):
    """A job, or the pending tasks of a job array."""

    reason: str = ""
    """Slurm's word for why it is pending or has failed."""
    description: str = ""
    """What Slurm adds to the reason, e.g. the nodes that are not available."""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    licenses: str = ""
    last_evaluated: int = 0
    """When the scheduler last tried to start it."""
    exit_code: int = 0
    exit_signal: int = 0
    """The number after the colon of Slurm's exit code. 53 is none of the system's signals: slurmd
    could not set up the job's files.
    """
    output: str = ""
    """Its StdOut."""
    working_directory: str = ""
    restarts: int = 0
    array_task: int | None = None
    """Its index in the array; None for the record of tasks that wait together."""
    guard: bool = False
    """Whether it is a guard of the Slurm Bridge, whose Epilog waits for pods. While it is pending,
    it may be a job of a user that has the output of a guard.
    """
    comment: str = ""
    """Of a guard, that which its user can't change, if it has one; "" for any other job."""


@dataclass(frozen=True, slots=True)
class PartitionDetail(Partition):
    """A partition with the limits that keep jobs from starting."""

    max_minutes: int | None = None
    """MaxTime; None for no limit."""
    allow_accounts: tuple[str, ...] = ()
    """() for all."""
    deny_accounts: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] = ()
    """Of the operating system; () for all."""
    allow_qos: tuple[str, ...] = ()
    """() for all."""
    deny_qos: tuple[str, ...] = ()
    qos: str = ""
    """The QOS with limits for all jobs of the partition."""
    grace_time: int = 0
    """Seconds."""
    suspend_time: int | None = None
    """Seconds; None for that of the whole cluster."""
    preempt_modes: frozenset[str] = frozenset()
    """PreemptMode, as `SUSPEND`; CLUSTER_GLOBAL or none for that of the whole cluster."""
