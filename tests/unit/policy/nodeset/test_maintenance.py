"""The maintenance reservation of ScheduledUpdate."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sidecars.policy.nodeset.actions import AdvanceReservation, Step
from sidecars.policy.nodeset.maintenance import DesiredReservation, failed, next_step, outcome
from sidecars.policy.nodeset.needs import Pending
from sidecars.slurm.records import Reservation
from tests.support import builders

NOW = 1_000_000.0
START = int(NOW) + 3600
NAME = "SlurmOperatorMaint-slinky"
WANTED = DesiredReservation(NAME, START, 30, frozenset(), frozenset({"slinky-0", "slinky-1"}))
FOUND = Reservation(
    NAME,
    node_list="slinky-[0-1]",
    flags=frozenset({"MAINT", "IGNORE_JOBS", "SPEC_NODES"}),
    start_time=START,
    end_time=START + 1800,
)


def test_it_is_made_for_a_start_in_the_future() -> None:
    step = next_step(WANTED, None, NOW)
    assert (step.do, step.start, step.minutes, step.nodes) == (
        "save",
        START,
        30,
        ("slinky-0", "slinky-1"),
    )
    assert (step.flags, step.users) == (("IGNORE_JOBS", "MAINT"), ("slurm",))


@pytest.mark.parametrize("ago", [1800, 1741, 86_400])
def test_it_is_not_made_once_its_last_minute_has_begun_and_the_remedy_is_reported(ago: int) -> None:
    step = next_step(replace(WANTED, start=int(NOW) - ago), None, NOW)
    assert (step.do, step.exists, step.reason) == ("nothing", False, "NotExists")
    assert "startTime" in step.message


@pytest.mark.parametrize(("ago", "minutes"), [(1, 29), (600, 20), (1740, 1)])
def test_one_that_no_operator_could_make_in_time_is_made_for_the_rest_of_it(
    ago: int, minutes: int
) -> None:
    wanted = replace(WANTED, start=int(NOW) - ago)
    step = next_step(wanted, None, NOW)
    assert (step.do, step.start, step.minutes) == ("save", int(NOW), minutes)
    made = replace(FOUND, start_time=int(NOW), end_time=int(NOW) + 60 * minutes)
    assert next_step(wanted, made, NOW + 1).do == "nothing"


def test_one_that_was_deleted_in_its_time_is_not_made_again() -> None:
    step = next_step(replace(WANTED, start=int(NOW) - 1), None, NOW, existed=True)
    assert (step.do, step.exists, step.reason) == ("nothing", False, "NotExists")
    assert next_step(WANTED, None, NOW, existed=True).do == "save", "before its time it is"


def test_a_recurring_one_whose_start_is_over_is_not_made_unless_it_is_forced() -> None:
    wanted = replace(WANTED, start=int(NOW) - 1, flags=frozenset({"DAILY"}))
    assert next_step(wanted, None, NOW).reason == "NotExists"


def test_a_recurring_one_is_forced_to_its_next_start() -> None:
    wanted = replace(WANTED, start=START - 86_400, flags=frozenset({"DAILY", "FORCE_START"}))
    assert next_step(wanted, None, NOW).start == START


def test_it_waits_for_the_first_worker() -> None:
    assert next_step(replace(WANTED, nodes=frozenset()), None, NOW).reason == "NoNodes"


def test_one_that_is_as_wanted_is_left_alone() -> None:
    assert next_step(WANTED, FOUND, NOW).do == "nothing"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (replace(WANTED, start=START + 60), {"start": START + 60}),
        (replace(WANTED, minutes=45), {"minutes": 45}),
        (replace(WANTED, nodes=frozenset({"slinky-0"})), {"nodes": ("slinky-0",)}),
    ],
)
def test_what_differs_is_changed_before_it_begins(
    wanted: DesiredReservation, expected: dict[str, object]
) -> None:
    step = next_step(wanted, FOUND, NOW)
    assert step.do == "save"
    assert {
        field: getattr(step, field)
        for field in ("start", "minutes", "nodes")
        if getattr(step, field)
    } == expected


def test_once_begun_only_its_nodes_change() -> None:
    wanted = replace(WANTED, minutes=45, start=START + 60, nodes=WANTED.nodes | {"slinky-2"})
    step = next_step(wanted, FOUND, START + 1)
    assert (step.do, step.nodes, step.start, step.minutes) == (
        "save",
        ("slinky-0", "slinky-1", "slinky-2"),
        None,
        None,
    )
    assert next_step(WANTED, FOUND, START + 1).do == "nothing"


@pytest.mark.parametrize("flag", ["NO_FLEX", "DURATION_PLUS", "BOGUS"])
def test_a_flag_that_slurm_never_shows_is_named_and_doesnt_make_it_anew(flag: str) -> None:
    step = next_step(replace(WANTED, flags=frozenset({flag})), FOUND, NOW)
    assert (step.do, step.exists, step.reason) == ("nothing", True, "Created")
    assert flag in step.message


def test_other_flags_make_it_anew() -> None:
    assert next_step(replace(WANTED, flags=frozenset({"FLEX"})), FOUND, NOW).do == "delete"
    assert next_step(replace(WANTED, flags=frozenset({"DAILY"})), FOUND, NOW).do == "delete"
    daily = replace(FOUND, flags=FOUND.flags | {"DAILY"})
    assert next_step(WANTED, daily, NOW).do == "delete"


@pytest.mark.parametrize("days", [1, 30])
def test_a_recurring_one_keeps_the_start_that_slurm_moved_it_to(days: int) -> None:
    wanted = replace(WANTED, flags=frozenset({"DAILY"}))
    moved = replace(
        FOUND,
        flags=FOUND.flags | {"DAILY"},
        start_time=START + days * 86_400,
        end_time=START + days * 86_400 + 1800,
    )
    now = START + (days - 1) * 86_400 + 7200
    assert next_step(wanted, moved, now).do == "nothing"
    another_hour = replace(wanted, start=START + 2 * 3600)
    assert isinstance(next_step(another_hour, moved, now), Step)
    assert next_step(another_hour, moved, now).start is not None


def test_a_reservation_whose_nodes_can_not_be_read_is_reported_and_not_changed() -> None:
    scheduled = {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": "2026-12-24T12:00:00Z"},
    }
    nodeset = builders.nodeset("slinky", updateStrategy=scheduled)
    result = outcome(
        nodeset, frozenset({"slinky-0"}), [replace(FOUND, node_list="n[1-0]")], (), NOW
    )
    assert result.condition is not None
    assert (result.condition.status, result.actions) == ("Unknown", ())
    assert f"node_list of {NAME}: range '1-0' runs backwards" in result.condition.message


@pytest.mark.parametrize(
    ("status", "created"), [("True", False), ("False", True), ("Unknown", True)]
)
def test_the_condition_shows_whether_one_that_is_missing_in_its_time_existed(
    status: str, created: bool
) -> None:
    start = datetime.fromtimestamp(NOW - 60, UTC).isoformat()
    scheduled = {"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": start}}
    nodeset = builders.nodeset("slinky", updateStrategy=scheduled)
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "ReservationCreated", "status": status},
    ]
    result = outcome(nodeset, frozenset({"slinky-0"}), [], conditions, NOW)
    steps = [action.step for action in result.actions if isinstance(action, AdvanceReservation)]
    assert [(step.do, step.start) for step in steps if step.do != "nothing"] == (
        [("save", int(NOW))] if created else []
    )


@pytest.mark.parametrize(
    ("status", "reason"), [("True", "Created"), ("False", "Refused"), ("Unknown", "NoAnswer")]
)
def test_while_slurms_answer_is_pending_the_condition_stays_as_it_is(
    status: str, reason: str
) -> None:
    former = {"type": "ReservationCreated", "status": status, "reason": reason, "message": "m"}
    found = failed(Pending("GET reservations/"), [former]).condition
    assert found is not None
    assert (found.status, found.reason, found.message) == (status, reason, "m")
