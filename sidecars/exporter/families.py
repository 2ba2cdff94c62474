"""This product's metrics as one table. The pages, the exposition and the dashboards follow it.

Label values are Slurm's words in lower case (`idle`, `not_responding`). A word that the exporter
doesn't know counts as `unrecognized`. Units are base units: seconds, bytes, and plain counts of
what the name lists.
"""

from dataclasses import dataclass

from sidecars.exporter.metrics import Family, Kind, Metric, Source

_OWN: list[Metric] = []


def _metric(family: Family, source: Source, name: str, meaning: str, *labels: str) -> Metric:
    stem = name.removesuffix("_total")
    unit = next((unit for unit in ("seconds", "bytes") if stem.endswith(f"_{unit}")), "")
    kind: Kind = "counter" if stem != name else "gauge"
    metric = Metric(name, meaning, family, source, labels, kind, unit)
    _OWN.append(metric)
    return metric


def _nodes(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.NODES, Source.NODES, name, meaning, *labels)


def _node(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.NODE, Source.NODES, name, meaning, "node", *labels)


def _partition(source: Source, name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.PARTITIONS, source, name, meaning, "partition", *labels)


def _jobs(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.JOBS, Source.JOBS, name, meaning, *labels)


def _job(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.JOB, Source.JOBS, name, meaning, "job_id", *labels)


def _scheduler(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.SCHEDULER, Source.STATISTICS, name, meaning, *labels)


def _rpcs(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.RPCS, Source.STATISTICS, name, meaning, *labels)


def _license(name: str, meaning: str) -> Metric:
    return _metric(Family.LICENSES, Source.LICENSES, name, meaning, "license")


def _reservation(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.RESERVATIONS, Source.RESERVATIONS, name, meaning, "reservation", *labels)


def _autoscaling(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.AUTOSCALING, Source.AUTOSCALING, name, meaning, *labels)


def _check(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.CHECKS, Source.CHECKS, name, meaning, "check", *labels)


def _own(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Family.EXPORTER, Source.NONE, name, meaning, *labels)


_USE = (
    "`allocated` to jobs, `idle`, or `other`: free on a node that takes no new job or is powered "
    "down"
)
_UNAVAILABLE = (
    "A node is unavailable when it is down, drained or draining, does not respond, or has an "
    "invalid registration. `owner` is who has set that: operator, pod, slurmctld, foreign (an "
    "administrator or another program) or nobody"
)

# ---- nodes
# --------------------------------------------------------------------------------------------------

NODES = _nodes("slurm_nodes", "Nodes by base state.", "state")
NODES_FLAGGED = _nodes(
    "slurm_nodes_flagged", "Nodes by flag of their state. A node has any number of flags.", "flag"
)
NODES_FREE = _nodes(
    "slurm_nodes_free",
    "Idle nodes on which Slurm can start a job at once: in service, not reserved, and powered up.",
)
NODES_UNAVAILABLE = _nodes(
    "slurm_nodes_unavailable",
    "Nodes that take no new job, by owner and by cause (down, drain, not_responding, invalid). "
    f"{_UNAVAILABLE}.",
    *("owner", "cause"),
)
CPUS = _nodes("slurm_cpus", f"CPUs of all nodes: {_USE}.", "state")
MEMORY = _nodes("slurm_memory_bytes", f"Memory that jobs can use, of all nodes: {_USE}.", "state")
GPUS = _nodes(
    "slurm_gpus",
    f"GPUs of all nodes by type: {_USE}. The type is empty for untyped GPUs.",
    "type",
    "state",
)

# ---- node
# --------------------------------------------------------------------------------------------------

