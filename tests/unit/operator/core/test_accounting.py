"""What a Controller waits for before its configuration names slurmdbd."""

from typing import Any

import pytest

from sidecars.operator.core.accounting import DEADLINE_SECONDS, wait
from sidecars.policy.reasons import Ready

CREATED = 1_767_225_600.0
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def accounting(spec: Any = None, status: Any = None) -> dict[str, Any]:
    metadata = {"name": "db", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": spec or {}, "status": status or {}}


def test_an_accounting_that_does_not_exist_is_waited_for_without_a_deadline() -> None:
    found = wait("ns", "db", None, in_use=True, now=CREATED)
    assert found is not None
    assert (found.reason, found.seconds) == (Ready.ACCOUNTING_MISSING, None)
    assert "'db' in 'ns'" in found.message


def test_one_that_is_not_ready_is_waited_for_until_its_deadline() -> None:
    found = wait("ns", "db", accounting(), in_use=False, now=CREATED + 20)
    assert found is not None
    assert (found.reason, found.seconds) == (Ready.WAITING_FOR_ACCOUNTING, DEADLINE_SECONDS - 20)
    assert wait("ns", "db", accounting(), in_use=False, now=CREATED + DEADLINE_SECONDS) is None


@pytest.mark.parametrize(
    ("found", "in_use"),
    [
        (accounting(status=READY), False),
        (accounting({"external": True}), False),
        (accounting(), True),
    ],
    ids=["ready", "external", "named by the configuration already"],
)
def test_nothing_is_waited_for_when_slurmctld_can_start(
    found: dict[str, Any], in_use: bool
) -> None:
    assert wait("ns", "db", found, in_use=in_use, now=CREATED) is None
