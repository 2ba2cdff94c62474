"""Samples of slurmctld's statistics, of partitions, licenses and reservations. Pure."""

from collections.abc import Iterable

from sidecars.exporter import compatible, families
from sidecars.exporter.metrics import Metric
from sidecars.exporter.samples import Samples
from sidecars.slurm.records import Partition
from sidecars.slurm.usage import License, ReservationUsage, RpcCount, Statistics

MICROSECOND = 1e-6

FIELDS: dict[Metric, str] = {
    families.CYCLES: "schedule_cycle_total",
    families.CYCLE_SUM: "schedule_cycle_sum",
    families.CYCLE_LAST: "schedule_cycle_last",
    families.CYCLE_MAX: "schedule_cycle_max",
    families.CYCLE_DEPTH: "schedule_cycle_depth",
    families.CYCLE_QUEUE: "schedule_queue_length",
    families.BACKFILL_ACTIVE: "bf_active",
    families.BACKFILL_CYCLES: "bf_cycle_counter",
    families.BACKFILL_SUM: "bf_cycle_sum",
    families.BACKFILL_LAST: "bf_cycle_last",
    families.BACKFILL_MAX: "bf_cycle_max",
    families.BACKFILL_DEPTH: "bf_depth_sum",
    families.BACKFILL_TRIED: "bf_depth_try_sum",
    families.BACKFILL_LAST_DEPTH: "bf_last_depth",
    families.BACKFILL_LAST_TRIED: "bf_last_depth_try",
    families.BACKFILL_QUEUE: "bf_queue_len",
    families.BACKFILL_TABLE: "bf_table_size",
    families.BACKFILL_STARTED: "bf_backfilled_jobs",
    families.BACKFILL_HET_STARTED: "bf_backfilled_het_jobs",
    families.BACKFILL_WHEN: "bf_when_last_cycle",
    families.JOBS_SUBMITTED: "jobs_submitted",
    families.JOBS_STARTED: "jobs_started",
    families.JOBS_COMPLETED: "jobs_completed",
    families.JOBS_CANCELED: "jobs_canceled",
    families.JOBS_FAILED: "jobs_failed",
    families.THREADS: "server_thread_count",
    families.AGENTS: "agent_count",
    families.AGENT_THREADS: "agent_thread_count",
    families.AGENT_QUEUE: "agent_queue_size",
    families.DBD_QUEUE: "dbd_agent_queue_size",
    families.STATISTICS_START: "req_time_start",
}
"""The field of `GET diag/` of each metric."""

_TIMESTAMPS = frozenset({"bf_when_last_cycle", "req_time_start"})


def add_statistics(samples: Samples, statistics: Statistics) -> None:
    """Add the samples of slurmctld's statistics. A field that slurmctld doesn't report has no
    sample.
    """
    values = statistics.values
    for metric, field in FIELDS.items():
        value = values.get(field)
        if value is None or (field in _TIMESTAMPS and value == 0):
            continue
        in_seconds = metric.unit == "seconds" and field not in _TIMESTAMPS
        samples.add(metric, value * MICROSECOND if in_seconds else value)
    for field, value in values.items():
        exits, dot, reason = field.partition(".")
        if dot:
            metric = families.CYCLE_EXITS if exits == "schedule_exit" else families.BACKFILL_EXITS
            samples.add(metric, value, reason.removeprefix("bf_"))
    for names in (compatible.STATISTICS, compatible.VPENSO_STATISTICS):
        for name, field in names.items():
            if field in values:
                samples.add_named(name, values[field])
    _add_rpcs(samples, statistics.rpcs_by_type, families.RPCS, families.RPC_TIME)
    _add_rpcs(samples, statistics.rpcs_by_user, families.USER_RPCS, families.USER_RPC_TIME)
    for rpc in statistics.rpcs_by_type:
        if rpc.dropped:
            samples.add(families.RPCS_DROPPED, rpc.dropped, rpc.label)
    for rpc in statistics.pending_rpcs:
        samples.add(families.RPCS_PENDING, rpc.count, rpc.label)


def _add_rpcs(samples: Samples, rpcs: Iterable[RpcCount], count: Metric, seconds: Metric) -> None:
    for rpc in rpcs:
        samples.add(count, rpc.count, rpc.label)
        samples.add(seconds, rpc.microseconds * MICROSECOND, rpc.label)


def add_partitions(samples: Samples, partitions: Iterable[Partition]) -> None:
    """Add the samples of partitions."""
    for partition in partitions:
        samples.add(families.PARTITION_UP, int("UP" in partition.states), partition.name)


def add_licenses(samples: Samples, licenses: Iterable[License]) -> None:
    """Add the samples of licenses."""
    for it in licenses:
        samples.add(families.LICENSES, it.total, it.name)
        samples.add(families.LICENSES_USED, it.used, it.name)
        samples.add(families.LICENSES_FREE, it.free, it.name)
        samples.add(families.LICENSES_RESERVED, it.reserved, it.name)


def add_reservations(
    samples: Samples, reservations: Iterable[ReservationUsage], *, now: float
) -> None:
    """Add the samples of reservations. `now` is in seconds since the epoch."""
    for usage in reservations:
        it = usage.reservation
        samples.add(families.RESERVATION_ACTIVE, int(it.start_time <= now < it.end_time), it.name)
        samples.add(families.RESERVATION_START, it.start_time, it.name)
        samples.add(families.RESERVATION_END, it.end_time, it.name)
        samples.add(families.RESERVATION_NODES, usage.node_count, it.name)
        samples.add(families.RESERVATION_CORES, usage.core_count, it.name)
        for flag in it.flags:
            samples.add(families.RESERVATION_FLAG, 1, it.name, flag.lower())
