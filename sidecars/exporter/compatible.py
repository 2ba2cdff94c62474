"""The metrics of other exporters under their names, with their values and units, so that their
dashboards work.

All are gauges, as there, even those whose names end in `_total`. `_bytes` of the reference are MiB
and `_seconds` microseconds: their dashboards expect that.
"""

from sidecars.exporter.families import OWN
from sidecars.exporter.metrics import Family, Metric, NameSet, Source

MEBIBYTES, MICROSECONDS = "MiB", "µs"

JOB_STATES = {
    "bootfail": "BOOT_FAIL",
    "cancelled": "CANCELLED",
    "completed": "COMPLETED",
    "deadline": "DEADLINE",
    "failed": "FAILED",
    "pending": "PENDING",
    "preempted": "PREEMPTED",
    "running": "RUNNING",
    "suspended": "SUSPENDED",
    "timeout": "TIMEOUT",
    "nodefail": "NODE_FAIL",
    "outofmemory": "OUT_OF_MEMORY",
    "completing": "COMPLETING",
    "configuring": "CONFIGURING",
    "powerupnode": "POWER_UP_NODE",
    "stageout": "STAGE_OUT",
}
"""Slurm's word by the word in the reference's names of jobs."""

NODE_STATES = {
    "allocated": "ALLOCATED",
    "down": "DOWN",
    "error": "ERROR",
    "future": "FUTURE",
    "idle": "IDLE",
    "mixed": "MIXED",
    "unknown": "UNKNOWN",
    "completing": "COMPLETING",
    "drain": "DRAIN",
    "fail": "FAIL",
    "maintenance": "MAINTENANCE",
    "notresponding": "NOT_RESPONDING",
    "planned": "PLANNED",
    "rebootrequested": "REBOOT_REQUESTED",
    "reserved": "RESERVED",
}
"""Slurm's word by the word in the reference's names of nodes."""

RESOURCES = {
    "cpus_total": "CPUs",
    "cpus_effective_total": "CPUs that jobs can use",
    "cpus_alloc_total": "allocated CPUs",
    "cpus_idle_total": "idle CPUs",
    "memory_bytes": "memory",
    "memory_effective_bytes": "memory that jobs can use",
    "memory_alloc_bytes": "allocated memory",
    "memory_free_bytes": "memory that operating systems have free",
}
"""The endings of the reference's names of nodes' resources, and what they count."""

