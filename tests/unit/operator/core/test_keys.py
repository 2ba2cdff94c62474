"""The steps by which Slurm's daemons go from one key to another."""

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest

from sidecars.operator.core import keys
from sidecars.slurm.jwks import Ring

OLD, NEW, THIRD = b"o" * 64, b"n" * 64, b"t" * 64
FIRST, NEXT = ("first", OLD), ("next", NEW)


def understood(signers: Ring, readers: Ring) -> bool:
    """Whether daemons with one set of keys take what those with the other sign."""
    return signers.default in readers.keys


def walk(ring: Ring | None, following: tuple[str, bytes] | None) -> list[Ring]:
    """The keys after each step, each settled, until nothing is left to do."""
    rings: list[Ring] = []
    for _ in range(10):
        decision = keys.plan(ring, FIRST, following, "")
        if decision.ring == ring and not decision.waiting:
            assert decision.condition.status == "True"
            return rings
        ring = decision.ring
        rings.append(ring)
    raise AssertionError(f"no end: {rings}")


def test_a_cluster_begins_with_the_key_that_is_named() -> None:
    decision = keys.plan(None, FIRST, None, "")
    assert decision.ring == Ring(OLD)
    assert (decision.condition.status, decision.condition.reason) == ("True", "InUse")
    assert keys.plan(decision.ring, FIRST, None, "") == decision


def test_the_key_is_added_then_used_then_the_old_one_is_removed() -> None:
    assert walk(Ring(OLD), NEXT) == [Ring(OLD, (NEW,)), Ring(NEW, (OLD,)), Ring(NEW)]


def test_at_each_step_daemons_of_before_and_after_understand_each_other() -> None:
    for ring, following in itertools.product(
        (
            Ring(OLD),
            Ring(OLD, (NEW,)),
            Ring(NEW, (OLD,)),
            Ring(THIRD),
            Ring(OLD, (THIRD,)),
            Ring(THIRD, (OLD,)),
        ),
        (NEXT, ("third", THIRD), FIRST),
    ):
        for before, after in itertools.pairwise([ring, *walk(ring, following)]):
            assert understood(before, after)
            assert understood(after, before)


def test_no_step_is_taken_before_the_one_before_is_settled() -> None:
    for ring, reason in (
        (Ring(OLD, (NEW,)), "Adding"),
        (Ring(NEW, (OLD,)), "Switching"),
        (Ring(NEW), "Removing"),
    ):
        decision = keys.plan(ring, FIRST, NEXT, "slurmdbd restarts")
        assert decision.ring == ring
        assert decision.waiting
        assert (decision.condition.status, decision.condition.reason) == ("False", reason)
        assert "slurmdbd restarts" in decision.condition.message


def test_a_key_that_is_swapped_at_once_is_refused_with_what_to_do() -> None:
    decision = keys.plan(Ring(OLD), ("first", NEW), None, "")
    assert decision.ring == Ring(OLD)
    assert not decision.waiting
    assert (decision.condition.status, decision.condition.reason) == ("False", "Swapped")
    assert "nextSlurmKeyRef" in decision.condition.message


def test_after_a_rotation_the_first_secret_may_contain_the_new_key_and_the_next_be_unnamed() -> (
    None
):
    assert keys.plan(Ring(NEW), ("first", NEW), None, "").condition.reason == "InUse"


def test_a_rotation_that_is_called_off_ends_with_the_key_that_signs() -> None:
    assert keys.plan(Ring(OLD, (NEW,)), FIRST, None, "").ring == Ring(OLD)
    assert keys.plan(Ring(OLD, (NEW,)), FIRST, None, "not yet").ring == Ring(OLD, (NEW,))


def test_a_key_that_slurm_would_not_take_is_not_brought_in() -> None:
    decision = keys.plan(Ring(OLD), FIRST, ("next", b"n" * 16), "")
    assert decision.ring == Ring(OLD)
    assert decision.condition.reason == "KeyTooShort"


def test_without_the_daemons_secret_both_keys_are_given_until_all_have_them() -> None:
    assert walk(None, NEXT) == [Ring(NEW, (OLD,)), Ring(NEW)]


