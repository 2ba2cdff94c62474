"""NodeSets whose workers have not registered: `sidecars.operator.autoscaling.core.closed`."""

from sidecars.autoscaling.nodesets import Pods, Worker
from sidecars.operator.autoscaling.core.closed import FIRST, LONGEST, Closed
from tests.unit.autoscaling.builders import NOW


def pods(*failed: str) -> Pods:
    """The workers a and b, of which some have failed."""
    names = {"a", "b", *failed}
    return Pods((), {it: Worker(it, True, NOW, failed=it in failed) for it in names}, 0)


def test_a_nodeset_whose_worker_has_not_registered_is_closed_for_longer_each_time() -> None:
    closed = Closed()
    assert closed.observe(pods(), (), "bad", NOW) == 0.0
    assert closed.observe(pods("a"), (), "bad", NOW) == NOW + FIRST
    assert closed.observe(pods("a"), (), "bad", NOW + 5) == NOW + FIRST
    assert closed.observe(pods(), (), "good", NOW) == 0.0
    # The worker was removed, and a further one has failed as well.
    closed.observe(pods(), (), "bad", NOW + 900)
    assert closed.observe(pods("c"), (), "bad", NOW + 1000) == NOW + 1000 + 2 * FIRST
    for number in range(30):
        found = closed.observe(pods(f"d{number}"), (), "bad", NOW)
    assert found == NOW + LONGEST


def test_a_worker_that_registers_opens_it_again() -> None:
    closed = Closed()
    closed.observe(pods("a"), (), "bad", NOW)
    assert closed.observe(pods("a"), {"b"}, "bad", NOW + 5) == 0.0
    assert closed.observe(pods("a", "c"), {"b"}, "bad", NOW + 10) == NOW + 10 + FIRST