STATISTICS = {
    "scheduler_cycle_depth_total": "schedule_cycle_depth",
    "scheduler_cycle_last_seconds": "schedule_cycle_last",
    "scheduler_cycle_max_seconds": "schedule_cycle_max",
    "scheduler_cycle_mean_seconds": "schedule_cycle_mean",
    "scheduler_cycle_depth_mean_total": "schedule_cycle_mean_depth",
    "scheduler_cycle_perminute_total": "schedule_cycle_per_minute",
    "scheduler_cycle_sum_seconds_total": "schedule_cycle_sum",
    "scheduler_cycle_total": "schedule_cycle_total",
    "scheduler_queue_total": "schedule_queue_length",
    "scheduler_defaultqueuedepth_total": "schedule_exit.default_queue_depth",
    "scheduler_endjobqueue_total": "schedule_exit.end_job_queue",
    "scheduler_licenses_total": "schedule_exit.licenses",
    "scheduler_maxjobstart_total": "schedule_exit.max_job_start",
    "scheduler_maxrpc_total": "schedule_exit.max_rpc_cnt",
    "scheduler_maxschedtime_total": "schedule_exit.max_sched_time",
    "scheduler_jobs_stats_timestamp": "job_states_ts",
    "scheduler_jobs_canceled_total": "jobs_canceled",
    "scheduler_jobs_completed_total": "jobs_completed",
    "scheduler_jobs_failed_total": "jobs_failed",
    "scheduler_jobs_pending_total": "jobs_pending",
    "scheduler_jobs_running_total": "jobs_running",
    "scheduler_jobs_started_total": "jobs_started",
    "scheduler_jobs_submitted_total": "jobs_submitted",
    "scheduler_agent_total": "agent_count",
    "scheduler_agent_queue_total": "agent_queue_size",
    "scheduler_agent_thread_total": "agent_thread_count",
    "scheduler_thread_total": "server_thread_count",
    "scheduler_dbdagentqueue_total": "dbd_agent_queue_size",
    "bfscheduler_active_bool": "bf_active",
    "bfscheduler_backfilledhetjobs_total": "bf_backfilled_het_jobs",
    "bfscheduler_backfilledjobs_total": "bf_backfilled_jobs",
    "bfscheduler_cycle_total": "bf_cycle_counter",
    "bfscheduler_cycle_seconds": "bf_cycle_last",
    "bfscheduler_cycle_max_seconds": "bf_cycle_max",
    "bfscheduler_cycle_mean_seconds": "bf_cycle_mean",
    "bfscheduler_cycle_sum_seconds": "bf_cycle_sum",
    "bfscheduler_depth_mean_total": "bf_depth_mean",
    "bfscheduler_depth_try_total": "bf_depth_mean_try",
    "bfscheduler_depth_sum_total": "bf_depth_sum",
    "bfscheduler_depth_trysum_total": "bf_depth_try_sum",
    "bfscheduler_lastbackfilledjobs_total": "bf_last_backfilled_jobs",
    "bfscheduler_lastdepth_total": "bf_last_depth",
    "bfscheduler_lastdepthtry_total": "bf_last_depth_try",
    "bfscheduler_queue_total": "bf_queue_len",
    "bfscheduler_queue_mean_total": "bf_queue_len_mean",
    "bfscheduler_queue_sum_total": "bf_queue_len_sum",
    "bfscheduler_table_total": "bf_table_size",
    "bfscheduler_tablemean_total": "bf_table_size_mean",
    "bfscheduler_tablesum_total": "bf_table_size_sum",
    "bfscheduler_lastcycle_timestamp": "bf_when_last_cycle",
    "bfscheduler_maxjobstart_total": "bf_exit.bf_max_job_start",
    "bfscheduler_maxjobtest_total": "bf_exit.bf_max_job_test",
    "bfscheduler_maxtime_total": "bf_exit.bf_max_time",
    "bfscheduler_nodespace_total": "bf_exit.bf_node_space_size",
    "bfscheduler_endjobqueue_total": "bf_exit.end_job_queue",
    "bfscheduler_statechanged_total": "bf_exit.state_changed",
}
"""The field of `GET diag/` by the reference's name."""

VPENSO_STATISTICS = {
    "scheduler_threads": "server_thread_count",
    "scheduler_queue_size": "agent_queue_size",
    "scheduler_dbd_queue_size": "dbd_agent_queue_size",
    "scheduler_last_cycle": "schedule_cycle_last",
    "scheduler_mean_cycle": "schedule_cycle_mean",
    "scheduler_cycle_per_minute": "schedule_cycle_per_minute",
    "scheduler_backfill_last_cycle": "bf_cycle_last",
    "scheduler_backfill_mean_cycle": "bf_cycle_mean",
    "scheduler_backfill_depth_mean": "bf_depth_mean",
    "scheduler_backfilled_jobs_since_start_total": "bf_backfilled_jobs",
    "scheduler_backfilled_jobs_since_cycle_total": "bf_last_backfilled_jobs",
    "scheduler_backfilled_heterogeneous_total": "bf_backfilled_het_jobs",
}
"""The field of `GET diag/` by vpenso's name."""

VPENSO_NODES = (
    *("alloc", "comp", "down", "drain", "err", "fail", "idle", "maint", "mix", "plnd", "resv"),
)
"""The words in vpenso's names of nodes: each node counts in one of them, as `sinfo` shows its
state.
"""

