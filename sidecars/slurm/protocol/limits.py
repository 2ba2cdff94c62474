"""Limits of associations and QOS: sacctmgr's names, and their places in the records of the REST
API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecars.slurm.protocol.fields import Fields

NO_LIMIT = -1
"""As in sacctmgr: the value that removes a limit."""

ASSOCIATION_LIMITS: Mapping[str, str] = {
    "GrpJobs": "max.jobs.per.count",
    "GrpJobsAccrue": "max.jobs.per.accruing",
    "GrpSubmitJobs": "max.jobs.per.submitted",
    "GrpWall": "max.per.account.wall_clock",
    "MaxJobs": "max.jobs.active",
    "MaxJobsAccrue": "max.jobs.accruing",
    "MaxSubmitJobs": "max.jobs.total",
    "MaxWall": "max.jobs.per.wall_clock",
    "MinPrioThreshold": "min.priority_threshold",
    "Priority": "priority",
}
"""Limits of an association: sacctmgr's name, and the place in the record. Times are minutes."""

ASSOCIATION_TRES: Mapping[str, str] = {
    "GrpTRES": "max.tres.total",
    "GrpTRESMins": "max.tres.group.minutes",
    "GrpTRESRunMins": "max.tres.group.active",
    "MaxTRES": "max.tres.per.job",
    "MaxTRESPerNode": "max.tres.per.node",
    "MaxTRESMins": "max.tres.minutes.per.job",
    "MaxTRESRunMins": "max.tres.minutes.total",
}
"""Limits of an association for each TRES, likewise."""

QOS_LIMITS: Mapping[str, str] = {
    "GrpJobs": "limits.max.active_jobs.count",
    "GrpSubmitJobs": "limits.max.jobs.count",
    "GrpWall": "limits.max.wall_clock.per.qos",
    "MaxJobsPerAccount": "limits.max.jobs.active_jobs.per.account",
    "MaxJobsPerUser": "limits.max.jobs.active_jobs.per.user",
    "MaxSubmitJobsPerAccount": "limits.max.jobs.per.account",
    "MaxSubmitJobsPerUser": "limits.max.jobs.per.user",
    "MaxWall": "limits.max.wall_clock.per.job",
    "MinPrioThreshold": "limits.min.priority_threshold",
}
"""Limits of a QOS, likewise."""

QOS_TRES: Mapping[str, str] = {
    "GrpTRES": "limits.max.tres.total",
    "GrpTRESMins": "limits.max.tres.minutes.total",
    "GrpTRESRunMins": "limits.max.tres.minutes.per.qos",
    "MaxTRES": "limits.max.tres.per.job",
    "MaxTRESMins": "limits.max.tres.minutes.per.job",
    "MaxTRESPerAccount": "limits.max.tres.per.account",
    "MaxTRESPerNode": "limits.max.tres.per.node",
    "MaxTRESPerUser": "limits.max.tres.per.user",
    "MinTRES": "limits.min.tres.per.job",
}
"""Limits of a QOS for each TRES, likewise."""

INHERITED = frozenset(
    {name for name in (*ASSOCIATION_LIMITS, *ASSOCIATION_TRES) if name.startswith("Max")}
) | {
    "MinPrioThreshold",
    "Priority",
}
"""Limits that an association without its own has from its parent. Its record shows them as if they
were its own.
"""

Tres = Mapping[str, Mapping[str, int]]
"""By the name of a limit: a number for each TRES, such as `cpu` or `gres/gpu`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A change of limits, by their names. Others stay as they are; NO_LIMIT removes one."""

    numbers: Mapping[str, int] = field(default_factory=dict)
    tres: Tres = field(default_factory=dict)


NO_LIMITS = Limits()
"""Changes nothing."""


def read_limits(item: Fields, places: Mapping[str, str]) -> dict[str, int]:
    """Read the numbers at these places, by name. Those without a limit are missing."""
    found = (
        (name, _holder(item, place).number_or_none(_last(place))) for name, place in places.items()
    )
    return {name: number for name, number in found if number is not None}


def read_tres(item: Fields, places: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return the numbers for each TRES at these places, likewise."""
    found = {
        name: {
            tres_name(tres): tres.number("count")
            for tres in _holder(item, place).items(_last(place), optional=True)
        }
        for name, place in places.items()
    }
    return {name: counts for name, counts in found.items() if counts}


def tres_name(tres: Fields) -> str:
    """Return the name of a TRES, for example `cpu` or `gres/gpu`."""
    kind, name = tres.text("type", required=True), tres.text("name")
    return f"{kind}/{name}" if name else kind


def _holder(item: Fields, place: str) -> Fields:
    for part in place.split(".")[:-1]:
        item = item.nested(part)
    return item


def _last(place: str) -> str:
    return place.rpartition(".")[2]


def _put(body: dict[str, Any], place: str, value: object) -> None:
    *path, last = place.split(".")
    for part in path:
        body = body.setdefault(part, {})
    body[last] = value


def put_limits(body: dict[str, Any], places: Mapping[str, str], limits: Mapping[str, int]) -> None:
    """Write the limits into a request; NO_LIMIT removes one."""
    for name, number in limits.items():
        none = number == NO_LIMIT
        _put(
            body,
            places[name],
            {"set": False, "infinite": True} if none else {"set": True, "number": number},
        )


def put_tres(body: dict[str, Any], places: Mapping[str, str], tres: Tres) -> None:
    """Write the limits for each TRES into a request."""
    for name, counts in tres.items():
        listed = []
        for each, count in sorted(counts.items()):
            kind, _, label = each.partition("/")
            listed.append({"type": kind, "name": label, "count": count})
        _put(body, places[name], listed)
