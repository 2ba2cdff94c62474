"""What a partition's configuration and state keep from a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecars.slurm.details import JobDetail, PartitionDetail


def excludes(partition: PartitionDetail, job: JobDetail) -> list[str]:
    """Return why the partition starts no such job, each with the values, [] if nothing that was
    read excludes it.
    """
    found = []
    if partition.states and "UP" not in partition.states:
        found.append(f"partition {partition.name} is {'+'.join(sorted(partition.states))}")
    if (
        partition.max_minutes is not None
        and job.time_limit is not None
        and job.time_limit > partition.max_minutes
    ):
        found.append(
            f"its time limit is {job.time_limit} minutes, and MaxTime of {partition.name} "
            f"{partition.max_minutes}"
        )
    nodes = job.pending.request.min_nodes if job.pending is not None else job.node_count
    if partition.max_nodes is not None and nodes > partition.max_nodes:
        found.append(
            f"it requests {nodes} nodes, and MaxNodes of {partition.name} is {partition.max_nodes}"
        )
    most = job.pending.request.max_nodes if job.pending is not None else 0
    if most and most < partition.min_nodes:
        found.append(
            f"it may use {most} nodes, and MinNodes of {partition.name} is {partition.min_nodes}"
        )
    for what, value, allowed, denied in (
        ("account", job.account, partition.allow_accounts, partition.deny_accounts),
        ("QOS", job.qos, partition.allow_qos, partition.deny_qos),
    ):
        if value and allowed and value not in allowed:
            found.append(
                f"partition {partition.name} allows the {what} {', '.join(allowed)}, and the job "
                f"has {value}"
            )
        elif value and not allowed and value in denied:
            found.append(f"partition {partition.name} denies the {what} {value}")
    return found