VPENSO_QUEUE = (
    *(
        "pending",
        "running",
        "suspended",
        "cancelled",
        "completing",
        "completed",
        "configuring",
        "failed",
    ),
    *("timeout", "preempted", "node_fail"),
)
"""The words in vpenso's names of jobs: each job counts in one of them, as `squeue` shows its state.
"""


def _reference(
    family: Family,
    source: Source,
    name: str,
    meaning: str,
    labels: tuple[str, ...] = (),
    unit: str = "",
) -> Metric:
    return Metric(
        f"slurm_{name}", f"{meaning}.", family, source, labels, "gauge", unit, NameSet.REFERENCE
    )


def _reference_jobs(family: Family, prefix: str, labels: tuple[str, ...]) -> list[Metric]:
    def metric(name: str, meaning: str, unit: str = "") -> Metric:
        return _reference(family, Source.JOBS, f"{prefix}_{name}", meaning, labels, unit)

    return [
        metric("total", "Jobs"),
        *(
            metric(f"{name}_total", f"Jobs with the state {state}")
            for name, state in JOB_STATES.items()
        ),
        metric("hold_total", "Held jobs"),
        metric("cpus_alloc_total", "CPUs allocated to jobs"),
        metric("memory_alloc_bytes", "Memory allocated to jobs, in MiB", MEBIBYTES),
    ]


def _reference_nodes(family: Family, prefix: str, labels: tuple[str, ...]) -> list[Metric]:
    states = [
        ("total", "Nodes"),
        *((f"{name}_total", f"Nodes with the state {s}") for name, s in NODE_STATES.items()),
    ]
    return [
        _reference(family, Source.NODES, f"{prefix}_{name}", meaning, labels)
        for name, meaning in states
    ]


def _reference_resources(
    family: Family, prefix: str, whose: str, labels: tuple[str, ...]
) -> list[Metric]:
    found = []
    for name, what in RESOURCES.items():
        unit = MEBIBYTES if name.endswith("_bytes") else ""
        meaning = f"{whose} {what}{', in MiB' if unit else ''}"
        found.append(_reference(family, Source.NODES, f"{prefix}_{name}", meaning, labels, unit))
    return found


def _statistic(name: str, field: str, name_set: NameSet) -> Metric:
    is_time = field.removesuffix("_mean").endswith(
        ("cycle", "cycle_last", "cycle_max", "cycle_sum")
    )
    stamp = name.endswith("_timestamp")
    unit = MICROSECONDS if is_time else "seconds" if stamp else ""
    meaning = f"`{field}` of `GET diag/`{', in microseconds' if is_time else ''}."
    return Metric(
        f"slurm_{name}", meaning, Family.SCHEDULER, Source.STATISTICS, (), "gauge", unit, name_set
    )


_PARTITION = ("partition",)
_MAX_NODES = (
    "Largest number of nodes that a pending job of the partition asks for, without held jobs"
)

REFERENCE: tuple[Metric, ...] = (
    *_reference_jobs(Family.JOBS, "jobs", ()),
    *_reference_jobs(Family.USERS, "user_jobs", ("userid", "username")),
    *_reference_jobs(Family.ACCOUNTS, "account_jobs", ("account",)),
    *_reference_jobs(Family.PARTITIONS, "partition_jobs", _PARTITION),
    _reference(
        Family.PARTITIONS,
        Source.JOBS,
        "partition_jobs_pending_maxnodecount_total",
        _MAX_NODES,
        labels=_PARTITION,
    ),
    *_reference_nodes(Family.NODES, "nodes", ()),
    *_reference_resources(Family.NODE, "node", "The node's", ("node",)),
    *_reference_nodes(Family.PARTITIONS, "partition_nodes", _PARTITION),
    *_reference_resources(Family.PARTITIONS, "partition_nodes", "The partition's", _PARTITION),
    *(_statistic(name, field, NameSet.REFERENCE) for name, field in STATISTICS.items()),
)
"""The names of SchedMD's slurm-exporter."""


