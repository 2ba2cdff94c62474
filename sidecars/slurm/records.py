"""What Slurm's REST answers are decoded to: frozen values with just the fields that this product reads.

Times are seconds since the epoch, 0 for never. Memory is MiB. Text is "" when unset. Nothing here speaks HTTP or JSON.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A node record of slurmctld. `states` holds the base state and the flags, see `sidecars.slurm.states`."""

    name: str
    states: frozenset[str] = frozenset()
    reason: str = ""
    reason_changed_at: int = 0
    reason_set_by_user: str = ""
    comment: str = ""
    extra: str = ""
    instance_id: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    topology: str = ""
    reservation: str = ""
    address: str = ""
    hostname: str = ""
    port: int = 0
    gres: str = ""
    gres_used: str = ""
    cpus: int = 0
    alloc_cpus: int = 0
    real_memory: int = 0
    alloc_memory: int = 0
    boot_time: int = 0
    slurmd_start_time: int = 0
    last_busy: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Nodes:
    """A list of nodes, and the server's time of it: from one second before that on, ask for changes."""

    nodes: tuple[Node, ...]
    last_update: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job record. `nodes` is a hostlist, "" before the job starts; `time_limit` is minutes, None for no limit."""

    job_id: int
    states: frozenset[str] = frozenset()
    name: str = ""
    partition: str = ""
    user_name: str = ""
    nodes: str = ""
    submit_time: int = 0
    start_time: int = 0
    end_time: int = 0
    time_limit: int | None = None
    cpus: int = 0
    node_count: int = 0


@dataclass(frozen=True, slots=True)
class Jobs:
    """A list of jobs, and the server's time of it."""

    jobs: tuple[Job, ...]
    last_update: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. `node_list` is a hostlist; `node_sets` is what the configuration says instead, and may be "ALL"."""

    name: str
    states: frozenset[str] = frozenset()
    node_list: str = ""
    node_sets: str = ""
    total_nodes: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation; `node_list` is a hostlist."""

    name: str
    node_list: str = ""
    flags: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str = ""
    start_time: int = 0
    end_time: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    """One slurmctld of the configuration, in order of SlurmctldHost, as slurmrestd reached it.

    `status` says why it doesn't respond (v0.0.45 and later); a refused token shows only there.
    """

    hostname: str
    responding: bool
    primary: bool
    status: str = ""


@dataclass(frozen=True, slots=True)
class Diag:
    """Counters of slurmctld (sdiag); a cycle is in microseconds."""

    request_time: int = 0
    server_thread_count: int = 0
    agent_queue_size: int = 0
    jobs_submitted: int = 0
    jobs_started: int = 0
    jobs_completed: int = 0
    jobs_pending: int = 0
    jobs_running: int = 0
    schedule_cycle_last: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """An account of slurmdbd."""

    name: str
    description: str = ""
    organization: str = ""


@dataclass(frozen=True, slots=True)
class User:
    """A user of slurmdbd. `admin_levels` is e.g. {"None"}, {"Operator"} or {"Administrator"}."""

    name: str
    admin_levels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Association:
    """What an account (`user` is ""), or a user in an account, has on a cluster.

    `shares` is its fair share, `max_jobs` how many of its jobs may run at once, None for no limit; `qos` are the names
    that it may use. `is_default` is the user's default account.
    """

    account: str
    cluster: str
    user: str = ""
    partition: str = ""
    parent_account: str = ""
    is_default: bool = False
    shares: int = 0
    max_jobs: int | None = None
    qos: tuple[str, ...] = ()
    default_qos: str = ""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service of slurmdbd."""

    name: str
    description: str = ""
    priority: int = 0
    flags: frozenset[str] = frozenset()
