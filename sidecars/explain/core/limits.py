"""The limits of associations and QOS with their values and present use: what `scontrol -o show
assoc_mgr` prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sidecars.slurm.job_reasons import Limit

_NUMBER = re.compile(r"([0-9]+)(?:\(([0-9.]+)\))?")
_ASSOCIATION = re.compile(
    r"ClusterName=\S+ Account=(\S+) UserName=([^(\s]*)(?:.* ParentAccount=([^(\s]*))?"
)
_MINUTES = ("Mins", "Wall")


@dataclass(frozen=True, slots=True)
class Value:
    """A limit that is set."""

    holder: str
    """`QOS normal`, `account physics`, `user ada in account physics`."""
    key: str
    """`GrpTRES=cpu`, `MaxJobs`, …"""
    limit: int
    used: float | None
    """None where Slurm reports no use: the limit is that of one job."""

    def __str__(self) -> str:
        used = "" if self.used is None else f", {self.used:g} in use"
        unit = " minutes" if any(word in self.key for word in _MINUTES) else ""
        return f"{self.holder}: {self.key}={self.limit}{unit}{used}"


def values(
    text: str, limit: Limit, user: str, account: str, qos: frozenset[str]
) -> tuple[Value, ...]:
    """Return the values of a limit that apply to a job. Lines of another form are skipped.

    `qos`: the job's and its partition's. Those of associations begin with the user, then come the
    account and those above it: the limits of a group of jobs (`Grp…`) apply to all accounts below.
    Other limits are inherited, so that the job's own association has them.
    """
    found: list[Value] = []
    lines = text.splitlines()
    if limit.of_qos:
        for line in lines:
            for holder, part in _of_qos(line, limit, user, account, qos):
                found += _in(part, holder, limit)
        return tuple(dict.fromkeys(found))
    associations = [
        (it[1], it[2], it[3], line)
        for line in lines
        if (it := _ASSOCIATION.match(line)) is not None
    ]
    for holder, line in _of_associations(
        associations, user, account, above=limit.key.startswith("Grp")
    ):
        found += _in(line, holder, limit)
    return tuple(dict.fromkeys(found))


def _of_associations(
    associations: Sequence[tuple[str, str, str, str]], user: str, account: str, *, above: bool
) -> Iterator[tuple[str, str]]:
    """Yield the holders and lines that apply. `associations` have account, user, account above and
    line of each.
    """
    yield from (
        (f"user {user} in account {account}", it[3])
        for it in associations
        if it[:2] == (account, user)
    )
    lines = {it[0]: (it[2], it[3]) for it in associations if not it[1]}
    name, seen = account, set[str]()
    while name in lines and name not in seen and (above or name == account):
        seen.add(name)
        parent, line = lines[name]
        yield f"account {name}" if name == account else f"account {name}, above {account}", line
        name = parent


def _of_qos(
    line: str, limit: Limit, user: str, account: str, qos: frozenset[str]
) -> Iterator[tuple[str, str]]:
    found = re.match(r"QOS=([^(\s]+)\(", line)
    if found is None or found[1] not in qos:
        return
    holder = f"QOS {found[1]}"
    whole, _, users = line.partition("User Limits")
    whole, _, accounts = whole.partition("Account Limits")
    if not limit.key.endswith(("PU", "PA")):
        yield holder, whole
        return
    part, name = (
        (users, rf"{re.escape(user)}\(\d+\)")
        if limit.key.endswith("PU")
        else (accounts, re.escape(account))
    )
    used = re.search(rf"(?:^|[\s=]){name}=\{{(.*?)\}}", part)
    if used is not None:
        yield (
            f"{holder}, {'user ' + user if limit.key.endswith('PU') else 'account ' + account}",
            used[1],
        )


def _in(part: str, holder: str, limit: Limit) -> Iterator[Value]:
    found = re.search(rf"(?:^|\s){limit.key}=(\S*)", part)
    if found is None:
        return
    if not limit.tres:
        number = _NUMBER.match(found[1])
        if number is not None:
            yield Value(holder, limit.key, int(number[1]), float(number[2]) if number[2] else None)
        return
    for item in found[1].split(","):
        name, _, value = item.rpartition("=")
        number = _NUMBER.match(value)
        if number is not None and (limit.tres == "?" or name.split("/")[0] == limit.tres):
            yield Value(
                holder,
                f"{limit.key}={name}",
                int(number[1]),
                float(number[2]) if number[2] else None,
            )
