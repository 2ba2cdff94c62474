"""Requests about jobs."""

from collections.abc import Callable
from sys import intern
from typing import Any, TypedDict, TypeVar

from sidecars.slurm.protocol.fields import Fields, WrongField
from sidecars.slurm.protocol.request import Request, Streamed, no_news, since
from sidecars.slurm.records import Job, Jobs

J = TypeVar("J", bound=Job)


def get_jobs(update_time: int | None = None) -> Request[Jobs | None]:
    """All jobs; with `update_time`, None when no job changed in that second or later."""
    read = _jobs if update_time is None else _jobs_since
    return Request("GET", "jobs/", since(update_time), read=read, unchanged=no_news, all_jobs=JOBS)


def _jobs(answer: Fields) -> Jobs:
    return Jobs(answer.records("jobs", Job, _job), answer.number("last_update"))


def _jobs_since(answer: Fields) -> Jobs | None:
    jobs = _jobs(answer)
    return None if not jobs.jobs and jobs.last_update == 0 else jobs


class JobFields(TypedDict, total=False):
    """The fields of a job's record that `_job` reads, before their types are checked."""

    job_id: Any
    job_state: Any
    name: Any
    partition: Any
    user_name: Any
    nodes: Any
    submit_time: Any
    start_time: Any
    end_time: Any
    time_limit: Any
    cpus: Any
    node_count: Any


def job_or_fields(fields: JobFields) -> Job | JobFields:
    """The Job, or the fields as given when one is wrong: `decode` finds it again and reports its place."""
    try:
        return _job(Fields(fields, ""))
    except WrongField:
        return fields


JOBS = Streamed(JobFields, job_or_fields)
"""How the answer with all jobs is read as it arrives."""


def _job(job: Fields) -> Job:
    return job_of(Job, job)


def job_of(kind: Callable[..., J], job: Fields, **more: Any) -> J:
    """A job of an answer as a Job or a kind of it, which has `more` fields."""
    return kind(
        job_id=job.number("job_id"),
        states=job.states("job_state"),
        name=job.text("name"),
        partition=intern(job.text("partition")),
        user_name=intern(job.text("user_name")),
        nodes=job.text("nodes"),
        submit_time=job.number("submit_time"),
        start_time=job.number("start_time"),
        end_time=job.number("end_time"),
        time_limit=job.number_or_none("time_limit"),
        cpus=job.number("cpus"),
        node_count=job.number("node_count"),
        **more,
    )
