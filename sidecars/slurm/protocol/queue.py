"""The request of the autoscaling planner: all jobs, and what pending ones request.

Apart from `jobs`, because these records take much more time and memory. API v0.0.44 is used where
the server offers it: later versions don't report that a job is exclusive (observed with Slurm
26.05; `shared` is always empty).
"""

from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import Any

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.jobs import JobFields, all_jobs, job_of
from sidecars.slurm.protocol.request import Request
from sidecars.slurm.records import JobRequest, Pending, QueuedJob, QueuedJobs

REPORTS_EXCLUSIVE = "v0.0.44"
"""The last API version that reports which jobs are exclusive."""


def get_queue(former: QueuedJobs | None = None) -> Request[QueuedJobs | None]:
    """Request all jobs. With the `former` answer, the answer is None when no job has changed since.
    A job that is as in the former answer is the same object, so that what changed is found quickly.
    """
    known = {} if former is None else {job.job_id: job for job in former.jobs}

    def record(fields: Fields) -> QueuedJob:
        job = _job(fields)
        same = known.get(job.job_id)
        return job if same is None or same != job else same

    update_time = None if former is None else former.last_update
    request = all_jobs(update_time, QueuedJobFields, QueuedJob, record, QueuedJobs)

    def read(answer: Fields) -> QueuedJobs | None:
        found = request.read(answer)
        parser = answer.nested("meta").nested("plugin").text("data_parser")
        return (
            found
            if found is None
            else replace(found, exclusive_known=parser.endswith(REPORTS_EXCLUSIVE))
        )

    return replace(request, version=REPORTS_EXCLUSIVE, read=read)


class QueuedJobFields(JobFields, total=False):
    """The fields of a job's record that `_job` reads, before their types are checked."""

    account: Any
    array_job_id: Any
    array_max_tasks: Any
    array_task_string: Any
    contiguous: Any
    core_spec: Any
    cores_per_socket: Any
    cpus_per_task: Any
    cpus_per_tres: Any
    dependency: Any
    eligible_time: Any
    excluded_nodes: Any
    extra: Any
    features: Any
    flags: Any
    het_job_id: Any
    het_job_id_set: Any
    licenses: Any
    max_nodes: Any
    memory_per_cpu: Any
    memory_per_node: Any
    memory_per_tres: Any
    minimum_cpus_per_node: Any
    minimum_tmp_disk_per_node: Any
    priority: Any
    qos: Any
    required_nodes: Any
    resv_name: Any
    segment_size: Any
    shared: Any
    sockets_per_node: Any
    state_reason: Any
    tasks: Any
    tasks_per_core: Any
    tasks_per_node: Any
    tasks_per_socket: Any
    thread_spec: Any
    threads_per_core: Any
    tres_per_job: Any
    tres_per_node: Any
    tres_per_socket: Any
    tres_per_task: Any
    tres_req_str: Any


_NO_SPEC = 0x7FFE
"""thread_spec of a job without one (NO_VAL16 without the bit that marks threads)."""


def _job(job: Fields) -> QueuedJob:
    pending = pending_of(job) if "PENDING" in job.states("job_state") else None
    return job_of(QueuedJob, job, array_job_id=job.number("array_job_id"), pending=pending)


def pending_of(job: Fields) -> Pending:
    """Return what a pending job of an answer waits for."""
    flags = job.states("flags")
    submitted, eligible = job.number("submit_time"), job.number("eligible_time")
    return Pending(
        request=_request(
            job.text("partition"),
            job.text("tres_req_str"),
            job.number("node_count"),
            job.number("max_nodes"),
            job.number("tasks"),
            job.number("cpus"),
            job.number("cpus_per_task"),
            job.number("tasks_per_node"),
            job.number("tasks_per_core"),
            job.number("tasks_per_socket"),
            job.number("threads_per_core"),
            job.number("sockets_per_node"),
            job.number("cores_per_socket"),
            job.number("minimum_cpus_per_node"),
            job.number_or_none("memory_per_cpu"),
            job.number("memory_per_node"),
            job.number("minimum_tmp_disk_per_node"),
            job.text("tres_per_node"),
            job.text("tres_per_job"),
            job.text("tres_per_socket"),
            job.text("tres_per_task"),
            job.text("cpus_per_tres"),
            job.text("memory_per_tres"),
            job.text("features"),
            job.states("shared"),
            job.flag("contiguous", optional=True),
            job.text("required_nodes"),
            job.text("excluded_nodes"),
            job.number("core_spec") not in (0, _NO_SPEC)
            or job.number("thread_spec") not in (0, _NO_SPEC),
            job.number("segment_size"),
            job.text("extra"),
            job.text("licenses"),
            job.text("resv_name"),
            "EXTERNAL_JOB" in flags,
            "JOB_IMPLICIT_MAX_NODES" in flags,
            "PREFER_MINIMUM_NODE_COUNT" in flags,
            "SPREAD_JOB" in flags,
        ),
        reason=intern(job.text("state_reason")),
        priority=job.number("priority"),
        # One number where both are the same, as for most jobs.
        eligible_time=submitted if eligible == submitted else eligible,
        dependency=job.text("dependency"),
        array_tasks=job.text("array_task_string").partition("%")[0],
        array_max_running=job.number("array_max_tasks"),
        account=intern(job.text("account")),
        qos=intern(job.text("qos")),
        het_job_id=job.number("het_job_id"),
        het_job_ids=job.text("het_job_id_set"),
    )


@lru_cache(maxsize=4096)
def _request(partitions: str, tres: str, node_count: int, *fields: Any) -> JobRequest:
    """Return one object for all jobs that request the same.

    `node_count` of a pending job is what Slurm expects the job to get on the nodes that it has. The
    number that the job requests is a part of `tres` ("cpu=4,mem=1G,node=2").
    """
    requested = [item.removeprefix("node=") for item in tres.split(",") if item.startswith("node=")]
    nodes = int(requested[0]) if requested and requested[0].isdecimal() else node_count
    return JobRequest(tuple(filter(None, partitions.split(","))), nodes, *fields)
