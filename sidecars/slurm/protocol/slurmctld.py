"""Requests about slurmctld itself."""

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.request import Request, nothing
from sidecars.slurm.records import Ping

RECONFIGURE_SECONDS = 75.0
"""For `reconfigure`: slurmctld answers when it has read its whole configuration."""


def ping() -> Request[tuple[Ping, ...]]:
    """Return whether each slurmctld of the configuration answers slurmrestd. Cheap, even when none
    does.
    """
    return Request("GET", "ping/", read=lambda answer: tuple(map(_ping, answer.items("pings"))))


def slurmctld_start() -> Request[int]:
    """Request when slurmctld started or was reconfigured, in seconds since the epoch. The answer is
    0 if it doesn't report it. Needs API v0.0.45 or later.
    """
    return Request(
        "GET", "conf", read=lambda answer: answer.nested("slurm_conf_meta").number("BOOT_TIME")
    )


def select_type_parameters() -> Request[tuple[str, ...]]:
    """Request what Slurm allocates, as words of SelectTypeParameters such as `CR_CORE_MEMORY`. The
    answer is () if it doesn't report it. Needs API v0.0.45 or later.
    """
    return Request(
        "GET", "conf", read=lambda answer: answer.nested("slurm_conf").words("SelectTypeParameters")
    )


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
