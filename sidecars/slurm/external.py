"""External jobs and guards as Slurm reports them, and what is requested for a new one. No HTTP and
no JSON here.

A guard is a batch job that only waits: it has what a pod uses on a node with a slurmd.
"""

from dataclasses import dataclass

GUARD_OUTPUT = "/dev/./null"
"""The output of a guard. The path is that of /dev/null, as nobody else writes it.

It is in the environment of the Epilog (SLURM_JOB_STDOUT), which asks Slurm about jobs with it alone
whether they are guards. Any user can submit a job with it. A job's user can change it while the job
is pending.
"""


@dataclass(frozen=True, slots=True)
class Gres:
    """What a job has of one GRES on one node."""

    name: str
    """With its type, as `gpu:h100`."""
    count: int
    indices: frozenset[int] | None = None
    """The places of these devices among all of the GRES on the node, of any type. None: Slurm only
    counts them.
    """


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a job has on one node."""

    node: str
    cpus: int
    memory: int = 0
    """MiB; 0 where Slurm doesn't allocate memory."""
    gpus: int = 0
    gres: tuple[Gres, ...] = ()


@dataclass(frozen=True, slots=True)
class ExternalJob:
    """A job's record, of any job."""

    job_id: int
    states: frozenset[str] = frozenset()
    external: bool = False
    guard: bool = False
    """Whether it has GUARD_OUTPUT, as any user's job may have."""
    user_name: str = ""
    user_id: int = 0
    comment: str = ""
    admin_comment: str = ""
    """Only administrators of Slurm can write and change it."""
    blocked: bool = False
    """Whether it is a held job."""
    priority: int = 0
    """While it is pending."""
    reason: str = ""
    start_time: int = 0
    """Seconds since the epoch. Of a pending job, when Slurm expects it to start; 0: unknown."""
    end_time: int = 0
    """When its time limit ends it; 0: never, or not known yet."""
    cpus_per_task: int = 1
    het_id: int = 0
    """The id of the heterogeneous job, which is that of its first component; 0 for any other job.
    """
    het_offset: int = 0
    """The component's place in it, from 0 on."""
    allocations: tuple[Allocation, ...] = ()
    """() until it runs. Slurm still reports them after its end."""
    partition: str = ""
    """Several, separated by commas, while it is pending in several."""
    tasks: int = 1
    memory_per_task: int = 0
    """MiB, as requested; 0: everything, or nothing was requested."""
    gres_per_task: str = ""
    """As requested."""
    shared: bool = False
    """Whether it may have the same cores as other jobs: by its own request, or always in its
    partition.
    """
    whole: bool = False
    """Whether it has whole nodes. Slurm reports the same of one that shares them with jobs of its
    user.
    """
    excluded_nodes: tuple[str, ...] = ()
    """The Slurm nodes that it is not to get."""


@dataclass(frozen=True, slots=True)
class ExternalRequest:
    """What is requested for a new external job, or guard, of `tasks` equal tasks.

    It is a held job until it is started.
    """

    name: str
    partition: str
    """"" for Slurm's default."""
    comment: str
    tasks: int = 1
    min_nodes: int = 1
    max_nodes: int = 1
    cpus_per_task: int = 1
    memory_per_task: int = 0
    """MiB; 0: what Slurm gives a job that requests none."""
    gres_per_task: str = ""
    account: str = ""
    qos: str = ""
    minutes: int | None = None
    """None: the partition's limit."""
    features: str = ""
    extra: str = ""
    excluded_nodes: tuple[str, ...] = ()
    """Slurm refuses the job for one that has no record (2018)."""
    exclusive: bool = False
    licenses: str = ""
    reservation: str = ""
    wckey: str = ""
    guard: bool = False
    """A guard instead of an external job."""
