"""How a list of conditions changes."""

from sidecars.policy.conditions import Condition, merge, seconds, timestamp
from sidecars.policy.reasons import Ready

NOW = 1_767_225_600.0
READY = Condition("Ready", "True", Ready.READY, "2 of 2 pods are ready")


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    before = merge([], [Condition("Ready", "True", Ready.READY)], 1, NOW)
    after = merge(before, [READY], 2, NOW + 60)
    assert (
        after[0]["lastTransitionTime"] == before[0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    )
    assert (after[0]["message"], after[0]["observedGeneration"]) == ("2 of 2 pods are ready", 2)


def test_a_changed_status_gets_a_new_time() -> None:
    before = merge([], [READY], 1, NOW)
    after = merge(before, [Condition("Ready", "False", Ready.PODS_NOT_READY)], 1, NOW + 60)
    assert after[0]["lastTransitionTime"] == "2026-01-01T00:01:00Z"


def test_conditions_come_sorted_and_what_is_not_wanted_any_more_goes() -> None:
    before = merge([], [Condition("Old", "True", Ready.READY), READY], 1, NOW)
    after = merge(before, [READY, Condition("Accepted", "True", Ready.READY)], 1, NOW)
    assert [condition["type"] for condition in after] == ["Accepted", "Ready"]


def test_what_is_unknown_stays_as_it_is_unless_something_is_known_of_it() -> None:
    old = Condition("Old", "True", Ready.READY)
    before = merge([], [old, READY], 1, NOW)
    after = merge(before, [READY], 2, NOW + 60, unknown=("Old", "Never", "Ready"))
    assert [(it["type"], it["observedGeneration"]) for it in after] == [("Old", 1), ("Ready", 2)]


def test_times_are_read_and_written_as_kubernetes_does() -> None:
    assert seconds(timestamp(NOW)) == NOW
    assert seconds(None) is None
    assert seconds("yesterday") is None


def test_a_message_is_printable_and_bounded_whatever_it_quotes() -> None:
    [condition] = merge(
        [], [Condition("Ready", "False", Ready.INVALID, "a\n\x1b[2Jb" + "c" * 100_000)], 1, NOW
    )
    assert condition["message"].isprintable()
    assert condition["message"].startswith("a ")
    assert len(condition["message"]) <= 32768
