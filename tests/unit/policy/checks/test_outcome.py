"""What the end of a job says about its nodes, and what is written to them."""

import pytest

from sidecars.contract.reasons import Owner, owner
from sidecars.policy.checks.declared import Check
from sidecars.policy.checks.measures import Limit, quantity
from sidecars.policy.checks.nodes import (
    Reaction,
    belongs,
    contested,
    is_idle,
    is_retestable,
    partition_of,
    reaction,
    wants_nodes,
)
from sidecars.policy.checks.outcome import Kind, Outcome, outcome
from sidecars.policy.checks.plan import Verdict
from sidecars.policy.checks.results import MOST_NODES, read, value_of, written
from sidecars.slurm.checks import CheckJob, WaitingJob
from sidecars.slurm.records import Node

CHECK = Check("disk", "#!/bin/sh\n")
OWN = "slurm-node: check: disk: full"
FAILED, PASSED = Verdict(Kind.FAILED, "full"), Verdict(Kind.PASSED)


def job(*states: str, status: int = 0, comment: str = "", restarts: int = 0) -> CheckJob:
    return CheckJob(1, frozenset(states), comment, status, restarts)


def node(*states: str, reason: str = "", partitions: tuple[str, ...] = ("all",), gres: str = "") -> Node:
    return Node("n", frozenset(states or ("IDLE",)), reason=reason, partitions=partitions, gres=gres)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (job("PENDING"), None),
        (job("RUNNING"), None),
        (job("RUNNING", "CONFIGURING"), None),
        (job("COMPLETED", "COMPLETING"), Outcome(Kind.PASSED)),
        (job("COMPLETED", comment="check 0 a=1s,b=2%| fine"), Outcome(Kind.PASSED, "fine", {"a": "1s", "b": "2%"})),
        (job("FAILED", status=1, comment="check 0 | disk is full"), Outcome(Kind.FAILED, "disk is full")),
        (job("FAILED", status=9), Outcome(Kind.FAILED, "exit status 9")),
        (job("FAILED", status=77, comment="check 0 | no GPU"), Outcome(Kind.SKIPPED, "no GPU")),
        (job("FAILED", status=124, comment="check 0 | text"), Outcome(Kind.HUNG, "did not end within 60 s")),
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
    found = outcome(CHECK, job(states, status=1, comment="check 0 | of the first execution", restarts=1))
    assert found == Outcome(Kind.INTERRUPTED, "the job was requeued")


def test_a_comment_of_another_execution_or_form_is_not_read() -> None:
    for comment in ("check 1 a=1s | old", "rm -rf", "check 0", "check 0 $(id) | x"):
        assert outcome(CHECK, job("COMPLETED", comment=comment)) == Outcome(Kind.PASSED)


def test_a_check_that_exits_with_0_has_failed_if_its_limit_is_not_kept() -> None:
    check = Check("net", "#!/bin/sh\n", limits={"rate": Limit(least=quantity("1Gbit/s"))})
    found = outcome(check, job("COMPLETED", comment="check 0 rate=10Mbit/s| "))
    assert found == Outcome(Kind.FAILED, "rate is 10Mbit/s, less than 1Gbit/s", {"rate": "10Mbit/s"})
    assert outcome(check, job("COMPLETED")) == Outcome(Kind.FAILED, "the check reported no rate")


@pytest.mark.parametrize(
    ("found", "verdict", "want"),
    [
        (node(), FAILED, Reaction(drain=OWN)),
        (node("MIXED"), FAILED, Reaction(drain=OWN)),
        (node(), Verdict(Kind.HUNG), Reaction(drain="slurm-node: check: disk: hung")),
        (node(), PASSED, Reaction()),
        (node(), Verdict(Kind.SKIPPED), Reaction()),
        (node(), Verdict(Kind.INTERRUPTED), Reaction()),
        (node("IDLE", "DRAIN", reason=OWN), FAILED, Reaction()),
        (node("IDLE", "DRAIN", reason="slurm-node: check: disk: old"), FAILED, Reaction(drain=OWN)),
        (node("IDLE", "DRAIN", reason=OWN), PASSED, Reaction(undrain=True)),
        (node("IDLE", "DRAIN", reason=OWN), Verdict(Kind.INTERRUPTED), Reaction()),
        (node("IDLE", "DRAIN", reason="maintenance"), FAILED, Reaction()),
        (node("IDLE", "DRAIN", reason="maintenance"), PASSED, Reaction()),
        (node("IDLE", "DRAIN", reason="slurm-node: check: disk2: full"), PASSED, Reaction()),
        (node("IDLE", "DRAIN", reason="slurm-node: health: disk: full"), FAILED, Reaction()),
        (node("DOWN", reason="Not responding"), FAILED, Reaction()),
        (None, FAILED, Reaction()),
    ],
)
def test_a_reaction_changes_the_checks_own_drain_alone(found: Node | None, verdict: Verdict, want: Reaction) -> None:
    assert reaction(CHECK, found, verdict) == want


def test_a_check_can_only_report() -> None:
    check = Check("disk", "#!/bin/sh\n", drain=False, undrain=False, comment=True)
    assert reaction(check, node(), FAILED) == Reaction(comment="disk: failed: full")
    assert reaction(check, node("IDLE", "DRAIN", reason=OWN), PASSED) == Reaction(comment="disk: passed")


