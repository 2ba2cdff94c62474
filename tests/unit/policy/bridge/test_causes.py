"""Classes of Slurm's reasons."""

import pytest

from sidecars.policy.bridge.causes import Cause, cause_of
from sidecars.policy.explain.words import REASONS


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("", Cause.PRIORITY),
        ("Resources", Cause.RESOURCES),
        ("QOSMaxCpuPerUserLimit", Cause.LIMIT),
        ("AssocGrpGRES", Cause.LIMIT),
        ("MaxMemPerLimit", Cause.LIMIT),
        ("DependencyNeverSatisfied", Cause.DEPENDENCY),
        ("JobHoldMaxRequeue", Cause.NOT_RELEASED),
        ("PartitionTimeLimit", Cause.PARTITION),
        ("ReservationDeleted", Cause.RESERVATION),
        ("Constraints", Cause.NODES),
        ("SomethingOfALaterSlurm", Cause.OTHER),
    ],
)
def test_a_reason_has_a_class(reason: str, cause: Cause) -> None:
    assert cause_of(reason) is cause


def test_every_known_reason_has_one_of_few_classes() -> None:
    found = {cause_of(reason) for reason in REASONS}
    assert found == set(Cause)
