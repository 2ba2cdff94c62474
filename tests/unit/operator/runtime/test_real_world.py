"""What the operator takes from the process that it runs in."""

from sidecars.kube import boottime
from sidecars.operator.runtime.real_world import RealWorld


def test_what_was_known_before_the_machine_slept_is_old_when_it_wakes() -> None:
    assert RealWorld().clock is boottime