NODE_INFO = _node(
    "slurm_node_info",
    "1 for each node. The pod is that of the node's worker.",
    "namespace",
    "pod",
    "version",
)
NODE_STATE = _node("slurm_node_state", "1 for the base state of the node.", "state")
NODE_FLAG = _node("slurm_node_flag", "1 for each flag of the node's state.", "flag")
NODE_UNAVAILABLE = _node(
    "slurm_node_unavailable",
    f"1 for each node that takes no new job, with its reason. {_UNAVAILABLE}.",
    *("owner", "cause", "reason"),
)
NODE_UNAVAILABLE_SINCE = _node(
    "slurm_node_unavailable_since_timestamp_seconds",
    "When the reason of an unavailable node was set, in seconds since the epoch. Absent when "
    "Slurm has no time.",
)
NODE_CPUS = _node("slurm_node_cpus_allocatable", "CPUs of the node that jobs can use.")
NODE_CPUS_ALLOCATED = _node(
    "slurm_node_cpus_allocated", "CPUs of the node that are allocated to jobs."
)
NODE_CPU_LOAD = _node(
    "slurm_node_cpu_load", "Load of the node's host over the last minute, as slurmd reports it."
)
NODE_MEMORY = _node("slurm_node_memory_allocatable_bytes", "Memory of the node that jobs can use.")
NODE_MEMORY_ALLOCATED = _node(
    "slurm_node_memory_allocated_bytes", "Memory of the node that is allocated to jobs."
)
NODE_MEMORY_UNUSED = _node(
    "slurm_node_memory_unused_bytes",
    "Memory that the node's operating system has free, as slurmd reports it.",
)
NODE_GPUS = _node("slurm_node_gpus_configured", "GPUs of the node by type.", "type")
NODE_GPUS_ALLOCATED = _node(
    "slurm_node_gpus_allocated", "GPUs of the node that are allocated to jobs.", "type"
)

# ---- partitions
# --------------------------------------------------------------------------------------------------

PARTITION_UP = _partition(
    Source.PARTITIONS, "slurm_partition_up", "Whether the partition is UP: 1 or 0."
)
PARTITION_NODES = _partition(
    Source.NODES,
    "slurm_partition_nodes",
    "Nodes of the partition by base state. 0 for a partition without.",
    "state",
)
PARTITION_UNAVAILABLE = _partition(
    Source.NODES,
    "slurm_partition_nodes_unavailable",
    f"Nodes of the partition that take no new job. {_UNAVAILABLE}.",
    "owner",
)
PARTITION_CPUS = _partition(
    Source.NODES, "slurm_partition_cpus", f"CPUs of the partition: {_USE}.", "state"
)
PARTITION_MEMORY = _partition(
    Source.NODES,
    "slurm_partition_memory_bytes",
    f"Memory that jobs can use, of the partition: {_USE}.",
    "state",
)
PARTITION_GPUS = _partition(
    Source.NODES, "slurm_partition_gpus", f"GPUs of the partition by type: {_USE}.", "type", "state"
)
_EACH = "A pending job counts in each of its partitions."
PARTITION_JOBS = _partition(
    Source.JOBS,
    "slurm_partition_jobs",
    f"Jobs of the partition by state, array tasks one by one. {_EACH}",
    "state",
)
PARTITION_PENDING = _partition(
    Source.JOBS,
    "slurm_partition_pending_jobs",
    f"Pending jobs of the partition by Slurm's reason, array tasks one by one. {_EACH}",
    "reason",
)
PARTITION_PENDING_OLDER = _partition(
    Source.JOBS,
    "slurm_partition_pending_jobs_older",
    "Pending jobs of the partition that could have started for longer than `age_seconds`, "
    "without held jobs and those that wait for something else than nodes, such as a dependency, a "
    f"limit or a license. {_EACH}",
    "age_seconds",
)
PARTITION_PENDING_OLDEST = _partition(
    Source.JOBS,
    "slurm_partition_pending_oldest_timestamp_seconds",
    "Since when the pending job waits that waits longest, without held jobs. Absent without such "
    "a job.",
)
PARTITION_PENDING_CPUS = _partition(
    Source.JOBS,
    "slurm_partition_pending_cpus",
    f"CPUs that pending jobs ask for, without held jobs. {_EACH}",
)
PARTITION_PENDING_NODES_MAX = _partition(
    Source.JOBS,
    "slurm_partition_pending_nodes_max",
    "Most nodes that one pending job of the partition asks for, without held jobs.",
)

# ---- jobs
# --------------------------------------------------------------------------------------------------

