"""Requests about slurmctld itself."""

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.request import Request, nothing
from sidecars.slurm.records import Diag, Ping


def ping() -> Request[tuple[Ping, ...]]:
    """Whether each slurmctld of the configuration answers slurmrestd. Cheap, even when none does."""
    return Request("GET", "ping/", read=lambda answer: tuple(map(_ping, answer.items("pings"))))


def diag() -> Request[Diag]:
    """Counters of slurmctld."""
    return Request("GET", "diag/", read=_diag)


def slurmctld_start() -> Request[int]:
    """When slurmctld started, in seconds since the epoch; 0 if it doesn't say so. API v0.0.45 and later."""
    return Request("GET", "conf", read=lambda answer: answer.nested("slurm_conf_meta").number("BOOT_TIME"))


def reconfigure() -> Request[None]:
    """Make slurmctld read its configuration again."""
    return Request("GET", "reconfigure/", read=nothing)


def _ping(ping: Fields) -> Ping:
    return Ping(
        hostname=ping.text("hostname", required=True),
        responding=ping.flag("responding"),
        primary=ping.flag("primary"),
        status=ping.text("status"),
    )


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
