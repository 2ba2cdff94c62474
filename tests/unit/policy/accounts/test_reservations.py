"""Declared reservations: `sidecars.policy.accounts.reservations`."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sidecars.policy.accounts.declared import Declared
from sidecars.policy.accounts.live import Live
from sidecars.policy.accounts.plan import plan
from sidecars.policy.accounts.reservations import changes, faults, over
from sidecars.slurm.records import Reservation
from tests.unit.policy.accounts.test_plan import declared

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
    record = Reservation("one", "n[1-2]", frozenset({"SPEC_NODES"}), ("alice",), (), "", start, start + HOUR)
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
        ({"start_time": int(NOW) + 2 * HOUR, "end_time": int(NOW) + 3 * HOUR}, "startTime=2027-01-10T13:00:00+00:00"),
        ({"end_time": int(NOW) + 3 * HOUR}, "minutes=60"),
    ],
)
def test_a_field_that_differs_is_set_back(live: dict[str, Any], text: str) -> None:
    assert texts(one(), having(**live)) == [f"change reservation one: {text}"]


def test_a_missing_flag_is_added_and_others_stay() -> None:
    wanted = one(flags=["MAINT"])
    assert texts(wanted, having()) == ["change reservation one: flags=MAINT"]
    assert texts(wanted, having(flags=frozenset({"MAINT", "FLEX"}))) == []


def test_the_times_of_one_that_has_begun_stay() -> None:
    begun = having(start_time=int(NOW) - 10, end_time=int(NOW) + 10)
    assert texts(one(), begun) == []
    assert texts(one(users=["bob"]), begun) == ["change reservation one: users=bob"]


def test_one_that_is_on_is_created_for_the_rest_of_its_time_and_one_that_is_over_is_not() -> None:
    late = NOW + HOUR + 45 * 60
    found = body(one(), now=late)
    assert (found["start_time"]["number"], found["duration"]["number"]) == (int(late), 15)
    assert texts(one(), NOTHING, NOW + 2 * HOUR) == []
    assert over(one(), NOW + 2 * HOUR) == ["reservation one is over; remove it, or set a later startTime"]
    assert over(one(), late) == []


def test_one_without_an_end_is_never_over_and_one_that_recurs_begins_at_its_next_time() -> None:
    later = NOW + 10 * DAY
    assert body(one(minutes=None), now=later)["duration"] == {"set": True, "infinite": True}
    daily = one(flags=["DAILY"])
    assert over(daily, later) == []
    assert body(daily, now=later)["start_time"]["number"] == int(later) + HOUR
    assert texts(daily, having(flags=frozenset({"DAILY"}), start_time=int(NOW) + HOUR + DAY), NOW) == [
        "change reservation one: minutes=60"
    ]


def test_slurm_chooses_the_nodes_of_one_with_a_number_of_them() -> None:
    wanted = one(nodes=None, nodeCount=2, partition="gpu")
    found = body(wanted)
    assert (found["node_count"]["number"], found["partition"], "node_list" in found) == (2, "gpu", False)
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