JOBS = _jobs(
    "slurm_jobs",
    "Jobs by state, array tasks one by one. Ended jobs count until slurmctld forgets them "
    "(MinJobAge).",
    "state",
)
JOBS_FLAGGED = _jobs(
    "slurm_jobs_flagged", "Jobs by flag of their state. A job has any number of flags.", "flag"
)
JOBS_UNRELEASED = _jobs(
    "slurm_jobs_held", "Held jobs: they wait until a user or an administrator releases them."
)
PENDING = _jobs(
    "slurm_pending_jobs", "Pending jobs by Slurm's reason, array tasks one by one.", "reason"
)
PENDING_OLDER = _jobs(
    "slurm_pending_jobs_older",
    "Pending jobs that could have started for longer than `age_seconds`, without held jobs and "
    "those that wait for something else than nodes, such as a dependency, a limit or a license.",
    "age_seconds",
)
PENDING_OLDEST = _jobs(
    "slurm_pending_oldest_timestamp_seconds",
    "Since when the pending job waits that waits longest, without held jobs. Absent without such "
    "a job.",
)
PENDING_CPUS = _jobs("slurm_pending_cpus", "CPUs that pending jobs ask for, without held jobs.")
JOBS_CPUS = _jobs("slurm_jobs_cpus_allocated", "CPUs allocated to jobs.")
JOBS_MEMORY = _jobs("slurm_jobs_memory_allocated_bytes", "Memory allocated to jobs.")
JOBS_GPUS = _jobs("slurm_jobs_gpus_allocated", "GPUs allocated to jobs, by type.", "type")


# ---- users and accounts
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grouped:
    """The metrics of one way to group jobs."""

    jobs: Metric
    cpus: Metric
    memory: Metric
    gpus: Metric


def _grouped(family: Family, word: str) -> Grouped:
    def metric(name: str, meaning: str, *labels: str) -> Metric:
        return _metric(family, Source.JOBS, f"slurm_{word}_{name}", meaning, word, *labels)

    return Grouped(
        metric("jobs", f"Jobs of the {word} by state, array tasks one by one.", "state"),
        metric("cpus_allocated", f"CPUs allocated to jobs of the {word}."),
        metric("memory_allocated_bytes", f"Memory allocated to jobs of the {word}."),
        metric("gpus_allocated", f"GPUs allocated to jobs of the {word}, by type.", "type"),
    )


USER = _grouped(Family.USERS, "user")
ACCOUNT = _grouped(Family.ACCOUNTS, "account")

# ---- job
# --------------------------------------------------------------------------------------------------

JOB_INFO = _job(
    "slurm_job_info",
    "1 for each running and pending job, running ones first, up to EXPORTER_MAX_JOBS.",
    *("name", "user", "account", "partition", "state", "reason"),
)
JOB_CPUS = _job("slurm_job_cpus", "CPUs of the job: allocated, or asked for.")
JOB_NODES = _job("slurm_job_nodes", "Nodes of the job: allocated, or asked for.")
JOB_MEMORY = _job("slurm_job_memory_allocated_bytes", "Memory allocated to the job.")
JOB_GPUS = _job("slurm_job_gpus_allocated", "GPUs allocated to the job, by type.", "type")
JOB_SUBMITTED = _job("slurm_job_submit_timestamp_seconds", "When the job was submitted.")
JOB_STARTED = _job(
    "slurm_job_start_timestamp_seconds",
    "When the job started; of a pending job, when Slurm expects it.",
)

# ---- scheduler
# --------------------------------------------------------------------------------------------------

