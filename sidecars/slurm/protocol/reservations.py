"""Requests about reservations."""

from collections.abc import Iterable, Sequence
from typing import Any

from sidecars.slurm import hostlists
from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.request import Request, named, nothing, segment
from sidecars.slurm.records import Reservation

UNLIMITED = -1
"""Minutes of a reservation without an end."""


def get_reservations() -> Request[tuple[Reservation, ...]]:
    """Return all reservations."""
    return Request(
        "GET",
        "reservations/",
        read=lambda answer: tuple(map(reservation_record, answer.items("reservations"))),
    )


def save_reservation(
    name: str,
    *,
    start_time: int | None = None,
    minutes: int | None = None,
    nodes: Iterable[str] | int | None = None,
    partition: str | None = None,
    users: Sequence[str] | None = None,
    accounts: Sequence[str] | None = None,
    flags: Sequence[str] = (),
) -> Request[None]:
    """Create the reservation of that name, or change it if it exists. None doesn't change a field
    of it.

    A new one needs `start_time`, `minutes`, `nodes`, and one of `users` and `accounts`. `nodes`:
    their names, or a number of nodes, which Slurm chooses. With names, Slurm adds the flag
    SPEC_NODES. UNLIMITED minutes are a year. Raises HostlistError for a name that no node can have.

    A change of `partition` alone, or with the same number of nodes, keeps the nodes.

    - Rejected with 2000: an unknown partition.
    - NotFound: an unknown node.
    - Rejected with 2053: something is missing, or FORCE_START without recurrence.
    - Rejected with 2054: a start more than ten minutes ago.
    - Rejected with 2104: another start of one that has begun.
    - Rejected with 9207: an unknown flag. The reservation is created in spite of it.
    """
    body: dict[str, Any] = {"name": named(name)}
    count = nodes if isinstance(nodes, int) else None
    numbers = {"start_time": start_time, "duration": minutes, "node_count": count}
    body.update(
        (key, {"set": True, "number": number})
        for key, number in numbers.items()
        if number is not None
    )
    if nodes is not None and not isinstance(nodes, int):
        body["node_list"] = [hostlists.compress(nodes)]
    if minutes == UNLIMITED:
        body["duration"] = {"set": True, "infinite": True}
    if partition is not None:
        body["partition"] = partition
    for key, names in (("users", users), ("accounts", accounts)):
        if names:
            body[key] = list(names)
    if flags:
        body["flags"] = list(flags)
    return Request("POST", "reservation", body=body, read=nothing)


def close_nodes(
    name: str, nodes: Iterable[str], *, start_time: int | None, end_time: int | None
) -> Request[None]:
    """Create or change the reservation of that name: from now on until `end_time`, no job but
    root's gets one of the nodes. None doesn't change the time. Errors as by `save_reservation`.

    It ignores jobs: those that have the nodes keep them. And it may overlap with others.
    """
    times = {"start_time": start_time, "end_time": end_time}
    return Request(
        "POST",
        "reservation",
        body={
            "name": named(name),
            "node_list": [hostlists.compress(nodes)],
            "users": ["root"],
            "flags": ["IGNORE_JOBS", "OVERLAP"],
            **{
                key: {"set": True, "number": number}
                for key, number in times.items()
                if number is not None
            },
        },
        read=nothing,
    )


def delete_reservation(name: str) -> Request[None]:
    """Delete a reservation. An unknown one is NotFound."""
    return Request("DELETE", f"reservation/{segment(name)}", read=nothing)


def reservation_record(reservation: Fields) -> Reservation:
    """Return a reservation of an answer."""
    return Reservation(
        name=reservation.text("name", required=True),
        node_list=reservation.text("node_list"),
        flags=frozenset(reservation.words("flags")),
        users=reservation.words("users"),
        accounts=reservation.words("accounts"),
        partition=reservation.text("partition"),
        start_time=reservation.number("start_time"),
        end_time=reservation.number("end_time"),
    )
