"""Decoded answers of Slurm's REST API: frozen values with just the fields that this product reads.

Times are seconds since the epoch, 0 for never. Memory is MiB. Text is "" when unset. No HTTP and no
JSON here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sidecars.slurm.errors import Malformed
from sidecars.slurm.hostlists import HostlistError, expand, nodes_in, units_in
from sidecars.slurm.versions import Release


@dataclass(frozen=True, slots=True)
class Node:
    """A node record of slurmctld."""

    name: str
    states: frozenset[str] = frozenset()
    """The base state and the flags, see `sidecars.slurm.states`."""
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
    sockets: int = 0
    cores: int = 0
    """Of each socket."""
    threads: int = 0
    """Of each core."""
    alloc_cpus: int = 0
    real_memory: int = 0
    specialized_memory: int = 0
    """Of `real_memory`, for the system (MemSpecLimit)."""
    owner: str = ""
    """The user whose jobs alone may be on it, because one of them excludes others; "" for none."""
    specialized_cores: int = 0
    """Cores for the system (CoreSpecCount)."""
    alloc_memory: int = 0
    temporary_disk: int = 0
    weight: int = 1
    suspend_time: int | None = None
    """Seconds after which power saving stops the idle node; None: never, or of REST API v0.0.44 and
    older.
    """
    boot_time: int = 0
    slurmd_start_time: int = 0
    last_busy: int = 0
    version: str = ""

    @property
    def effective_cpus(self) -> int:
        """CPUs that jobs can use (CPUEfctv)."""
        return max(0, self.cpus - self.specialized_cores * max(1, self.threads))

    @property
    def effective_memory(self) -> int:
        """Memory that jobs can use."""
        return max(0, self.real_memory - self.specialized_memory)


@dataclass(frozen=True, slots=True)
class Nodes:
    """A list of nodes."""

    nodes: tuple[Node, ...]
    last_update: int
    """The server's time of the list. Ask for changes since then."""
    release: Release | None = None
    """The release that the server reports; None if it can't be read."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a pending job requests. Jobs with the same request share one object, see
    `protocol.jobs`.

    Numbers are 0 and texts "" where the job requests nothing.
    """

    partitions: tuple[str, ...] = ()
    """In the order in which Slurm tries those of one priority tier."""
    min_nodes: int = 1
    max_nodes: int = 0
    tasks: int = 1
    cpus: int = 1
    """Of the whole job, at least."""
    cpus_per_task: int = 0
    tasks_per_node: int = 0
    tasks_per_core: int = 0
    tasks_per_socket: int = 0
    threads_per_core: int = 0
    sockets_per_node: int = 0
    cores_per_socket: int = 0
    min_cpus_per_node: int = 0
    memory_per_cpu: int | None = None
    """None: the job requests memory per node."""
    memory_per_node: int = 0
    """0: all memory of each node, where Slurm allocates memory."""
    tmp_disk: int = 0
    tres_per_node: str = ""
    """As Slurm reports it: `gres/gpu:h100:2,gres/license…`. The next four have the same form."""
    tres_per_job: str = ""
    tres_per_socket: str = ""
    tres_per_task: str = ""
    cpus_per_tres: str = ""
    memory_per_tres: str = ""
    features: str = ""
    """The expression of `--constraint`."""
    shared: frozenset[str] = frozenset()
    """`none` for an exclusive job, `user`, `mcs`, `topo`, `oversubscribe`. See
    `QueuedJobs.exclusive_known`.
    """
    contiguous: bool = False
    required_nodes: str = ""
    excluded_nodes: str = ""
    """Both are hostlists, maybe with hostlist functions such as `feature{gpu}`."""
    specialized: bool = False
    """Whether it reserves cores or threads of each node for the system (`--core-spec`,
    `--thread-spec`).
    """
    segment_size: int = 0
    constraints: str = ""
    """On the node's Extra (`--extra`)."""
    licenses: str = ""
    reservation: str = ""
    external: bool = False
    """An external job, which needs no slurmd."""
    max_nodes_implied: bool = False
    """Whether Slurm derived `max_nodes` from the tasks."""
    fewest_nodes: bool = False
    """Whether it wants as few of its nodes as possible (`--use-min-nodes`)."""
    most_nodes: bool = False
    """Whether it wants as many nodes as it has tasks (`--spread-job`)."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Why a pending job waits, and when it may start."""

    request: JobRequest
    reason: str = ""
    """Slurm's word, e.g. `Priority` (slurm.h, enum job_state_reason)."""
    priority: int = 0
    """0 for a held job."""
    eligible_time: int = 0
    dependency: str = ""
    array_tasks: str = ""
    """The indexes of an array's pending tasks (`1-9:2,20`), without the limit of running ones; ""
    for no array.

    It ends with `...` where slurmrestd cut it off.
    """
    array_max_running: int = 0
    """How many tasks of the array may run at the same time; 0 for no limit."""
    account: str = ""
    qos: str = ""
    het_job_id: int = 0
    """The leader of a heterogeneous job; 0 for none."""
    het_job_ids: str = ""
    """The ids of all its components: `5-7`."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job record."""

    job_id: int
    states: frozenset[str] = frozenset()
    name: str = ""
    partition: str = ""
    user_name: str = ""
    nodes: str = ""
    """A hostlist; "" before the job starts."""
    scheduled_nodes: str = ""
    """A hostlist: the nodes that the backfill scheduler plans for the pending job, for its
    `start_time`.
    """
    required_nodes: str = ""
    """The nodes that the job names (`--nodelist`), also while it runs: a hostlist as the user has
    written it, maybe with hostlist functions, see `hostlists.nodes_in`.
    """
    submit_time: int = 0
    start_time: int = 0
    end_time: int = 0
    time_limit: int | None = None
    """Minutes; None for no limit."""
    cpus: int = 0
    node_count: int = 0

    def node_names(self) -> list[str]:
        """Return the names in `nodes`. Raises Malformed if it is no hostlist."""
        return _names(self.nodes, "GET jobs/", f"nodes of job {self.job_id}")

    def planned_names(self) -> list[str]:
        """Return the names in `scheduled_nodes`. Raises Malformed if it is no hostlist."""
        return _names(self.scheduled_nodes, "GET jobs/", f"scheduled_nodes of job {self.job_id}")

    def required_names(self) -> list[str]:
        """Return the nodes in `required_nodes`, also those of hostlist functions. Raises Malformed
        if it is no hostlist.
        """
        return self._required(nodes_in)

    def required_units(self) -> list[str]:
        """Return the switches and blocks in `required_nodes`. Raises Malformed if it is no
        hostlist.
        """
        return self._required(units_in)

    def _required(self, read: Callable[[str], list[str]]) -> list[str]:
        field = f"required_nodes of job {self.job_id}"
        return _names(self.required_nodes, "GET jobs/", field, read)


