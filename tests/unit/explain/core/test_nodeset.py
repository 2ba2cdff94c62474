"""What a NodeSet lacks: workers, nodes in Slurm, or nothing."""

from dataclasses import replace
from typing import Any

from sidecars.explain.core import nodeset as subject
from sidecars.explain.core.records import Answer, Level
from tests.unit.explain.core.building import (
    NODESET,
    condition,
    event,
    node,
    nodeset,
    pod,
    seen,
    starting,
    unscheduled,
)


def explained(slurm: dict[str, Any] | None = None, **kube: Any) -> Answer:
    return subject.explain(seen(slurm, kube), NODESET)


def codes(answer: Answer) -> set[str]:
    return {it.code for it in answer.findings}


def test_a_nodeset_with_all_its_workers_has_no_finding() -> None:
    ready = nodeset(conditions=(condition("Ready", "True", "Ready"),), readyReplicas=2)
    answer = explained(nodesets=(ready,))
    assert (answer.state, answer.findings) == ("Ready, 2 of 2 workers ready", ())


def test_workers_that_cannot_be_scheduled_are_found_with_the_condition() -> None:
    waits = nodeset(
        conditions=(condition("Ready", "False", "PodsNotReady", "0/3 nodes are available"),)
    )
    answer = explained(
        {"nodes": ()}, nodesets=(waits,), pods=(unscheduled("cpu-0"), unscheduled("cpu-1"))
    )
    assert codes(answer) == {"PodsNotReady", "Unschedulable"}


def test_the_same_trouble_of_many_workers_is_shown_once() -> None:
    pods = tuple(unscheduled(f"cpu-{number}") for number in range(20))
    answer = explained({"nodes": ()}, nodesets=(nodeset(replicas=20),), pods=pods)
    assert [it.code for it in answer.findings] == ["Unschedulable"]


def test_a_refused_pod_quotes_the_api_server() -> None:
    short = nodeset()
    short["status"]["replicas"] = 1
    refused = event("NodeSet", NODESET, "FailedCreate", "admission webhook denied the request")
    assert codes(
        explained(
            {"nodes": (node("cpu-0"),)}, nodesets=(short,), pods=(pod("cpu-0"),), events=(refused,)
        )
    ) == {"FailedCreate"}


def test_ready_workers_that_slurm_does_not_have_are_counted() -> None:
    answer = explained({"nodes": (node("cpu-0"),)})
    assert codes(answer) == {"NotRegistered"}
    assert "1 workers are ready" in answer.findings[0].cause


def test_a_silent_slurm_accuses_nobody() -> None:
    assert explained({"nodes": None}).findings == ()


def test_one_drained_node_of_several_is_a_warning_and_all_of_them_block() -> None:
    drained = node("cpu-0", "IDLE", "DRAIN", reason="bad disk", reason_set_by_user="root")
    one = explained({"nodes": (drained, node("cpu-1"))})
    both = explained({"nodes": (drained, replace(drained, name="cpu-1"))})
    assert [it.level for it in one.findings] == [Level.WARNS]
    assert [it.level for it in both.findings] == [Level.BLOCKS, Level.BLOCKS]


def test_the_nodes_of_another_nodeset_are_not_its_own() -> None:
    other = node("gpu-0", "IDLE", "DRAIN", reason="bad disk", extra="")
    assert explained({"nodes": (node("cpu-0"), node("cpu-1"), other)}).findings == ()


def test_a_wait_that_ends_is_no_block() -> None:
    draining = nodeset(
        conditions=(condition("Ready", "False", "Draining", "cpu-1: its jobs are still running"),)
    )
    [finding] = explained(nodesets=(draining,)).findings
    assert (finding.code, finding.level) == ("Draining", Level.WAITS)


def test_a_nodeset_of_no_workers_and_one_in_progress_are_facts() -> None:
    assert codes(explained({"nodes": ()}, nodesets=(nodeset(replicas=0),), pods=())) == {
        "ScaledToZero"
    }
    assert codes(
        explained(
            {"nodes": (node("cpu-0"),)}, pods=(pod("cpu-0"), starting("cpu-1", "PodInitializing"))
        )
    ) == {"Starting"}


def test_an_unknown_name_lists_the_others() -> None:
    answer = subject.explain(seen(), "cpus")
    assert not answer.known
    assert NODESET in answer.state


def test_nodesets_that_were_not_read_are_not_absent() -> None:
    assert "could not be read" in explained(nodesets=None).state


def test_what_autoscaling_reports_is_shown() -> None:
    scaled = nodeset(conditions=(condition("Autoscaled", "True", "Maximum", "the maximum is 2"),))
    assert codes(explained(nodesets=(scaled,))) == {"Maximum"}
