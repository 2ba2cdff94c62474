"""Requests of the exporter."""

import re
from functools import lru_cache
from sys import intern
from typing import Any, TypedDict

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.jobs import all_jobs
from sidecars.slurm.protocol.nodes import node_record
from sidecars.slurm.protocol.request import Request, no_news, since
from sidecars.slurm.protocol.reservations import reservation_record
from sidecars.slurm.usage import (
    JobUsage,
    JobUsages,
    License,
    NodeUsage,
    NodeUsages,
    ReservationUsage,
    RpcCount,
    Statistics,
)

_NO_LOAD = 0xFFFFFFFE
"""cpu_load of a node whose slurmd has not reported it (NO_VAL)."""
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_MEMORY = re.compile(r"(?:^|,)mem=(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)(?=,|$)", re.ASCII)
_MEBIBYTES = {"K": 2**-10, "": 1, "M": 1, "G": 2**10, "T": 2**20, "P": 2**30}


def get_node_usage(update_time: int | None = None) -> Request[NodeUsages | None]:
    """Request all nodes with their load. With `update_time`, the answer is None when no node
    changed in that second or later.
    """
    return Request("GET", "nodes/", since(update_time), read=_nodes, unchanged=no_news)


def get_job_usage(update_time: int | None = None) -> Request[JobUsages | None]:
    """Request all jobs with their allocations. With `update_time`, the answer is None when no job
    changed in that second or later.
    """
    return all_jobs(update_time, JobUsageFields, JobUsage, _job, JobUsages)


def get_statistics() -> Request[Statistics]:
    """Request slurmctld's statistics."""
    return Request("GET", "diag/", read=lambda answer: _statistics(answer.nested("statistics")))


def get_licenses() -> Request[tuple[License, ...]]:
    """Return all licenses."""
    return Request(
        "GET", "licenses/", read=lambda answer: tuple(map(_license, answer.items("licenses")))
    )


def get_reservation_usage() -> Request[tuple[ReservationUsage, ...]]:
    """Return all reservations with their sizes."""
    return Request(
        "GET",
        "reservations/",
        read=lambda answer: tuple(map(_reservation, answer.items("reservations"))),
    )


def _nodes(answer: Fields) -> NodeUsages:
    return NodeUsages(answer.records("nodes", NodeUsage, _node), answer.number("last_update"))


def _node(fields: Fields) -> NodeUsage:
    node = node_record(fields)
    effective, load = fields.number_or_none("effective_cpus"), fields.number_or_none("cpu_load")
    return NodeUsage(
        node,
        effective_cpus=node.cpus if effective is None else effective,
        idle_cpus=fields.number("alloc_idle_cpus"),
        effective_memory=max(0, node.real_memory - fields.number("specialized_memory")),
        free_memory=fields.number_or_none("free_mem"),
        load=None if load is None or load >= _NO_LOAD else load / 100,
    )


class JobUsageFields(TypedDict, total=False):
    """The fields of a job's record that `_job` reads, before their types are checked."""

    job_id: Any
    job_state: Any
    state_reason: Any
    priority: Any
    array_task_string: Any
    name: Any
    partition: Any
    user_name: Any
    user_id: Any
    account: Any
    submit_time: Any
    eligible_time: Any
    start_time: Any
    cpus: Any
    node_count: Any
    tres_alloc_str: Any
    gres_detail: Any


def _job(job: Fields) -> JobUsage:
    user_id = job.number("user_id")
    submitted, eligible = job.number("submit_time"), job.number("eligible_time")
    return JobUsage(
        job_id=job.number("job_id"),
        states=job.states("job_state"),
        reason=intern(job.text("state_reason")),
        released=job.number_or_none("priority") != 0,
        tasks=_tasks(job.text("array_task_string")),
        name=intern(job.text("name")),
        partition=intern(job.text("partition")),
        user=intern(job.text("user_name") or str(user_id)),
        user_id=user_id,
        account=intern(job.text("account")),
        submit_time=submitted,
        # One number where both are the same, as for most jobs.
        eligible_time=submitted if eligible == submitted else eligible,
        start_time=job.number("start_time"),
        cpus=job.number("cpus"),
        node_count=job.number("node_count"),
        memory=_memory(job.text("tres_alloc_str")),
        gres=tuple(map(intern, job.words("gres_detail"))),
    )


@lru_cache(maxsize=4096)
def _tasks(indexes: str) -> int:
    """Count the tasks in `0-99:3,120%5`, 1 for no array. A list that Slurm shortened ends with
    `...`.
    """
    count = 0
    for item in indexes.partition("%")[0].split(","):
        found = _RANGE.fullmatch(item)
        if found is not None:
            first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            count += max(0, last - first) // max(1, step) + 1
    return max(1, count)


@lru_cache(maxsize=4096)
def _memory(tres: str) -> int:
    """MiB of `mem` in `cpu=2,mem=1.5G,node=1`; 0 without one."""
    found = _MEMORY.search(tres)
    return 0 if found is None else round(float(found[1]) * _MEBIBYTES[found[2]])


def _statistics(statistics: Fields) -> Statistics:
    values = statistics.numbers()
    for exits in ("schedule_exit", "bf_exit"):
        values.update(
            (f"{exits}.{key}", number) for key, number in statistics.nested(exits).numbers().items()
        )
    return Statistics(
        values,
        tuple(
            _rpc(rpc, "message_type", "type_id")
            for rpc in statistics.items("rpcs_by_message_type", optional=True)
        ),
        tuple(
            _rpc(rpc, "user", "user_id") for rpc in statistics.items("rpcs_by_user", optional=True)
        ),
        tuple(
            _rpc(rpc, "message_type", "type_id")
            for rpc in statistics.items("pending_rpcs", optional=True)
        ),
    )


def _rpc(rpc: Fields, name: str, number: str) -> RpcCount:
    label = rpc.text(name) or str(rpc.number(number))
    return RpcCount(label, rpc.number("count"), rpc.number("total_time"), rpc.number("dropped"))


def _license(fields: Fields) -> License:
    return License(
        fields.text("LicenseName", required=True),
        total=fields.number("Total"),
        used=fields.number("Used"),
        free=fields.number("Free"),
        reserved=fields.number("Reserved"),
    )


def _reservation(fields: Fields) -> ReservationUsage:
    return ReservationUsage(
        reservation_record(fields), fields.number("node_count"), fields.number("core_count")
    )
