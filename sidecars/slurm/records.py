"""Decoded answers of Slurm's REST API: frozen values with just the fields that this product reads.

Times are seconds since the epoch, 0 for never. Memory is MiB. Text is "" when unset. No HTTP and no JSON here.
"""

from dataclasses import dataclass

from sidecars.slurm.errors import Malformed
from sidecars.slurm.hostlists import HostlistError, expand


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
    alloc_cpus: int = 0
    real_memory: int = 0
    alloc_memory: int = 0
    boot_time: int = 0
    slurmd_start_time: int = 0
    last_busy: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Nodes:
    """A list of nodes."""

    nodes: tuple[Node, ...]
    last_update: int
    """The server's time of the list. Ask for changes since then."""


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
    submit_time: int = 0
    start_time: int = 0
    end_time: int = 0
    time_limit: int | None = None
    """Minutes; None for no limit."""
    cpus: int = 0
    node_count: int = 0

    def node_names(self) -> list[str]:
        """The names in `nodes`. Raises Malformed if it is no hostlist."""
        return _names(self.nodes, "GET jobs/", f"nodes of job {self.job_id}")


@dataclass(frozen=True, slots=True)
class Jobs:
    """A list of jobs."""

    jobs: tuple[Job, ...]
    last_update: int
    """The server's time of the list."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition."""

    name: str
    states: frozenset[str] = frozenset()
    node_list: str = ""
    """A hostlist."""
    node_sets: str = ""
    """Names of Slurm's node sets, or "ALL", where the configuration has them instead of names of nodes."""
    total_nodes: int = 0


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
        """The names in `node_list`. Raises Malformed if it is no hostlist."""
        return _names(self.node_list, "GET reservations/", f"node_list of {self.name}")


@dataclass(frozen=True, slots=True)
class Ping:
    """One slurmctld of the configuration, in order of SlurmctldHost, as slurmrestd reached it."""

    hostname: str
    responding: bool
    primary: bool
    status: str = ""
    """Why it doesn't respond (v0.0.45 and later). A refused token shows only here."""


def _names(hostlist: str, request: str, field: str) -> list[str]:
    try:
        return expand(hostlist)
    except HostlistError as error:
        raise Malformed(request, field, str(error)) from error
