"""Expectations: no decision while own writes are unseen, and none delayed for ever."""

from __future__ import annotations

from sidecars.kube import Expectations


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_expectations_a_key_is_satisfied() -> None:
    assert Expectations[str](clock=Clock()).satisfied("a")


def test_creations_are_counted_down() -> None:
    expectations = Expectations[str](clock=Clock())
    expectations.expect_creations("a", 2)
    expectations.creation_observed("a")
    assert not expectations.satisfied("a")
    assert expectations.satisfied("b")
    expectations.creation_observed("a")
    assert expectations.satisfied("a")
    expectations.creation_observed("a")
    expectations.expect_creations("a", 1)
    assert not expectations.satisfied("a")


def test_deletions_are_distinguished_by_uid() -> None:
    expectations = Expectations[str](clock=Clock())
    expectations.expect_deletions("a", ["one", "two"])
    for uid in ("one", "one", "three"):
        expectations.deletion_observed("a", uid)
    assert not expectations.satisfied("a")
    expectations.deletion_observed("a", "two")
    assert expectations.satisfied("a")


def test_what_is_never_seen_delays_nothing_for_longer_than_the_ttl() -> None:
    clock = Clock()
    expectations = Expectations[str](ttl=300, clock=clock)
    expectations.expect_creations("a", 1)
    clock.now += 299
    assert not expectations.satisfied("a")
    assert expectations.remaining("a") == 1
    clock.now += 1
    assert expectations.satisfied("a")
    expectations.expect_creations("a", 1)
    expectations.creation_observed("a")
    assert expectations.satisfied("a")


def test_new_expectations_prolong_the_wait_for_older_ones() -> None:
    clock = Clock()
    expectations = Expectations[str](ttl=300, clock=clock)
    expectations.expect_creations("a", 1)
    clock.now += 200
    expectations.expect_deletions("a", ["one"])
    clock.now += 200
    assert not expectations.satisfied("a")


def test_expecting_nothing_and_forgetting_leave_a_key_satisfied() -> None:
    expectations = Expectations[str](clock=Clock())
    expectations.expect_creations("a", 0)
    expectations.expect_deletions("a", [])
    assert expectations.satisfied("a")
    expectations.expect_creations("a", 1)
    expectations.forget("a")
    assert expectations.satisfied("a")
