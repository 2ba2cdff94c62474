"""Which nodes are tested, what is written to them, and to which jobs checks give way."""

from dataclasses import replace

import pytest

from sidecars.checks.core.nodes import (
    Reaction,
    belongs,
    contested,
    is_idle,
    is_retestable,
    partition_of,
    reaction,
    usable,
    wants_nodes,
)
from sidecars.contract.reasons import Owner, owner
from sidecars.policy.checks.declared import Check, Strategy
from sidecars.policy.checks.results import Kind, Verdict
from sidecars.slurm.checks import WaitingJob
from sidecars.slurm.records import Node, Partition

CHECK = Check("disk", "#!/bin/sh\n")
OWN = "slurm-node: check: disk: full"
FAILED, PASSED = Verdict(Kind.FAILED, "full"), Verdict(Kind.PASSED)


def node(
    *states: str, reason: str = "", partitions: tuple[str, ...] = ("all",), gres: str = ""
) -> Node:
    return Node(
        "n", frozenset(states or ("IDLE",)), reason=reason, partitions=partitions, gres=gres
    )


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
def test_a_reaction_changes_the_checks_own_drain_alone(
    found: Node | None, verdict: Verdict, want: Reaction
) -> None:
    assert reaction(CHECK, found, verdict) == want


@pytest.mark.parametrize(
    ("comment", "overwritten"),
    [
        ("", True),
        ("slurm-node: check: disk: passed", True),
        ("slurm-node: check: memory: failed", True),
        ('{"podName": "a", "namespace": "slurm", "nodeSetUID": "u"}', False),
        ("row 4, broken fan", False),
        ("disk: passed", False),
    ],
)
def test_a_comment_that_no_check_has_written_stays(comment: str, overwritten: bool) -> None:
    check = Check("disk", "#!/bin/sh\n", comment=True)
    found = replace(node(), comment=comment)
    assert (reaction(check, found, PASSED).comment is not None) == overwritten
    assert (reaction(check, found, FAILED).comment is not None) == overwritten
    assert reaction(check, found, FAILED).drain == OWN


def test_a_check_can_only_report() -> None:
    check = Check("disk", "#!/bin/sh\n", drain=False, undrain=False, comment=True)
    assert reaction(check, node(), FAILED) == Reaction(
        comment="slurm-node: check: disk: failed: full"
    )
    assert reaction(check, node("IDLE", "DRAIN", reason=OWN), PASSED) == Reaction(
        comment="slurm-node: check: disk: passed"
    )


def test_the_reason_of_a_check_is_the_worker_pods() -> None:
    assert owner(OWN) is Owner.POD


@pytest.mark.parametrize(
    "states",
    [
        *(
            ("MIXED",),
            ("ALLOCATED",),
            ("IDLE", "COMPLETING"),
            ("IDLE", "DRAIN"),
            ("IDLE", "RESERVED"),
            ("DOWN",),
        ),
        *(
            ("IDLE", "NOT_RESPONDING"),
            ("IDLE", "PLANNED"),
            ("IDLE", "MAINTENANCE"),
            ("IDLE", "POWERED_DOWN"),
        ),
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
    assert not is_retestable(
        Check("disk", "#!/bin/sh\n", undrain=False), node("IDLE", "DRAIN", reason=OWN)
    )


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
    assert partition_of(["a", "all"], [first]) == "a"
    assert partition_of(["a", "all"], [first, second]) == "all"
    assert partition_of(["a", "b"], [first, second]) is None
    assert partition_of(["all"], [first]) == "all"


def test_a_check_uses_the_partitions_that_start_jobs_of_its_size_and_of_one_declared_no_other() -> (
    None
):
    partitions = [
        *(
            Partition("a", frozenset({"UP"})),
            Partition("one", max_nodes=1),
            Partition("two", max_nodes=2),
        ),
        *(Partition(word, frozenset({word})) for word in ("DOWN", "DRAIN", "INACTIVE")),
    ]
    assert usable(CHECK, partitions) == {"a", "one", "two"}
    pairs = replace(CHECK, strategy=Strategy.PAIRS)
    assert usable(pairs, partitions) == {"a", "two"}
    assert usable(replace(pairs, partition="two"), partitions) == {"two"}
    assert usable(replace(pairs, partition="one"), partitions) == set()


@pytest.mark.parametrize(
    "reason", ["None", "Resources", "Priority", "ReqNodeNotAvail", "", "SomethingNew"]
)
def test_a_job_that_may_wait_for_nodes_gets_them(reason: str) -> None:
    assert contested([WaitingJob(1, partitions=("a", "b"), reason=reason)]) == {"a", "b"}


@pytest.mark.parametrize(
    "reason",
    ["Dependency", "JobHeldUser", "BeginTime", "QOSMaxCpuPerUserLimit", "AssocGrpCpuLimit"],
)
def test_a_job_that_no_idle_node_starts_does_not_stop_checks(reason: str) -> None:
    assert not wants_nodes(WaitingJob(1, partitions=("a",), reason=reason))
    assert not wants_nodes(WaitingJob(1, partitions=("a",), reason="Resources", blocked=True))
    assert not wants_nodes(WaitingJob(1, waits=False, partitions=("a",), reason="None"))
