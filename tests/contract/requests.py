"""Requests of `sidecars.slurm.protocol`'s kind that no role of the product sends: the scenarios
alone do.
"""

from dataclasses import dataclass

from sidecars.slurm import protocol
from sidecars.slurm.protocol import Fields, Request
from sidecars.slurm.protocol.request import nothing, segment
from sidecars.slurm.records import Job, Reservation


@dataclass(frozen=True, slots=True)
class Diag:
    """Counters of slurmctld (sdiag)."""

    request_time: int = 0
    server_thread_count: int = 0
    agent_queue_size: int = 0
    jobs_submitted: int = 0
    jobs_started: int = 0
    jobs_completed: int = 0
    jobs_pending: int = 0
    jobs_running: int = 0
    schedule_cycle_last: int = 0
    """Microseconds."""


def get_job(job_id: int) -> Request[Job]:
    """One job. NotFound for one that slurmctld has never known or has already forgotten."""
    return Request("GET", f"job/{job_id}", read=_one_job)


def cancel_job(job_id: int) -> Request[None]:
    """Cancel a job. NotFound as for `get_job`."""
    return Request("DELETE", f"job/{job_id}", read=nothing)


def get_reservation(name: str) -> Request[Reservation]:
    """One reservation. An unknown one is NotFound."""
    return Request("GET", f"reservation/{segment(name)}", read=_one_reservation)


def diag() -> Request[Diag]:
    """Counters of slurmctld."""
    return Request("GET", "diag/", read=_diag)


def _one_job(answer: Fields) -> Job:
    jobs = protocol.get_jobs().read(answer)
    assert jobs is not None
    [job] = jobs.jobs
    return job


def _one_reservation(answer: Fields) -> Reservation:
    [reservation] = protocol.get_reservations().read(answer)
    return reservation


def _diag(answer: Fields) -> Diag:
    statistics = answer.nested("statistics")
    return Diag(
        request_time=statistics.number("req_time"),
        server_thread_count=statistics.number("server_thread_count"),
        agent_queue_size=statistics.number("agent_queue_size"),
        jobs_submitted=statistics.number("jobs_submitted"),
        jobs_started=statistics.number("jobs_started"),
        jobs_completed=statistics.number("jobs_completed"),
        jobs_pending=statistics.number("jobs_pending"),
        jobs_running=statistics.number("jobs_running"),
        schedule_cycle_last=statistics.number("schedule_cycle_last"),
    )