def test_no_key_shows_in_a_condition() -> None:
    for ring in (None, Ring(OLD), Ring(OLD, (NEW,)), Ring(NEW, (OLD,)), Ring(THIRD)):
        for following in (None, NEXT):
            assert "nnn" not in repr(keys.plan(ring, FIRST, following, ""))


BOTH = Ring(OLD, (NEW,))
SINCE, SECONDS = 1000.0, 100.0


def settled(
    now: float, walk: keys.Walk | None = None, hindrances: Iterable[str] = (), ring: Ring = BOTH
) -> keys.Settling:
    found = keys.settle(walk, ring, SINCE, SECONDS, hindrances, now)
    assert found is not None
    return found


def test_pods_are_annotated_twice_after_a_step_and_no_more() -> None:
    first = settled(SINCE)
    again = settled(SINCE + 1, first.walk)
    second = settled(SINCE + 3, again.walk)
    later = settled(SINCE + 50, second.walk)
    assert [it.nudge for it in (first, again, second, later)] == [True, False, True, False]


def test_slurmctld_is_asked_only_when_kubelets_have_had_their_time_and_no_daemon_hinders() -> None:
    early = settled(SINCE + SECONDS - 1, hindrances=["slurmdbd restarts"])
    assert not early.ask
    assert "pods get them until" in early.unsettled
    hindered = settled(SINCE + SECONDS, hindrances=["slurmdbd restarts"])
    assert (hindered.ask, hindered.unsettled) == (False, "slurmdbd restarts")
    free = settled(SINCE + SECONDS)
    assert free.ask
    assert free.unsettled


def test_the_keys_have_settled_some_seconds_after_slurmctld_had_them_read() -> None:
    asked = replace(settled(SINCE + SECONDS).walk, asked_at=SINCE + SECONDS + 1)
    assert settled(SINCE + SECONDS + 2, asked).unsettled == keys.READING
    assert settled(SINCE + SECONDS + 1 + keys.READ_SECONDS, asked).unsettled == ""


def test_a_failed_request_is_repeated_after_a_minute_then_twice_as_late_up_to_ten_minutes() -> None:
    now, present, waits = SINCE + SECONDS, settled(SINCE + SECONDS).walk, []
    for _ in range(6):
        present = keys.failed(present, "no answer", now)
        began = now
        while not settled(now, present).ask:
            assert "no answer" in settled(now, present).unsettled
            now += 1
        waits.append(now - began)
    assert waits == [60, 120, 240, 480, 600, 600]


def test_a_daemon_that_restarts_makes_no_failed_request_repeated_earlier() -> None:
    failed = keys.failed(settled(SINCE + SECONDS).walk, "no answer", SINCE + SECONDS)
    hindered = settled(SINCE + SECONDS + 1, failed, ["slurmdbd restarts"])
    assert not settled(SINCE + SECONDS + 2, hindered.walk).ask


def test_a_failed_request_delays_none_for_other_keys() -> None:
    failed = keys.failed(settled(SINCE + SECONDS).walk, "no answer", SINCE + SECONDS)
    assert settled(SINCE + SECONDS + 1, failed, ring=Ring(NEW, (OLD,))).ask


@pytest.mark.parametrize("change", ["other keys", "a daemon that restarts"])
def test_all_daemons_are_asked_again_after(change: str) -> None:
    asked = replace(settled(SINCE + SECONDS).walk, asked_at=SINCE + SECONDS + 1)
    if change == "other keys":
        assert settled(SINCE + SECONDS + 10, asked, ring=Ring(NEW, (OLD,))).ask
        return
    hindered = settled(SINCE + SECONDS + 10, asked, ["slurmdbd restarts"])
    assert settled(SINCE + SECONDS + 11, hindered.walk).ask


def test_a_single_key_is_not_checked_for_ever_and_two_are() -> None:
    late = SINCE + SECONDS + keys.CLOSED_SECONDS + 1
    assert keys.settle(None, Ring(NEW), SINCE, SECONDS, [], late) is None
    assert keys.settle(None, BOTH, SINCE, SECONDS, [], late) is not None
