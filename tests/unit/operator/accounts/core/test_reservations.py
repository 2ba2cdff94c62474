"""Declared reservations: `sidecars.operator.accounts.core.reservations`."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sidecars.operator.accounts.core.declared import Declared
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.plan import plan
from sidecars.operator.accounts.core.reservations import changes, faults, left
from sidecars.slurm.records import Reservation
from tests.unit.operator.accounts.core.test_plan import declared

NOON = datetime(2027, 1, 10, 12, tzinfo=UTC)
NOW = NOON.timestamp()
HOUR, DAY = 3600, 86400
NOTHING = Live("slurm", {}, {}, {}, (), frozenset())
ONE = {"startTime": "2027-01-10T13:00:00Z", "minutes": 60, "nodes": ["n[1-2]"], "users": ["alice"]}


def one(**fields: Any) -> Declared:
    return declared(reservations={"one": ONE | fields})


def having(**fields: Any) -> Live:
    """slurmctld has the declared one, but for these fields."""
    start = int(NOW) + HOUR
    record = Reservation(
        "one", "n[1-2]", frozenset({"SPEC_NODES"}), ("alice",), (), "", start, start + HOUR
    )
    return replace(NOTHING, reservations={"one": replace(record, **fields)})


def texts(wanted: Declared, live: Live, now: float = NOW) -> list[str]:
    return [change.text for change in changes(wanted, live, now)]


def body(wanted: Declared, live: Live = NOTHING, now: float = NOW) -> dict[str, Any]:
    [change] = changes(wanted, live, now)
    assert change.request.body is not None
    return dict(change.request.body)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"users": []}, "set users or accounts"),
        ({"accounts": ["physics"]}, "accounts: no account `physics` exists"),
        ({"startTime": "2027-01-10T13:00:00"}, "startTime: without a time zone"),
        ({"nodeCount": 1}, "set either nodes or nodeCount"),
        ({"nodes": None}, "set either nodes or nodeCount"),
        ({"nodes": []}, "nodes: an empty list"),
        ({"nodes": ["n[1-"]}, "write names, such as"),
        ({"nodes": None, "nodeCount": 0}, "nodeCount: 0 is not a number from 1"),
        ({"minutes": 0}, "minutes: 0 is not a number from 1"),
        ({"flags": ["DAILY", "WEEKLY"]}, "flags: it can recur in one way only"),
        ({"flags": ["MAINTENANCE"]}, "flags: no flag `MAINTENANCE`"),
        ({"flags": ["DAILY"], "minutes": None}, "minutes: a reservation that recurs needs it"),
    ],
)
def test_each_fault_is_named_with_its_place(fields: dict[str, Any], fault: str) -> None:
    [found] = faults(one(**fields), NOTHING)
    assert found.startswith("reservations.one")
    assert fault in found


def test_what_slurmctld_has_as_declared_is_not_written() -> None:
    assert list(faults(one(), NOTHING)) == []
    assert texts(one(), having()) == []


@pytest.mark.parametrize(
    ("live", "text"),
    [
        ({"node_list": "n1"}, "nodes=n[1-2]"),
        ({"users": ("bob",)}, "users=alice"),
        (
            {"start_time": int(NOW) + 2 * HOUR, "end_time": int(NOW) + 3 * HOUR},
            "startTime=2027-01-10T13:00:00+00:00",
        ),
        ({"end_time": int(NOW) + 3 * HOUR}, "minutes=60"),
        ({"partition": "all"}, "partition=gpu"),
    ],
)
def test_a_field_that_differs_is_set_back(live: dict[str, Any], text: str) -> None:
    wanted = one(partition="gpu")
    assert texts(wanted, having(**{"partition": "gpu"} | live)) == [
        f"change reservation one: {text}"
    ]


def test_fields_that_are_set_back_are_in_the_request() -> None:
    wanted = one(
        nodes=["n3"],
        users=["bob"],
        accounts=["physics"],
        flags=["MAINT"],
        partition="gpu",
        minutes=30,
    )
    assert body(wanted, having()) == {
        "name": "one",
        "duration": {"set": True, "number": 30},
        "node_list": ["n3"],
        "partition": "gpu",
        "users": ["bob"],
        "accounts": ["physics"],
        "flags": ["MAINT"],
    }


def test_what_is_not_declared_stays() -> None:
    assert (
        texts(
            one(),
            having(
                partition="gpu", accounts=("physics",), flags=frozenset({"MAINT", "SPEC_NODES"})
            ),
        )
        == []
    )


def test_an_end_is_removed_from_one_that_is_declared_without() -> None:
    wanted = one(minutes=None)
    assert texts(wanted, having()) == ["change reservation one: minutes=unlimited"]
    assert body(wanted, having())["duration"] == {"set": True, "infinite": True}
    assert texts(wanted, having(end_time=int(NOW) + HOUR + 365 * DAY)) == []


def test_a_changed_partition_of_a_reservation_with_nodes_that_slurm_chose_is_reported() -> None:
    wanted = one(nodes=None, nodeCount=2, partition="gpu")
    assert texts(wanted, having(partition="all")) == []
    [words] = plan(wanted, having(partition="all"), ()).left
    assert words.startswith("reservation one isn't in the partition gpu, and Slurm keeps the nodes")
    assert words.endswith("delete it, and the operator creates it there")
    assert plan(wanted, having(partition="gpu"), ()).left == ()


def test_a_missing_flag_is_added_and_others_stay() -> None:
    wanted = one(flags=["MAINT"])
    assert texts(wanted, having()) == ["change reservation one: flags=MAINT"]
    assert texts(wanted, having(flags=frozenset({"MAINT", "FLEX"}))) == []


def test_the_times_of_one_that_has_begun_stay() -> None:
    begun = having(start_time=int(NOW) - 10, end_time=int(NOW) + 10)
    assert texts(one(), begun) == []
    assert texts(one(users=["bob"]), begun) == ["change reservation one: users=bob"]


@pytest.mark.parametrize(
    ("fields", "begun", "end", "reported"),
    [
        ({}, -HOUR // 2, HOUR // 2, True),  # moved to 13:00
        ({"startTime": "2027-01-10T11:30:00Z"}, -HOUR // 2, HOUR // 2, False),
        ({"startTime": "2027-01-10T11:30:00Z", "minutes": 120}, -HOUR // 2, HOUR // 2, True),
        ({"startTime": "2027-01-10T11:30:00Z", "minutes": None}, -HOUR // 2, 365 * DAY, False),
        # One that was created after its start, for the rest of its time.
        ({"startTime": "2027-01-10T11:30:00Z"}, -60, HOUR // 2 - 60, False),
        # One that recurs: on its way to its next time, and moved.
        ({"startTime": "2027-01-09T11:00:00Z", "flags": ["DAILY"]}, -HOUR, 0, False),
        ({"startTime": "2027-01-09T11:30:00Z", "flags": ["DAILY"]}, -HOUR // 2, HOUR // 2, False),
        ({"startTime": "2027-01-09T13:30:00Z", "flags": ["DAILY"]}, -HOUR // 2, HOUR // 2, True),
    ],
)
def test_other_times_of_one_that_has_begun_are_reported(
    fields: dict[str, Any], begun: int, end: int, *, reported: bool
) -> None:
    wanted = one(**fields)
    record = having(
        start_time=int(NOW) + begun, end_time=int(NOW) + end, flags=frozenset({"DAILY"})
    )
    text = (
        "reservation one has begun, and keeps its start and duration until its end; rename it to "
        "change them now"
    )
    assert texts(wanted, record) == []
    assert left(wanted, record, NOW) == ([text] if reported else [])


def test_one_that_is_on_is_created_for_the_rest_of_its_time_and_one_that_is_over_is_not() -> None:
    late = NOW + HOUR + 45 * 60
    found = body(one(), now=late)
    assert (found["start_time"]["number"], found["duration"]["number"]) == (int(late), 15)
    assert texts(one(), NOTHING, NOW + 2 * HOUR) == []
    assert left(one(), NOTHING, NOW + 2 * HOUR) == [
        "reservation one is over; remove it, or set a later startTime"
    ]
    assert left(one(), NOTHING, late) == []


def test_one_without_an_end_is_never_over_and_one_that_recurs_begins_at_its_next_time() -> None:
    later = NOW + 10 * DAY
    assert body(one(minutes=None), now=later)["duration"] == {"set": True, "infinite": True}
    daily = one(flags=["DAILY"])
    assert left(daily, NOTHING, later) == []
    assert body(daily, now=later)["start_time"]["number"] == int(later) + HOUR
    assert texts(
        daily, having(flags=frozenset({"DAILY"}), start_time=int(NOW) + HOUR + DAY), NOW
    ) == ["change reservation one: minutes=60"]


def test_slurm_chooses_the_nodes_of_one_with_a_number_of_them() -> None:
    wanted = one(nodes=None, nodeCount=2, partition="gpu")
    found = body(wanted)
    assert (found["node_count"]["number"], found["partition"], "node_list" in found) == (
        2,
        "gpu",
        False,
    )
    assert texts(wanted, having()) == []
    assert texts(wanted, having(node_list="n3")) == ["change reservation one: nodeCount=2"]


def test_prune_deletes_what_was_created_from_a_declaration_and_no_other_reservation() -> None:
    nothing = declared(prune=True)
    assert plan(nothing, having(), ()).changes == ()
    [change] = plan(nothing, having(), ["reservation/one"]).changes
    assert change.text == "delete reservation one"


def test_a_declaration_with_an_unknown_field_can_not_be_read() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"reservations": {"one": ONE | {"node": "x"}}}, Declared)
