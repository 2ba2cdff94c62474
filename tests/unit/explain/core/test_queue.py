"""All pending jobs, grouped by reason."""

from sidecars.explain.core import queue as subject
from sidecars.explain.core.records import Level, Waiting
from tests.unit.explain.core.building import seen


def waiting(number: int, reason: str, user: str = "ada") -> Waiting:
    return Waiting(str(number), 1000 - number, user, reason)


def test_what_needs_a_remedy_comes_first_and_then_the_most_jobs() -> None:
    jobs = (
        waiting(1, "Priority"),
        waiting(2, "Resources", "bob"),
        waiting(3, "Resources"),
        waiting(4, "JobHeldUser"),
    )
    answer = subject.explain(seen({"waiting": jobs}))
    assert answer.state == "4, of which 1 need a remedy"
    assert [(it.code, it.about, it.level) for it in answer.findings] == [
        ("JobHeldUser", "job 4", Level.BLOCKS),
        ("Resources", "2 jobs", Level.WAITS),
        ("Priority", "job 1", Level.WAITS),
    ]
    released, resources, _ = answer.findings
    assert "scontrol release 4" in released.remedy
    assert resources.cause.endswith(" 2 of bob, 3 of ada.")
    assert resources.commands == ("kubectl slurm explain job 2",)


def test_a_group_names_ten_jobs_and_counts_the_others() -> None:
    answer = subject.explain(seen({"waiting": tuple(waiting(n, "Priority") for n in range(1, 14))}))
    [found] = answer.findings
    assert "10 of ada and 3 more." in found.cause
    assert "11 of ada" not in found.cause


def test_an_empty_queue_is_an_answer() -> None:
    answer = subject.explain(seen({"waiting": ()}))
    assert (answer.state, answer.known) == ("none", True)


def test_a_queue_that_was_not_read_is_unknown() -> None:
    answer = subject.explain(seen({"waiting": None}))
    assert not answer.known
    assert "unknown" in answer.state


def test_a_reason_that_no_table_has_is_named() -> None:
    answer = subject.explain(seen({"waiting": (waiting(1, ""), waiting(2, "SomethingNew"))}))
    assert {it.code for it in answer.findings} == {"None", "SomethingNew"}
