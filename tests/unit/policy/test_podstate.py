"""What a worker pod shows of its Slurm node."""

import math
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.policy.podstate import deadline_text, deadlines, shown, until_shown
from sidecars.slurm.records import Job, Node

START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def node(*words: str, reason: str = "", kube_node: str = "") -> Node:
    return Node("slinky-0", states=frozenset(words), reason=reason, instance_id=kube_node)


def running(job_id: int, nodes: str, minutes: int | None, state: str = "RUNNING") -> Job:
    return Job(job_id, states=frozenset({state}), nodes=nodes, start_time=START, time_limit=minutes)


def test_each_state_and_flag_is_a_condition_whose_message_is_the_reason() -> None:
    found = shown(
        node("MIXED", "DRAIN", "DYNAMIC_NORM", reason="bad disk"), protection=True, deadline=None
    )
    assert found.conditions == {
        "SlurmNodeStateMixed": "bad disk",
        "SlurmNodeStateDrain": "bad disk",
    }


@pytest.mark.parametrize(
    "words", [("MIXED",), ("ALLOCATED",), ("IDLE", "COMPLETING"), ("ALLOCATED", "DRAIN")]
)
def test_a_busy_pod_is_protected_if_its_nodeset_wants_that(words: tuple[str, ...]) -> None:
    assert shown(node(*words), protection=True, deadline=None).protect
    assert not shown(node(*words), protection=False, deadline=None).protect


def test_an_idle_pod_is_not_protected() -> None:
    assert not shown(node("IDLE", "DRAIN"), protection=True, deadline=None).protect


def test_a_pod_without_a_record_shows_nothing() -> None:
    found = shown(None, protection=True, deadline=5.0)
    assert (found.conditions, found.protect, found.deadline) == ({}, False, None)


def test_the_deadline_is_shown_while_the_node_drains_and_has_work() -> None:
    def at(*words: str) -> str | None:
        return shown(node(*words), protection=True, deadline=float(START)).deadline

    assert at("ALLOCATED", "DRAIN") == "2026-01-01T00:00:00Z"
    assert [at("ALLOCATED"), at("IDLE", "DRAIN"), at("IDLE")] == [None, None, None]


def test_the_deadline_of_a_node_is_the_latest_end_of_its_running_jobs() -> None:
    found = deadlines(
        [
            running(1, "n0", 30),
            running(2, "n[0-1]", 45),
            running(3, "n0", 60),
            running(4, "n1", 600, "COMPLETED"),
            running(5, "", 600, "PENDING"),
        ]
    )
    assert found == {"n0": START + 3600.0, "n1": START + 2700.0}


def test_a_job_without_a_limit_and_a_suspended_one_never_end() -> None:
    found = deadlines([running(1, "n0", None), running(2, "n1", 5, "SUSPENDED")])
    assert found == {"n0": math.inf, "n1": math.inf}


def test_a_limit_of_a_year_is_what_backfill_writes_where_there_is_none() -> None:
    year = 365 * 24 * 60
    found = deadlines([running(1, "n0", year), running(2, "n1", year - 1)])
    assert found == {"n0": math.inf, "n1": START + 60.0 * (year - 1)}


@pytest.mark.parametrize("deadline", [1e12, 1e17, 2.0**63 - 1024, 1e18, 2.0**64, 1e20, math.inf])
def test_a_deadline_beyond_all_calendars_is_written_as_their_end(deadline: float) -> None:
    assert deadline_text(deadline) == "9999-12-31T23:59:59Z"


@given(st.integers(-(2**63), 2**64 - 1), st.none() | st.integers(0, 2**64 - 1))
def test_any_start_and_limit_that_slurm_can_report_give_a_deadline_that_can_be_written(
    start: int, limit: int | None
) -> None:
    job = Job(1, frozenset({"RUNNING"}), nodes="n0", start_time=start, time_limit=limit)
    text = deadline_text(deadlines([job])["n0"])
    assert re.fullmatch(r"\d{1,4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text)


@pytest.mark.parametrize(
    ("words", "reason", "age", "deferred"),
    [
        (
            "IDLE DRAIN",
            "slurm-operator: Pod (slurm/slinky-0) is pending termination for scale-in",
            1.0,
            True,
        ),
        (
            "IDLE DRAIN",
            "slurm-operator: Pods of NodeSet (slurm/slinky) are pending termination for scale-in",
            1.0,
            True,
        ),
        (
            "IDLE DRAIN",
            "slurm-operator: Pods of NodeSet (slurm/slinky) are pending termination for scale-in",
            9.0,
            False,
        ),
        (
            "MIXED DRAIN",
            "slurm-operator: Pod (slurm/slinky-0) is pending termination for scale-in",
            1.0,
            False,
        ),
        ("IDLE DRAIN", "slurm-operator: Node (m) was cordoned", 1.0, False),
        ("IDLE DRAIN", "admin: pending termination for a bad disk", 1.0, False),
        ("IDLE", "", 1.0, False),
    ],
)
def test_a_pod_that_is_about_to_be_deleted_shows_nothing_new(
    words: str, reason: str, age: float, *, deferred: bool
) -> None:
    record = Node(
        "slinky-0", states=frozenset(words.split()), reason=reason, reason_changed_at=1000
    )
    assert bool(until_shown(record, 1000 + age)) is deferred
    assert until_shown(None, 1000) == 0


def test_a_reason_is_shown_bounded_and_printable() -> None:
    [message] = shown(
        node("IDLE", reason="disk\n\x1b[2J" + "x" * 1_000_000), protection=True, deadline=None
    ).conditions.values()
    assert message.isprintable()
    assert len(message) <= 500
