"""Classes of Slurm's reasons."""

from typing import Any

import msgspec
import pytest

from sidecars.bridge.core.causes import Cause, cause_of, waiting
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import Job, Phase, Why
from sidecars.contract import bridge
from sidecars.slurm.job_reasons import REASONS
from tests.support.bridge import pod


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


def test_a_pod_without_a_condition_waits_as_long_as_it_has_none() -> None:
    conditions: list[dict[str, Any]] = [
        {"type": bridge.CONDITION, "status": "False", "reason": Why.REFUSED.value}
    ]
    for given, expected in (
        ([], (Why.WAITING.value, Cause.RESOURCES.value)),
        (conditions, (Why.REFUSED.value, "")),
    ):
        item = pod("team", "train")
        item["metadata"]["labels"] = {bridge.JOB_LABEL: "7"}
        item["status"] = {"conditions": given}
        found = waiting(
            [msgspec.convert(item, Pod)],
            [Job(7, Phase.PENDING, "ada", bridge.Comment("team", "u"), reason="Resources")],
        )
        assert +found == {expected: 1}
