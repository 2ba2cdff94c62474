"""What the end of a job means for its nodes."""

import pytest

from sidecars.checks.core.outcome import Outcome, outcome
from sidecars.policy.checks.declared import Check
from sidecars.policy.checks.measures import Limit, quantity
from sidecars.policy.checks.results import Kind
from sidecars.slurm.checks import CheckJob

CHECK = Check("disk", "#!/bin/sh\n")


def job(*states: str, status: int = 0, comment: str = "", restarts: int = 0) -> CheckJob:
    return CheckJob(1, frozenset(states), comment, status, restarts)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (job("PENDING"), None),
        (job("RUNNING"), None),
        (job("RUNNING", "CONFIGURING"), None),
        (job("COMPLETED", "COMPLETING"), Outcome(Kind.PASSED)),
        (
            job("COMPLETED", comment="check 0 a=1s,b=2%| fine"),
            Outcome(Kind.PASSED, "fine", {"a": "1s", "b": "2%"}),
        ),
        (
            job("FAILED", status=1, comment="check 0 | disk is full"),
            Outcome(Kind.FAILED, "disk is full"),
        ),
        (job("FAILED", status=9), Outcome(Kind.FAILED, "exit status 9")),
        (job("FAILED", status=77, comment="check 0 | no GPU"), Outcome(Kind.SKIPPED, "no GPU")),
        (
            job("FAILED", status=124, comment="check 0 | text"),
            Outcome(Kind.HUNG, "did not end within 60 s"),
        ),
        (job("TIMEOUT", "COMPLETING"), Outcome(Kind.HUNG, "did not end within 60 s")),
        (job("NODE_FAIL"), Outcome(Kind.FAILED, "the node failed during the check")),
        (job("OUT_OF_MEMORY"), Outcome(Kind.FAILED, "the check ran out of memory")),
        (job("PREEMPTED"), Outcome(Kind.INTERRUPTED, "the job is PREEMPTED")),
        (job("CANCELLED"), Outcome(Kind.INTERRUPTED, "the job is CANCELLED")),
        (job("DEADLINE"), Outcome(Kind.INTERRUPTED, "the job is DEADLINE")),
        (None, Outcome(Kind.INTERRUPTED, "Slurm has no record of the job")),
    ],
)
def test_the_end_of_a_job_is_an_outcome(found: CheckJob | None, want: Outcome | None) -> None:
    assert outcome(CHECK, found) == want


@pytest.mark.parametrize("states", ["PENDING", "RUNNING", "COMPLETED", "FAILED"])
def test_a_job_that_was_requeued_counts_neither_as_passed_nor_as_failed(states: str) -> None:
    found = outcome(
        CHECK, job(states, status=1, comment="check 0 | of the first execution", restarts=1)
    )
    assert found == Outcome(Kind.INTERRUPTED, "the job was requeued")


def test_a_comment_of_another_execution_or_form_is_not_read() -> None:
    for comment in ("check 1 a=1s | old", "rm -rf", "check 0", "check 0 $(id) | x"):
        assert outcome(CHECK, job("COMPLETED", comment=comment)) == Outcome(Kind.PASSED)


def test_a_check_that_exits_with_0_has_failed_if_its_limit_is_not_kept() -> None:
    check = Check("net", "#!/bin/sh\n", limits={"rate": Limit(least=quantity("1Gbit/s"))})
    found = outcome(check, job("COMPLETED", comment="check 0 rate=10Mbit/s| "))
    assert found == Outcome(
        Kind.FAILED, "rate is 10Mbit/s, less than 1Gbit/s", {"rate": "10Mbit/s"}
    )
    found = outcome(check, job("COMPLETED", comment="check 0 | "))
    assert found == Outcome(Kind.FAILED, "the check reported no rate")


def test_a_check_whose_values_did_not_reach_slurmctld_has_not_failed() -> None:
    check = Check("net", "#!/bin/sh\n", limits={"rate": Limit(least=quantity("1Gbit/s"))})
    found = outcome(check, job("COMPLETED"))
    assert found == Outcome(Kind.INTERRUPTED, "its values did not reach slurmctld")