_SINCE = "since slurmctld reset its statistics"
CYCLES = _scheduler("slurm_schedule_cycles_total", f"Cycles of the main scheduler {_SINCE}.")
CYCLE_SUM = _scheduler(
    "slurm_schedule_cycle_seconds_total", f"Duration of all cycles of the main scheduler {_SINCE}."
)
CYCLE_LAST = _scheduler(
    "slurm_schedule_cycle_last_seconds", "Duration of the main scheduler's last cycle."
)
CYCLE_MAX = _scheduler(
    "slurm_schedule_cycle_max_seconds", f"Duration of the main scheduler's longest cycle {_SINCE}."
)
CYCLE_DEPTH = _scheduler(
    "slurm_schedule_jobs_tested_total", f"Jobs that the main scheduler has tested {_SINCE}."
)
CYCLE_QUEUE = _scheduler("slurm_schedule_queue_jobs", "Pending jobs in the main scheduler's queue.")
CYCLE_EXITS = _scheduler(
    "slurm_schedule_exits_total",
    f"Ends of cycles of the main scheduler by reason {_SINCE}.",
    "reason",
)
BACKFILL_ACTIVE = _scheduler(
    "slurm_backfill_active", "Whether a backfill cycle is in progress: 1 or 0."
)
BACKFILL_CYCLES = _scheduler("slurm_backfill_cycles_total", f"Backfill cycles {_SINCE}.")
BACKFILL_SUM = _scheduler(
    "slurm_backfill_cycle_seconds_total", f"Duration of all backfill cycles {_SINCE}."
)
BACKFILL_LAST = _scheduler(
    "slurm_backfill_cycle_last_seconds", "Duration of the last backfill cycle."
)
BACKFILL_MAX = _scheduler(
    "slurm_backfill_cycle_max_seconds", f"Duration of the longest backfill cycle {_SINCE}."
)
BACKFILL_DEPTH = _scheduler(
    "slurm_backfill_jobs_considered_total", f"Jobs that backfill has looked at {_SINCE}."
)
BACKFILL_TRIED = _scheduler(
    "slurm_backfill_jobs_tried_total", f"Jobs that backfill has tried to place {_SINCE}."
)
BACKFILL_LAST_DEPTH = _scheduler(
    "slurm_backfill_last_jobs_considered", "Jobs that the last backfill cycle looked at."
)
BACKFILL_LAST_TRIED = _scheduler(
    "slurm_backfill_last_jobs_tried", "Jobs that the last backfill cycle tried to place."
)
BACKFILL_QUEUE = _scheduler(
    "slurm_backfill_queue_jobs", "Pending jobs in the last backfill cycle's queue."
)
BACKFILL_TABLE = _scheduler(
    "slurm_backfill_table_entries", "Time slots in the last backfill cycle's table."
)
BACKFILL_STARTED = _scheduler(
    "slurm_backfill_jobs_started_total", "Jobs that backfill has started since slurmctld started."
)
BACKFILL_HET_STARTED = _scheduler(
    "slurm_backfill_het_components_started_total",
    "Components of heterogeneous jobs that backfill has started since slurmctld started.",
)
BACKFILL_WHEN = _scheduler(
    "slurm_backfill_last_cycle_timestamp_seconds", "When the last backfill cycle began."
)
BACKFILL_EXITS = _scheduler(
    "slurm_backfill_exits_total", f"Ends of backfill cycles by reason {_SINCE}.", "reason"
)
JOBS_SUBMITTED = _scheduler("slurm_controller_jobs_submitted_total", f"Jobs submitted {_SINCE}.")
JOBS_STARTED = _scheduler("slurm_controller_jobs_started_total", f"Jobs started {_SINCE}.")
JOBS_COMPLETED = _scheduler("slurm_controller_jobs_completed_total", f"Jobs completed {_SINCE}.")
JOBS_CANCELED = _scheduler("slurm_controller_jobs_canceled_total", f"Jobs cancelled {_SINCE}.")
JOBS_FAILED = _scheduler(
    "slurm_controller_jobs_failed_total",
    f"Jobs that failed because of slurmd or another internal fault {_SINCE}.",
)
THREADS = _scheduler(
    "slurm_controller_server_threads", "Active threads of slurmctld that serve requests."
)
AGENTS = _scheduler("slurm_controller_agents", "Agents of slurmctld that send requests to nodes.")
AGENT_THREADS = _scheduler(
    "slurm_controller_agent_threads", "Active threads of slurmctld's agents."
)
AGENT_QUEUE = _scheduler(
    "slurm_controller_agent_queue_requests", "Requests of slurmctld to nodes that wait."
)
DBD_QUEUE = _scheduler(
    "slurm_controller_slurmdbd_queue_messages", "Messages to slurmdbd that wait in slurmctld."
)
STATISTICS_START = _scheduler(
    "slurm_controller_statistics_start_timestamp_seconds",
    "When slurmctld last reset its statistics.",
)

# ---- rpcs
# --------------------------------------------------------------------------------------------------

RPCS = _rpcs("slurm_controller_rpcs_total", f"Requests to slurmctld by type {_SINCE}.", "type")
RPC_TIME = _rpcs(
    "slurm_controller_rpc_seconds_total", f"Processing time of requests by type {_SINCE}.", "type"
)
RPCS_DROPPED = _rpcs(
    "slurm_controller_rpcs_dropped_total",
    f"Requests that slurmctld has dropped by type {_SINCE}.",
    "type",
)
USER_RPCS = _rpcs(
    "slurm_controller_user_rpcs_total", f"Requests to slurmctld by user {_SINCE}.", "user"
)
USER_RPC_TIME = _rpcs(
    "slurm_controller_user_rpc_seconds_total",
    f"Processing time of requests by user {_SINCE}.",
    "user",
)
RPCS_PENDING = _rpcs(
    "slurm_controller_agent_rpcs_pending",
    "Requests of slurmctld to nodes that wait, by type.",
    "type",
)

# ---- licenses
# --------------------------------------------------------------------------------------------------

