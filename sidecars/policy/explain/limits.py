"""The limits of associations and QOS with their values and present use: what `scontrol -o show assoc_mgr` prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecars.policy.explain.words import Limit

_NUMBER = re.compile(r"([0-9]+)(?:\(([0-9.]+)\))?")
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


def values(text: str, limit: Limit, user: str, account: str, qos: frozenset[str]) -> tuple[Value, ...]:
    """The values of a limit that apply to a job, in Slurm's order. Lines of another form are skipped.

    `qos`: the job's and its partition's. Limits of accounts above `account` are not among them.
    """
    found: list[Value] = []
    for line in text.splitlines():
        for holder, part in _parts(line, limit, user, account, qos):
            found += _in(part, holder, limit)
    return tuple(dict.fromkeys(found))


def _parts(line: str, limit: Limit, user: str, account: str, qos: frozenset[str]) -> Iterator[tuple[str, str]]:
    if limit.of_qos:
        found = re.match(r"QOS=([^(\s]+)\(", line)
        if found is None or found[1] not in qos:
            return
        holder = f"QOS {found[1]}"
        whole, _, users = line.partition("User Limits")
        whole, _, accounts = whole.partition("Account Limits")
        if limit.key.endswith(("PU", "PA")):
            part, name = (
                (users, rf"{re.escape(user)}\(\d+\)") if limit.key.endswith("PU") else (accounts, re.escape(account))
            )
            used = re.search(rf"(?:^|[\s=]){name}=\{{(.*?)\}}", part)
            if used is not None:
                yield f"{holder}, {'user ' + user if limit.key.endswith('PU') else 'account ' + account}", used[1]
            return
        yield holder, whole
        return
    found = re.match(r"ClusterName=\S+ Account=(\S+) UserName=([^(\s]*)", line)
    if found is not None and found[1] == account and found[2] in ("", user):
        yield f"user {user} in account {account}" if found[2] else f"account {account}", line


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
            yield Value(holder, f"{limit.key}={name}", int(number[1]), float(number[2]) if number[2] else None)
