"""slurmdbd's records of jobs, by way of slurmrestd.

slurmctld forgets a job MinJobAge after its end, slurmdbd doesn't. A slurmctld that has lost its
state gives ids again: slurmdbd then has several records of one id.

slurmdbd gets the admin comment with the end of the job, from slurmctld. A job that slurmdbd itself
ends, because slurmctld has started without its state, has none
(as_mysql_flush_jobs_on_cluster in Slurm's source).

Observed with Slurm 26.05: an unknown id is answered by 200 with an empty list.
"""

from sidecars.slurm.external import GUARD_OUTPUT, ExternalJob
from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.request import Request


def get_stored_job(job_id: int) -> Request[ExternalJob | None]:
    """Request the record that slurmdbd has of a job of this cluster: the last one, if the id was
    given several times, and None for an unknown id.

    Only ids, states, user, admin comment and times are filled in: slurmdbd has the comment with
    AccountingStoreFlags=job_comment alone. A job without the output of a guard counts as external.
    """
    return Request(
        "GET", f"job/{job_id}", read=lambda answer: _last(answer, job_id), service="slurmdb"
    )


def _last(answer: Fields, job_id: int) -> ExternalJob | None:
    jobs = [it for it in answer.items("jobs") if it.number("job_id") == job_id]
    last = max(jobs, key=lambda it: it.nested("time").number("submission"), default=None)
    return None if last is None else _job(last)


def _job(job: Fields) -> ExternalJob:
    het, times = job.nested("het"), job.nested("time")
    guard = job.text("stdout") == GUARD_OUTPUT
    return ExternalJob(
        job_id=job.number("job_id"),
        states=job.nested("state").states("current"),
        external=not guard,
        guard=guard,
        user_name=job.text("user"),
        admin_comment=job.nested("comment").text("administrator"),
        start_time=times.number("start"),
        end_time=times.number("end"),
        het_id=het.number("job_id"),
        het_offset=het.number("job_offset"),
        partition=job.text("partition"),
    )
