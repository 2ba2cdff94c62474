"""Back-off of failing pods: `sidecars.policy.nodeset.failures`."""

from sidecars.policy.nodeset.failures import Failures, failures
from tests.unit.policy.nodeset.builders import NOW, worker


def test_a_pod_that_fails_again_and_again_is_waited_for_longer_each_time() -> None:
    known: dict[str, Failures] = {}
    waits = []
    for number in range(12):
        known, wait = failures(
            known, [worker(0, uid=f"uid-{number}", phase="Failed", available=False)], NOW
        )
        waits.append(wait)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 900.0, 900.0]
    assert failures(known, [worker(0, uid="uid-11", phase="Failed", available=False)], NOW) == (
        known,
        900.0,
    )
    assert failures(known, [worker(0)], NOW) == ({}, None)


def test_a_failure_of_long_ago_is_forgotten() -> None:
    known, _ = failures({}, [worker(0, phase="Failed", available=False)], NOW)
    assert failures(known, [], NOW + 2000) == ({}, None)
