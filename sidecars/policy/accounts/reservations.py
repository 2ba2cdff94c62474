"""The changes that bring slurmctld to the declared reservations.

slurmctld deletes a reservation at its end, and moves the start of one that recurs. The rest stays as it is.
"""

import math
from collections.abc import Iterator

from sidecars.policy.accounts.declared import Declared, Reservation
from sidecars.policy.accounts.live import Live
from sidecars.policy.accounts.step import Change, named
from sidecars.slurm import protocol
from sidecars.slurm.hostlists import HostlistError, expand
from sidecars.slurm.records import Reservation as Record

PERIODS = {"HOURLY": 3600, "DAILY": 86400, "WEEKLY": 7 * 86400}
FLAGS = frozenset({"MAINT", "IGNORE_JOBS", "FLEX", "OVERLAP", "NO_HOLD_JOBS_AFTER_END", "MAGNETIC", *PERIODS})
_MINUTE = 60
_YEAR = 365 * 24 * 60
"""Minutes that slurmctld gives to a reservation without an end."""
_LATE = 300.0
"""Seconds after which slurmctld may refuse a start for being in the past: it does after ten minutes."""


def faults(declared: Declared, live: Live) -> Iterator[str]:
    """Why nothing is applied: each with place, value and remedy."""
    for name, it in declared.reservations.items():
        place = f"reservations.{name}"
        if not (it.users or it.accounts):
            yield f"{place}: set users or accounts, who may use it"
        known = {*declared.accounts, *live.accounts_here}
        for account in sorted(set(it.accounts) - known):
            yield f"{place}.accounts: no account `{account}` exists; add it to accounts, or correct the name"
        if it.start_time.tzinfo is None:
            yield f"{place}.startTime: without a time zone; add it, for example `Z` or `+02:00`"
        if (it.nodes is None) == (it.node_count is None):
            yield f"{place}: set either nodes or nodeCount"
        if it.nodes is not None and not it.nodes:
            yield f"{place}.nodes: an empty list; name Slurm nodes"
        for each in it.nodes or ():
            try:
                expand(each)
            except HostlistError as error:
                yield f"{place}.nodes: {error}; write names, such as `gpu-[0-3]`"
        if it.minutes is not None and it.minutes < 1:
            yield f"{place}.minutes: {it.minutes} is not a number from 1"
        if it.node_count is not None and it.node_count < 1:
            yield f"{place}.nodeCount: {it.node_count} is not a number from 1"
        if unknown := sorted(set(it.flags) - FLAGS):
            yield f"{place}.flags: no flag `{unknown[0]}`; use some of {', '.join(sorted(FLAGS))}"
        if len(set(it.flags) & PERIODS.keys()) > 1:
            yield f"{place}.flags: it can recur in one way only; remove all but one of {', '.join(PERIODS)}"
        if it.minutes is None and set(it.flags) & PERIODS.keys():
            yield f"{place}.minutes: a reservation that recurs needs it; set it"


def left(declared: Declared, live: Live, now: float) -> list[str]:
    """What is to be reported of those that are over, and of fields that Slurm can't change now."""
    texts = []
    for name, wanted in sorted(declared.reservations.items()):
        start = _start(wanted, now)
        record = live.reservations.get(name)
        if _end(wanted, start) <= now:
            texts.append(f"reservation {name} is over; remove it, or set a later startTime")
        elif record is not None:
            if _moved(wanted, record, start, now):
                texts.append(
                    f"reservation {name} has begun, and keeps its start and duration until its end; rename it to change"
                    " them now"
                )
            if wanted.nodes is None and _partition(wanted, record) is not None:
                texts.append(
                    f"reservation {name} isn't in the partition {wanted.partition}, and Slurm keeps the nodes that it"
                    " has chosen; delete it, and the operator creates it there"
                )
    return texts