def test_the_reason_of_a_check_is_the_worker_pods() -> None:
    assert owner(OWN) is Owner.POD


@pytest.mark.parametrize(
    "states",
    [
        *(("MIXED",), ("ALLOCATED",), ("IDLE", "COMPLETING"), ("IDLE", "DRAIN"), ("IDLE", "RESERVED"), ("DOWN",)),
        *(("IDLE", "NOT_RESPONDING"), ("IDLE", "PLANNED"), ("IDLE", "MAINTENANCE"), ("IDLE", "POWERED_DOWN")),
        *(("IDLE", "POWERING_UP"), ("IDLE", "EXTERNAL"), ("IDLE", "FAIL"), ("UNKNOWN",)),
    ],
)
def test_only_an_idle_node_is_tested(states: tuple[str, ...]) -> None:
    assert not is_idle(node(*states))
    assert is_idle(node("IDLE", "DYNAMIC_NORM", "CLOUD"))


def test_a_drain_of_the_check_alone_is_lifted_for_a_test() -> None:
    assert is_retestable(CHECK, node("IDLE", "DRAIN", reason=OWN))
    for other in (
        node("IDLE", "DRAIN", reason="maintenance"),
        node("DOWN", "DRAIN", reason=OWN),
        node("MIXED", "DRAIN", reason=OWN),
        node("IDLE", "FAIL", "DRAIN", reason=OWN),
        node("IDLE", "DRAIN", "NOT_RESPONDING", reason=OWN),
        node("IDLE", reason=OWN),
    ):
        assert not is_retestable(CHECK, other)
    assert not is_retestable(Check("disk", "#!/bin/sh\n", undrain=False), node("IDLE", "DRAIN", reason=OWN))


def test_a_check_tests_nodes_with_its_partition_features_and_gpus() -> None:
    check = Check("gpu", "#!/bin/sh\n", partition="all", features=frozenset({"h100"}), gpus=True)
    whole = Node("n", partitions=("all",), features=("h100",), gres="gpu:h100:8")
    assert belongs(check, whole)
    for partitions, features, gres in (
        (("x",), ("h100",), "gpu:1"),
        (("all",), (), "gpu:1"),
        (("all",), ("h100",), ""),
    ):
        assert not belongs(check, Node("n", partitions=partitions, features=features, gres=gres))
    assert not belongs(CHECK, node(partitions=()))
    assert not belongs(CHECK, node("IDLE", "EXTERNAL"))


def test_the_job_goes_to_a_partition_that_all_its_nodes_are_in() -> None:
    first, second = node(partitions=("a", "all")), node(partitions=("b", "all"))
    assert partition_of(CHECK, [first]) == "a"
    assert partition_of(CHECK, [first, second]) == "all"
    assert partition_of(CHECK, [first, node(partitions=("b",))]) is None
    assert partition_of(Check("d", "#!/bin/sh\n", partition="all"), [first]) == "all"


@pytest.mark.parametrize("reason", ["None", "Resources", "Priority", "ReqNodeNotAvail", "", "SomethingNew"])
def test_a_job_that_may_wait_for_nodes_gets_them(reason: str) -> None:
    assert contested([WaitingJob(1, partitions=("a", "b"), reason=reason)]) == {"a", "b"}


@pytest.mark.parametrize(
    "reason", ["Dependency", "JobHeldUser", "BeginTime", "QOSMaxCpuPerUserLimit", "AssocGrpCpuLimit"]
)
def test_a_job_that_no_idle_node_starts_does_not_stop_checks(reason: str) -> None:
    assert not wants_nodes(WaitingJob(1, partitions=("a",), reason=reason))
    assert not wants_nodes(WaitingJob(1, partitions=("a",), reason="Resources", held=True))
    assert not wants_nodes(WaitingJob(1, waits=False, partitions=("a",), reason="None"))


def test_a_result_is_read_as_it_was_written() -> None:
    verdicts = {"a": Verdict(Kind.FAILED, "full", {"rate": "1MB/s"}), "b": Verdict(Kind.PASSED, "", {})}
    found = read(written(verdicts, 1000.4, 12.34))
    assert found is not None
    assert (found.at, found.seconds, dict(found.nodes)) == (1000, 12.3, verdicts)
    assert found.counts["passed"] == found.counts["failed"] == 1


def test_a_long_result_keeps_the_nodes_that_failed() -> None:
    verdicts = {f"n{number:05}": PASSED for number in range(MOST_NODES + 10)} | {"z": FAILED}
    text = written(verdicts, 0, 0)
    found = read(text)
    assert found is not None
    assert "z" in found.nodes
    assert len(found.nodes) == MOST_NODES
    assert found.counts["passed"] == MOST_NODES + 10
    assert len(text) < 500_000


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"at": 1}', '{"at": 1, "seconds": 1, "counts": {}, "nodes": {"a": {}}}']
)
def test_another_text_is_no_result(text: str) -> None:
    assert read(text) is None


def test_a_measured_value_has_a_number_in_its_basic_unit() -> None:
    assert value_of("2ms") == pytest.approx(0.002)
    assert value_of("2") is None
