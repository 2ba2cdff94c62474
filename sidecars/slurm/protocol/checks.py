"""Requests about batch jobs of checks, and about the jobs that wait beside them.

Observed with Slurm 26.05:
- A memory of 0 is all memory of each node.
- Not even SlurmUser can requeue a job that was submitted with `requeue` false.
- A running job's own user can set its comment.
- A reservation can be created for a drained node. The node isn't usable before its drain is lifted,
  and then for the users of the reservation alone.
"""

import re
from typing import Any

from sidecars.slurm.checks import CheckJob, CheckRequest, WaitingJob
from sidecars.slurm.protocol.fields import Fields, WrongField
from sidecars.slurm.protocol.request import Request


def submit_check(job: CheckRequest) -> Request[int]:
    """Submit the job for the token's user; its id."""
    body: dict[str, Any] = {
        "name": job.name,
        "script": job.script,
        "partition": job.partition,
        "required_nodes": list(job.nodes),
        "nodes": str(len(job.nodes)),
        "tasks": len(job.nodes),
        "tasks_per_node": 1,
        "shared": ["none"],
        "memory_per_node": _number(0),
        "time_limit": _number(job.minutes),
        "deadline": job.deadline,
        "requeue": False,
        "environment": list(job.environment),
        "current_working_directory": "/",
        "standard_input": "/dev/null",
        "standard_output": "/dev/null",
        "standard_error": "/dev/null",
    }
    if job.reservation:
        body["reservation"] = job.reservation
    return Request(
        "POST", "job/submit", body={"job": body}, read=lambda answer: answer.number("job_id")
    )


def get_check_job(job_id: int) -> Request[CheckJob]:
    """Return a check's job. An unknown one is NotFound."""
    return Request("GET", f"job/{job_id}", read=lambda answer: _check(_one(answer)))


def get_waiting_ids() -> Request[frozenset[int]]:
    """Request the ids of all jobs that wait. Of an array, whose tasks may have no ids of their own
    yet, the answer has that of the array.
    """
    return Request("GET", "jobs/state/", read=_waiting_ids)


def get_waiting_job(job_id: int) -> Request[WaitingJob]:
    """Request a user's job. Of an array, the answer has a task that waits. An unknown one is
    NotFound.
    """
    return Request("GET", f"job/{job_id}", read=_waiting)


def _one(answer: Fields) -> Fields:
    jobs = list(answer.items("jobs"))
    if not jobs:
        raise WrongField("jobs", "should contain a job, is empty")
    return jobs[0]


def _check(job: Fields) -> CheckJob:
    return CheckJob(
        job_id=job.number("job_id"),
        states=job.states("job_state"),
        comment=job.text("comment"),
        exit_status=job.nested("exit_code").number("return_code"),
        restarts=job.number("restart_cnt"),
    )


def _waiting_ids(answer: Fields) -> frozenset[int]:
    found = set()
    for job in answer.items("jobs"):
        # `7`, `7_[1-9]` of an array, `7+0` of a heterogeneous job.
        number = re.match(r"[0-9]+", job.text("job_id", required=True))
        if number is not None and "PENDING" in job.states("state"):
            found.add(int(number[0]))
    return frozenset(found)


def _waiting(answer: Fields) -> WaitingJob:
    jobs = list(answer.items("jobs"))
    job = next((it for it in jobs if "PENDING" in it.states("job_state")), None) or _one(answer)
    return WaitingJob(
        job_id=job.number("job_id"),
        waits="PENDING" in job.states("job_state"),
        name=job.text("name"),
        partitions=job.words("partition"),
        reason=job.text("state_reason"),
        blocked=job.number_or_none("priority") == 0,
    )


def _number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}