def changes(declared: Declared, live: Live, now: float) -> Iterator[Change]:
    """Create those that are missing and not over, and correct what differs in the others."""
    for name, wanted in sorted(declared.reservations.items()):
        start = _start(wanted, now)
        record = live.reservations.get(name)
        if record is None and _end(wanted, start) > now:
            minutes = wanted.minutes
            if start < now - _LATE:
                # It is on: the rest of it.
                minutes = None if minutes is None else max(1, int(_end(wanted, start) - now) // 60)
                start = now
            request = protocol.save_reservation(
                name,
                start_time=int(start),
                minutes=protocol.UNLIMITED if minutes is None else minutes,
                nodes=_nodes(wanted),
                node_count=wanted.node_count,
                partition=wanted.partition,
                users=wanted.users,
                accounts=wanted.accounts,
                flags=sorted(wanted.flags),
            )
            yield Change(f"add reservation {name}", request, (named("reservation", name),))
        elif record is not None:
            yield from _change(name, wanted, record, start, now)


def _change(name: str, wanted: Reservation, record: Record, start: float, now: float) -> Iterator[Change]:
    texts: list[str] = []
    nodes = _nodes(wanted)
    if nodes is not None and set(nodes) != set(record.node_names()):
        texts.append(f"nodes={','.join(wanted.nodes or ())}")
    else:
        nodes = None
    count = wanted.node_count
    if count is not None and count != len(record.node_names()):
        texts.append(f"nodeCount={count}")
    else:
        count = None
    users = _differing("users", wanted.users, record.users, texts)
    accounts = _differing("accounts", wanted.accounts, record.accounts, texts)
    flags = sorted(set(wanted.flags) - record.flags)
    if flags:
        texts.append(f"flags={','.join(flags)}")
    # Of nodes that Slurm has chosen, it would keep those of the former partition.
    partition = _partition(wanted, record) if wanted.nodes is not None else None
    if partition is not None:
        texts.append(f"partition={partition}")
    begun = record.start_time <= now
    moved = int(start) if not begun and not _begins(wanted, record, start) else None
    if moved is not None:
        texts.append(f"startTime={wanted.start_time.isoformat()}")
    shorter_or_longer = record.end_time - record.start_time != _MINUTE * (wanted.minutes or _YEAR)
    if not begun and shorter_or_longer:
        texts.append(f"minutes={wanted.minutes or 'unlimited'}")
    # With another start alone, slurmctld doesn't move the end of one without a duration.
    minutes = (wanted.minutes or protocol.UNLIMITED) if not begun and (shorter_or_longer or moved is not None) else None
    if texts:
        request = protocol.save_reservation(
            name,
            start_time=moved,
            minutes=minutes,
            nodes=nodes,
            node_count=count,
            partition=partition,
            users=users,
            accounts=accounts,
            flags=flags,
        )
        yield Change(f"change reservation {name}: {' '.join(texts)}", request)


def _begins(wanted: Reservation, record: Record, start: float) -> bool:
    """Whether it begins as declared: one that recurs, at one of its times."""
    apart = int(record.start_time - start)
    for flag, seconds in PERIODS.items():
        if flag in wanted.flags:
            return apart % seconds == 0
    return abs(apart) < _MINUTE


def _moved(wanted: Reservation, record: Record, start: float, now: float) -> bool:
    """Whether one that is on has other times than the declared ones. It may have been created after its start."""
    if not record.start_time <= now < record.end_time:
        return False
    if start > now and not _begins(wanted, record, start):
        return True
    return wanted.minutes is not None and abs(record.end_time - _end(wanted, start)) >= 2 * _MINUTE


def _partition(wanted: Reservation, record: Record) -> str | None:
    """The declared partition if Slurm has another one."""
    return wanted.partition if wanted.partition != record.partition else None


def _differing(field: str, wanted: list[str], present: tuple[str, ...], texts: list[str]) -> list[str] | None:
    if not wanted or set(wanted) == set(present):
        return None
    texts.append(f"{field}={','.join(wanted)}")
    return wanted


def _nodes(wanted: Reservation) -> list[str] | None:
    return None if wanted.nodes is None else [name for each in wanted.nodes for name in expand(each)]


def _start(wanted: Reservation, now: float) -> float:
    """Of one that recurs, the start of the time that is on or comes next."""
    start = wanted.start_time.timestamp()
    for flag, seconds in PERIODS.items():
        if flag in wanted.flags:
            ended = now - start - _MINUTE * (wanted.minutes or 0)
            if ended >= 0:
                start += seconds * (1 + int(ended // seconds))
    return start


def _end(wanted: Reservation, start: float) -> float:
    if wanted.minutes is None:
        return math.inf
    return start + _MINUTE * wanted.minutes