LICENSES = _license("slurm_licenses_configured", "Licenses that exist.")
LICENSES_USED = _license("slurm_licenses_used", "Licenses that jobs use.")
LICENSES_FREE = _license("slurm_licenses_free", "Licenses that jobs can use.")
LICENSES_RESERVED = _license("slurm_licenses_reserved", "Licenses that reservations keep.")

# ---- reservations
# --------------------------------------------------------------------------------------------------

RESERVATION_ACTIVE = _reservation(
    "slurm_reservation_active", "Whether the reservation is in effect: 1 or 0."
)
RESERVATION_START = _reservation(
    "slurm_reservation_start_timestamp_seconds", "When the reservation begins."
)
RESERVATION_END = _reservation(
    "slurm_reservation_end_timestamp_seconds", "When the reservation ends."
)
RESERVATION_NODES = _reservation("slurm_reservation_nodes", "Nodes of the reservation.")
RESERVATION_CORES = _reservation("slurm_reservation_cores", "CPU cores of the reservation.")
RESERVATION_FLAG = _reservation(
    "slurm_reservation_flag", "1 for each flag of the reservation.", "flag"
)

# ---- autoscaling
# --------------------------------------------------------------------------------------------------

WANTED_REPLICAS = _autoscaling(
    "slurm_nodeset_wanted_replicas",
    "Replicas that the NodeSet needs for running and pending jobs. Absent while unknown.",
    "nodeset",
)
NOT_COUNTED = _autoscaling(
    "slurm_autoscaling_jobs_not_counted",
    "Pending jobs for which no node is added, by reason.",
    "reason",
)

# ---- checks
# --------------------------------------------------------------------------------------------------

CHECK_END = _check(
    "slurm_check_last_run_timestamp_seconds", "When the last run of the check ended."
)
CHECK_DURATION = _check(
    "slurm_check_last_run_duration_seconds", "Duration of the last run of the check."
)
CHECK_INTERVAL = _check(
    "slurm_check_interval_seconds",
    "Longest time between two runs of the check by its schedule. Absent for a check with "
    "`suspend: true`.",
)
CHECK_DUE = _check(
    "slurm_check_result_due_timestamp_seconds",
    "When the next run must have ended: the last run, plus the longest interval and the longest "
    "duration of a run. Without a last run, or if the schedule has changed since, the time at "
    "which the exporter read this counts. Absent for a check with `suspend: true`.",
)
CHECK_NODES = _check(
    "slurm_check_nodes",
    "Nodes of the last run by result: passed, failed, hung, skipped, or interrupted (untested).",
    "result",
)
CHECK_NOT_PASSED = _check(
    "slurm_check_node_not_passed",
    "1 for each node that did not pass the last run, with its result.",
    "node",
    "result",
)
CHECK_VALUE = _check(
    "slurm_check_node_measured",
    "What the check measured on the node: bit/s, bytes, seconds, or a fraction.",
    *("node", "value"),
)

# ---- exporter
# --------------------------------------------------------------------------------------------------

UP = _own(
    "slurm_exporter_up",
    "Whether the last read of every source succeeded: 1 or 0. 0 before the first reads have ended.",
)
LAST_SUCCESS = _own(
    "slurm_exporter_last_success_timestamp_seconds",
    "When the data of the family was last read, in seconds since the epoch. Absent before.",
    "family",
)
STALE = _own(
    "slurm_exporter_stale",
    "Whether series of the family are withdrawn because their data is too old or was never read: "
    "1 or 0.",
    "family",
)
DURATION = _own(
    "slurm_exporter_collection_duration_seconds",
    "Duration of the last read of the source.",
    "source",
)
COLLECTIONS = _own("slurm_exporter_collections_total", "Reads of the source.", "source")
ERRORS = _own(
    "slurm_exporter_errors_total",
    "Failed reads of the source by kind: token, unreachable, refused, malformed, suspect or "
    "internal.",
    *("source", "kind"),
)
SERIES = _own("slurm_exporter_series", "Series of the source that are served.", "source")
UNREADABLE = _own(
    "slurm_exporter_unreadable_values",
    "Values of the last read that are not as Slurm documents them.",
    "source",
)
JOBS_DROPPED = _own(
    "slurm_exporter_jobs_dropped",
    "Running and pending jobs without series of their own because of EXPORTER_MAX_JOBS.",
)
INTERVAL = _own(
    "slurm_exporter_interval_seconds", "Time between two reads of the source at present.", "source"
)

OWN: tuple[Metric, ...] = tuple(_OWN)
"""This product's metrics, in the order of the pages and of the exposition."""
