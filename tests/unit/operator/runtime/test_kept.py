"""What is remembered of changes that are not applied."""

from sidecars.operator.runtime.kept import AGAIN_SECONDS, Kept
from sidecars.policy.immutable import Resize

GROWS = Resize("state", "4Gi", "8Gi")


def test_what_is_not_applied_is_known_until_it_changes_or_its_workload_is_gone() -> None:
    kept = Kept()
    assert kept.of("StatefulSet", "ns", "s") == ()
    kept.remember(("StatefulSet", "ns", "s"), ["it stays"])
    assert kept.of("StatefulSet", "ns", "s") == ["it stays"]
    assert kept.of("StatefulSet", "ns", "t") == ()
    kept.forget("StatefulSet", "ns", "s")
    assert kept.of("StatefulSet", "ns", "s") == ()


def test_a_refused_size_is_not_asked_for_again_for_some_time_and_another_one_at_once() -> None:
    kept = Kept()
    kept.refuse("ns", GROWS, "no", 100)
    assert kept.refusals("ns", [GROWS], 100 + AGAIN_SECONDS - 1) == {"state": "no"}
    assert kept.refusals("other", [GROWS], 101) == {}
    assert kept.refusals("ns", [Resize("state", "4Gi", "6Gi")], 101) == {}
    assert kept.refusals("ns", [GROWS], 100 + AGAIN_SECONDS) == {}
