"""The changes that bring slurmctld to the declared reservations.

slurmctld deletes a reservation at its end, and moves the start of one that recurs. The rest stays
as it is.
"""

import math
from collections.abc import Iterator

from sidecars.operator.accounts.core.declared import Declared, Reservation
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.step import Change, named
from sidecars.slurm import protocol
from sidecars.slurm.hostlists import HostlistError, expand
from sidecars.slurm.records import Reservation as Record

PERIODS = {"HOURLY": 3600, "DAILY": 86400, "WEEKLY": 7 * 86400}
FLAGS = frozenset(
    {"MAINT", "IGNORE_JOBS", "FLEX", "OVERLAP", "NO_HOLD_JOBS_AFTER_END", "MAGNETIC", *PERIODS}
)
_MINUTE = 60
_YEAR = 365 * 24 * 60
"""Minutes that slurmctld gives to a reservation without an end."""
_LATE = 300.0
"""Seconds after which slurmctld may refuse a start for being in the past: it does after ten
minutes.
"""


def faults(declared: Declared, live: Live) -> Iterator[str]:
    """Yield why nothing is applied: each with place, value and remedy."""
    for name, it in declared.reservations.items():
        place = f"reservations.{name}"
        if not (it.users or it.accounts):
            yield f"{place}: set users or accounts, who may use it"
        accounts = {*declared.accounts, *live.accounts_here}
        for account in sorted(set(it.accounts) - accounts):
            yield (
                f"{place}.accounts: no account `{account}` exists; add it to accounts, or correct "
                "the name"
            )
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
            yield (
                f"{place}.flags: it can recur in one way only; remove all but one of "
                f"{', '.join(PERIODS)}"
            )
        if it.minutes is None and set(it.flags) & PERIODS.keys():
            yield f"{place}.minutes: a reservation that recurs needs it; set it"


def left(declared: Declared, live: Live, now: float) -> list[str]:
    """Return what is to be reported of reservations that are over, and of fields that Slurm can't
    change now.
    """
    texts = []
    for name, reservation in sorted(declared.reservations.items()):
        start = _start(reservation, now)
        record = live.reservations.get(name)
        if _end(reservation, start) <= now:
            texts.append(f"reservation {name} is over; remove it, or set a later startTime")
        elif record is not None:
            if _moved(reservation, record, start, now):
                texts.append(
                    f"reservation {name} has begun, and keeps its start and duration until its "
                    "end; rename it to change them now"
                )
            if reservation.nodes is None and _partition(reservation, record) is not None:
                texts.append(
                    f"reservation {name} isn't in the partition {reservation.partition}, and Slurm "
                    "keeps the nodes that it has chosen; delete it, and the operator creates it "
                    "there"
                )
    return texts


def changes(declared: Declared, live: Live, now: float) -> Iterator[Change]:
    """Create those that are missing and not over, and correct what differs in the others."""
    for name, reservation in sorted(declared.reservations.items()):
        start = _start(reservation, now)
        record = live.reservations.get(name)
        if record is None and _end(reservation, start) > now:
            minutes = reservation.minutes
            if start < now - _LATE:
                # It is on: the rest of it.
                minutes = (
                    None if minutes is None else max(1, int(_end(reservation, start) - now) // 60)
                )
                start = now
            request = protocol.save_reservation(
                name,
                start_time=int(start),
                minutes=protocol.UNLIMITED if minutes is None else minutes,
                nodes=reservation.node_count if reservation.nodes is None else _nodes(reservation),
                partition=reservation.partition,
                users=reservation.users,
                accounts=reservation.accounts,
                flags=sorted(reservation.flags),
            )
            yield Change(f"add reservation {name}", request, (named("reservation", name),))
        elif record is not None:
            yield from _change(name, reservation, record, start, now)


def _change(
    name: str, reservation: Reservation, record: Record, start: float, now: float
) -> Iterator[Change]:
    texts: list[str] = []
    nodes = _nodes(reservation)
    if nodes is not None and set(nodes) != set(record.node_names()):
        texts.append(f"nodes={','.join(reservation.nodes or ())}")
    else:
        nodes = None
    count = reservation.node_count
    if count is not None and count != len(record.node_names()):
        texts.append(f"nodeCount={count}")
    else:
        count = None
    users = _differing("users", reservation.users, record.users, texts)
    accounts = _differing("accounts", reservation.accounts, record.accounts, texts)
    flags = sorted(set(reservation.flags) - record.flags)
    if flags:
        texts.append(f"flags={','.join(flags)}")
    # Of nodes that Slurm has chosen, it would keep those of the former partition.
    partition = _partition(reservation, record) if reservation.nodes is not None else None
    if partition is not None:
        texts.append(f"partition={partition}")
    begun = record.start_time <= now
    moved = int(start) if not begun and not _begins(reservation, record, start) else None
    if moved is not None:
        texts.append(f"startTime={reservation.start_time.isoformat()}")
    shorter_or_longer = record.end_time - record.start_time != _MINUTE * (
        reservation.minutes or _YEAR
    )
    if not begun and shorter_or_longer:
        texts.append(f"minutes={reservation.minutes or 'unlimited'}")
    # With another start alone, slurmctld doesn't move the end of one without a duration.
    minutes = (
        (reservation.minutes or protocol.UNLIMITED)
        if not begun and (shorter_or_longer or moved is not None)
        else None
    )
    if texts:
        request = protocol.save_reservation(
            name,
            start_time=moved,
            minutes=minutes,
            nodes=count if nodes is None else nodes,
            partition=partition,
            users=users,
            accounts=accounts,
            flags=flags,
        )
        yield Change(f"change reservation {name}: {' '.join(texts)}", request)


def _begins(reservation: Reservation, record: Record, start: float) -> bool:
    """Return whether the reservation begins as declared. One that recurs begins at one of its
    times.
    """
    apart = int(record.start_time - start)
    for flag, seconds in PERIODS.items():
        if flag in reservation.flags:
            return apart % seconds == 0
    return abs(apart) < _MINUTE


def _moved(reservation: Reservation, record: Record, start: float, now: float) -> bool:
    """Return whether one that is on has other times than the declared ones. It may have been
    created after its start.
    """
    if not record.start_time <= now < record.end_time:
        return False
    if start > now and not _begins(reservation, record, start):
        return True
    return (
        reservation.minutes is not None
        and abs(record.end_time - _end(reservation, start)) >= 2 * _MINUTE
    )


def _partition(reservation: Reservation, record: Record) -> str | None:
    """Return the declared partition if Slurm has another one."""
    return reservation.partition if reservation.partition != record.partition else None


def _differing(
    field: str, asked: list[str], present: tuple[str, ...], texts: list[str]
) -> list[str] | None:
    if not asked or set(asked) == set(present):
        return None
    texts.append(f"{field}={','.join(asked)}")
    return asked


def _nodes(reservation: Reservation) -> list[str] | None:
    return (
        None
        if reservation.nodes is None
        else [name for each in reservation.nodes for name in expand(each)]
    )


def _start(reservation: Reservation, now: float) -> float:
    """Return the start, and of a reservation that recurs the start of the time that is on or comes
    next.
    """
    start = reservation.start_time.timestamp()
    for flag, seconds in PERIODS.items():
        if flag in reservation.flags:
            ended = now - start - _MINUTE * (reservation.minutes or 0)
            if ended >= 0:
                start += seconds * (1 + int(ended // seconds))
    return start


def _end(reservation: Reservation, start: float) -> float:
    if reservation.minutes is None:
        return math.inf
    return start + _MINUTE * reservation.minutes
