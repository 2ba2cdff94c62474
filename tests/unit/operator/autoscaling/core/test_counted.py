"""The condition of the Controller: `sidecars.operator.autoscaling.core.counted`."""

from typing import Any

from sidecars.autoscaling.records import Plan
from sidecars.operator.autoscaling.core.counted import APPEARS, ENDS, MOST_NAMED, Standing
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons.autoscaling import JobsCounted
from tests.unit.autoscaling.builders import NOW, job, plan

LACKING: dict[str, Any] = {"tres_per_node": "gres/gpu:h200:1"}


def standing() -> Standing:
    """Of an operator that has run for a while."""
    found = Standing()
    found.observe(plan(), NOW - 1000)
    return found


def stood(of: Plan, found: Standing | None = None) -> Condition:
    """The condition after a minute of the same plan."""
    found = found or standing()
    found.observe(of, NOW - APPEARS)
    return found.observe(of, NOW)


def test_jobs_that_nothing_helps_are_reported_with_what_is_missing() -> None:
    found = stood(plan(jobs=[job(7, **LACKING), job(8, reason="Licenses")]))
    assert (found.status, found.reason) == ("False", JobsCounted.NOT_COUNTED)
    assert found.message == "Impossible: gpu:h200:1 of a node that has 0"
    assert stood(plan(jobs=[job()])).status == "True"
    assert standing().observe(None, NOW).status == "Unknown"


def test_what_a_user_has_written_hides_no_other_reason_and_is_printable() -> None:
    jobs = [job(7, features="(a" * 20_000), job(8, **LACKING), job(9, features="(\x1b[2J\n")]
    found = stood(plan(jobs=jobs))
    assert "gpu:h200:1 of a node that has 0" in found.message
    assert "--constraint=(a(a" in found.message
    assert found.message.isprintable()
    assert len(found.message) < 1000


def test_a_job_that_waits_shortly_changes_nothing() -> None:
    found = standing()
    for second in range(0, 600, 20):
        jobs = [job(second, **LACKING)] if second % 60 == 0 else []
        assert found.observe(plan(jobs=jobs), NOW + second).status == "True"


def test_a_reason_that_has_stood_is_kept_while_jobs_come_and_end() -> None:
    found = standing()
    some = plan(jobs=[job(7, **LACKING)])
    stood(some, found)
    assert found.observe(plan(), NOW + ENDS - 1).status == "False"
    assert found.observe(some, NOW + ENDS).status == "False"
    assert found.observe(plan(), NOW + 2 * ENDS - 1).status == "False"
    assert found.observe(plan(), NOW + 2 * ENDS).status == "True"


def test_jobs_and_their_number_are_no_part_of_the_message() -> None:
    messages = {
        stood(plan(jobs=[job(first + it, **LACKING) for it in range(count)])).message
        for first, count in ((7, 1), (9, 3), (500, 250))
    }
    assert len(messages) == 1


def test_reasons_that_come_later_change_no_word_where_many_stand() -> None:
    found = standing()
    many = [job(it, tmp_disk=it) for it in range(1, MOST_NAMED + 2)]
    first = stood(plan(jobs=many), found)
    assert first.message.endswith("; and more reasons")
    found.observe(plan(jobs=[*many, job(99, tmp_disk=0, memory_per_node=9000)]), NOW + 10)
    again = found.observe(plan(jobs=[*many, job(99, memory_per_node=9000)]), NOW + 80)
    assert again == first


def test_what_the_first_plan_of_an_operator_has_stands_at_once() -> None:
    assert Standing().observe(plan(jobs=[job(**LACKING)]), NOW).status == "False"
