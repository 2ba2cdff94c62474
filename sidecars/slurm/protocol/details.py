"""The requests of `explain`. `scontrol --json` prints the same answers, so that `decode` reads them
too.
"""

from sidecars.contract import bridge
from sidecars.slurm.details import JobDetail, PartitionDetail
from sidecars.slurm.external import GUARD_OUTPUT
from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.jobs import job_of
from sidecars.slurm.protocol.partitions import partition_of
from sidecars.slurm.protocol.queue import pending_of
from sidecars.slurm.protocol.request import Request, segment


def get_job_details(job_id: str) -> Request[tuple[JobDetail, ...]]:
    """Request the records of a job: several for a job array and a heterogeneous job."""
    return Request(
        "GET", f"job/{segment(job_id)}", read=lambda answer: tuple(map(_job, answer.items("jobs")))
    )


def get_partition_details() -> Request[tuple[PartitionDetail, ...]]:
    """Return all partitions."""
    return Request(
        "GET", "partitions/", read=lambda answer: tuple(map(_partition, answer.items("partitions")))
    )


def _job(job: Fields) -> JobDetail:
    states = job.states("job_state")
    guard = _is_guard(job, states)
    return job_of(
        JobDetail,
        job,
        array_job_id=job.number("array_job_id"),
        pending=pending_of(job) if "PENDING" in states else None,
        reason=job.text("state_reason"),
        description=job.text("state_description"),
        account=job.text("account"),
        qos=job.text("qos"),
        reservation=job.text("resv_name"),
        licenses=job.text("licenses"),
        last_evaluated=job.number("last_sched_evaluation"),
        exit_code=job.nested("exit_code").number("return_code"),
        exit_signal=job.nested("exit_code").nested("signal").number("id"),
        output=job.text("standard_output"),
        working_directory=job.text("current_working_directory"),
        restarts=job.number("restart_cnt"),
        array_task=job.number_or_none("array_task_id"),
        guard=guard,
        comment=(job.text("admin_comment") or job.text("comment")) if guard else "",
    )


def _is_guard(job: Fields, states: frozenset[str]) -> bool:
    """Recognize a guard by what only the bridge can write, or, if the job has not begun, by what
    the bridge submits.
    """
    if "EXTERNAL_JOB" in job.states("flags"):
        return False
    if job.text("admin_comment").startswith(bridge.ADMIN_COMMENT):
        return True
    return states == {"PENDING"} and job.text("standard_output") == GUARD_OUTPUT


def _partition(partition: Fields) -> PartitionDetail:
    accounts, qos = partition.nested("accounts"), partition.nested("qos")
    maximums = partition.nested("maximums")
    return partition_of(
        PartitionDetail,
        partition,
        max_minutes=maximums.number_or_none("time"),
        allow_accounts=_names(accounts.text("allowed")),
        allow_groups=_names(partition.nested("groups").text("allowed")),
        deny_accounts=_names(accounts.text("deny")),
        allow_qos=_names(qos.text("allowed")),
        deny_qos=_names(qos.text("deny")),
        qos=qos.text("assigned"),
        grace_time=partition.number("grace_time"),
        suspend_time=partition.number_or_none("suspend_time"),
        preempt_modes=frozenset(partition.words("preempt_mode")),
    )


def _names(text: str) -> tuple[str, ...]:
    return () if text.upper() == "ALL" else tuple(filter(None, text.split(",")))
