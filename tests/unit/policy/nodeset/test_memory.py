"""What the decisions for one NodeSet remember, after the clock was set back."""

from sidecars.policy.nodeset.failures import MAX_BACKOFF_SECONDS, Failures
from sidecars.policy.nodeset.memory import Memory

NOW = 1_800_000_000.0
HOUR = 3600.0


def test_what_was_remembered_before_the_clock_was_set_back_counts_from_this_moment() -> None:
    later = {"a": NOW + HOUR, "b": NOW - 5}
    memory = Memory(
        absent_since=later, replaced=later, orphaned_since=later, pods_gone_since=NOW + HOUR
    )
    corrected = memory.at(NOW)
    assert corrected.pods_gone_since == NOW
    for times in (corrected.absent_since, corrected.replaced, corrected.orphaned_since):
        assert times == {"a": NOW, "b": NOW - 5}


def test_a_pod_that_failed_before_the_clock_was_set_back_waits_at_most_the_back_off() -> None:
    memory = Memory(
        failures={"a": Failures(3, "uid", NOW + HOUR), "b": Failures(1, "uid", NOW + 1)}
    )
    assert {name: item.until for name, item in memory.at(NOW).failures.items()} == {
        "a": NOW + MAX_BACKOFF_SECONDS,
        "b": NOW + 1,
    }


def test_nothing_else_is_changed() -> None:
    memory = Memory(
        absent_since={"a": NOW}, pods_gone_since=NOW - 1, records_since=7.0, spared=frozenset({"a"})
    )
    assert memory.at(NOW) == memory
