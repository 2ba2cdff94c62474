"""Requests about jobs."""

from collections.abc import Callable
from sys import intern
from typing import Any, TypedDict, TypeVar

from sidecars.slurm.protocol.fields import Fields, WrongField
from sidecars.slurm.protocol.request import Request, Streamed, no_news, nothing, since
from sidecars.slurm.records import Job, Jobs

J = TypeVar("J", bound=Job)
L = TypeVar("L")
R = TypeVar("R")


def get_jobs(update_time: int | None = None) -> Request[Jobs | None]:
    """Request all jobs. With `update_time`, the answer is None when no job changed in that second
    or later.
    """
    return all_jobs(update_time, JobFields, Job, _job, Jobs)


def start_now(job_id: int) -> Request[None]:
    """Let a pending job start at any time from now on. Slurm has a job wait for two minutes that it
    has requeued.
    """
    return Request(
        "POST", f"job/{job_id}", body={"begin_time": {"set": True, "number": 1}}, read=nothing
    )


class JobFields(TypedDict, total=False):
    """The fields of a job's record that `_job` reads, before their types are checked."""

    job_id: Any
    job_state: Any
    name: Any
    partition: Any
    user_name: Any
    nodes: Any
    scheduled_nodes: Any
    required_nodes: Any
    submit_time: Any
    start_time: Any
    end_time: Any
    time_limit: Any
    cpus: Any
    node_count: Any


def all_jobs(
    update_time: int | None,
    fields: type,
    kind: type[R],
    record: Callable[[Fields], R],
    listed: Callable[[tuple[R, ...], int], L],
) -> Request[L | None]:
    """Return the request for all jobs as records of this kind, of which `fields` (a TypedDict) are
    decoded.

    `listed` builds the list, given the records and the server's time of it. With `update_time`, the
    answer is None when no job changed in that second or later.
    """

    def read(answer: Fields) -> L | None:
        jobs, last_update = answer.records("jobs", kind, record), answer.number("last_update")
        return (
            None
            if update_time is not None and not jobs and last_update == 0
            else listed(jobs, last_update)
        )

    streamed = stream(fields, record)
    return Request(
        "GET", "jobs/", since(update_time), read=read, unchanged=no_news, all_jobs=streamed
    )


def stream(fields: type, record: Callable[[Fields], object]) -> Streamed:
    """Return how the answer with all jobs is read as it arrives."""

    def record_or_fields(found: Any) -> Any:
        try:
            return record(Fields(found, ""))
        except WrongField:
            return found

    return Streamed(fields, record_or_fields)


def _job(job: Fields) -> Job:
    return job_of(Job, job)


def job_of(kind: Callable[..., J], job: Fields, **more: Any) -> J:
    """Return a job of an answer as a Job or a kind of it, which has `more` fields."""
    return kind(
        job_id=job.number("job_id"),
        states=job.states("job_state"),
        name=job.text("name"),
        partition=intern(job.text("partition")),
        user_name=intern(job.text("user_name")),
        nodes=job.text("nodes"),
        scheduled_nodes=intern(job.text("scheduled_nodes")),
        required_nodes=intern(job.text("required_nodes")),
        submit_time=job.number("submit_time"),
        start_time=job.number("start_time"),
        end_time=job.number("end_time"),
        time_limit=job.number_or_none("time_limit"),
        cpus=job.number("cpus"),
        node_count=job.number("node_count"),
        **more,
    )


JOBS = stream(JobFields, _job)