@dataclass(frozen=True, slots=True)
class QueuedJob(Job):
    """A job record with what the job waits for."""

    array_job_id: int = 0
    """The array that the job is a task of; 0 for none."""
    pending: Pending | None = None
    """None unless it is pending."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """A list of jobs."""

    jobs: tuple[Job, ...]
    last_update: int
    """The server's time of the list."""


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """The same with what they wait for."""

    jobs: tuple[QueuedJob, ...]
    last_update: int
    """The server's time of the list."""
    exclusive_known: bool = True
    """Whether `shared` of the jobs is what Slurm has, and not just empty."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition."""

    name: str
    states: frozenset[str] = frozenset()
    node_list: str = ""
    """A hostlist."""
    node_sets: str = ""
    """Names of Slurm's node sets, or "ALL", where the configuration has them instead of names of
    nodes.
    """
    total_nodes: int = 0
    tier: int = 1
    """PriorityTier: jobs of a partition with a higher one are scheduled first."""
    max_nodes: int | None = None
    """MaxNodes: the most nodes of a job; None without a limit."""
    max_cpus_per_node: int | None = None
    """MaxCPUsPerNode: the most CPUs of a node that its jobs have together; None without a limit."""
    min_nodes: int = 0
    """MinNodes: the fewest nodes of a job."""
    exclusive: str = ""
    """`NODE` if each job gets whole nodes, `USER` if no two users share a node, "" otherwise, and
    for API versions that don't report it.
    """
    oversubscribe: str = ""
    """`FORCE` if jobs share their cores, `YES` if those do that ask for it, "" if none do."""

    @property
    def starts_jobs(self) -> bool:
        """Whether Slurm starts jobs in it: it is not DOWN or INACTIVE."""
        return self.states.isdisjoint({"DOWN", "INACTIVE"})


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation."""

    name: str
    node_list: str = ""
    """A hostlist."""
    flags: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partition: str = ""
    start_time: int = 0
    end_time: int = 0

    def node_names(self) -> list[str]:
        """Return the names in `node_list`. Raises Malformed if it is no hostlist."""
        return _names(self.node_list, "GET reservations/", f"node_list of {self.name}")


@dataclass(frozen=True, slots=True)
class Ping:
    """One slurmctld of the configuration, in order of SlurmctldHost, as slurmrestd reached it."""

    hostname: str
    responding: bool
    primary: bool
    status: str = ""
    """Why it doesn't respond (v0.0.45 and later). A refused token shows only here."""


def _names(
    hostlist: str, request: str, field: str, read: Callable[[str], list[str]] = expand
) -> list[str]:
    try:
        return read(hostlist)
    except HostlistError as error:
        raise Malformed(request, field, str(error)) from error