def _vpenso(
    family: Family,
    source: Source,
    name: str,
    meaning: str,
    labels: tuple[str, ...] = (),
    unit: str = "",
) -> Metric:
    return Metric(
        f"slurm_{name}", f"{meaning}.", family, source, labels, "gauge", unit, NameSet.VPENSO
    )


def _vpenso_jobs(family: Family, word: str) -> list[Metric]:
    counts = {
        "jobs_pending": "Pending jobs",
        "jobs_running": "Running jobs",
        "cpus_running": "CPUs of running jobs",
        "jobs_suspended": "Suspended jobs",
    }
    return [
        _vpenso(family, Source.JOBS, f"{word}_{name}", f"{meaning} of the {word}", (word,))
        for name, meaning in counts.items()
    ]


_CPUS = {"alloc": "Allocated", "idle": "Idle", "other": "Other", "total": "All"}
_NODE = ("node", "status")

VPENSO: tuple[Metric, ...] = (
    *(
        _vpenso(Family.NODES, Source.NODES, f"cpus_{word}", f"{what} CPUs")
        for word, what in _CPUS.items()
    ),
    *(
        _vpenso(Family.NODES, Source.NODES, f"gpus_{word}", f"{_CPUS[word]} GPUs")
        for word in ("alloc", "idle", "total")
    ),
    _vpenso(
        Family.NODES, Source.NODES, "gpus_utilization", "Allocated GPUs as a part of all, 0 to 1"
    ),
    *(
        _vpenso(Family.NODES, Source.NODES, f"nodes_{word}", f"Nodes that sinfo shows as {word}")
        for word in VPENSO_NODES
    ),
    *(
        _vpenso(Family.NODE, Source.NODES, f"node_cpu_{word}", f"{what} CPUs of the node", _NODE)
        for word, what in _CPUS.items()
    ),
    _vpenso(
        Family.NODE,
        Source.NODES,
        "node_mem_alloc",
        "Allocated memory of the node, in MiB",
        _NODE,
        MEBIBYTES,
    ),
    _vpenso(
        Family.NODE, Source.NODES, "node_mem_total", "Memory of the node, in MiB", _NODE, MEBIBYTES
    ),
    *(
        _vpenso(
            Family.PARTITIONS,
            Source.NODES,
            f"partition_cpus_{'allocated' if word == 'alloc' else word}",
            f"{what} CPUs of the partition",
            _PARTITION,
        )
        for word, what in _CPUS.items()
    ),
    _vpenso(
        Family.PARTITIONS,
        Source.JOBS,
        "partition_jobs_pending",
        "Pending jobs of the partition",
        _PARTITION,
    ),
    *(
        _vpenso(
            Family.JOBS, Source.JOBS, f"queue_{word}", f"Jobs that squeue shows as {word.upper()}"
        )
        for word in VPENSO_QUEUE
    ),
    _vpenso(
        Family.JOBS,
        Source.JOBS,
        "queue_pending_dependency",
        "Pending jobs with the reason Dependency",
    ),
    *_vpenso_jobs(Family.USERS, "user"),
    *_vpenso_jobs(Family.ACCOUNTS, "account"),
    *(_statistic(name, field, NameSet.VPENSO) for name, field in VPENSO_STATISTICS.items()),
)
"""The names of vpenso's prometheus-slurm-exporter, but for `slurm_account_fairshare`, which needs
slurmdbd's shares.
"""

METRICS: tuple[Metric, ...] = (*OWN, *REFERENCE, *VPENSO)
"""All metrics."""

BY_NAME = {metric.name: metric for metric in METRICS}


def served(families: frozenset[Family], name_sets: frozenset[NameSet]) -> tuple[Metric, ...]:
    """Return the metrics of these families and name sets. Those about the exporter itself are
    always among them.
    """
    chosen = (m for m in METRICS if m.family in families and m.name_set in name_sets)
    own = (m for m in OWN if m.family is Family.EXPORTER)
    return tuple(dict.fromkeys((*chosen, *own)))
