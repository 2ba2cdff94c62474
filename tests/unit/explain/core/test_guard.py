"""What is shown of a guard, on the side of its job and on that of its pod."""

import pytest

from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.explain.core import guard
from sidecars.explain.core.records import Level, Object
from tests.unit.explain.core.building import NOW, at, job, seen, started

OURS = bridge.encode(Comment("physics", "u"))


def test_a_job_of_others_is_no_guard_and_no_node_waits_for_a_pod_of_a_guard_that_runs() -> None:
    assert guard.of_job(started("COMPLETED", "COMPLETING"), "job 12") == []
    assert guard.of_pod(started("COMPLETED", "COMPLETING"), "pod p") == []
    assert guard.of_pod(started("RUNNING", guard=True), "pod p") == []


def test_a_guard_that_waits_names_the_command_that_lists_its_pods() -> None:
    [found] = guard.of_job(job(guard=True, comment=OURS), "job 12")
    assert found.code == "Guard"
    assert found.commands == (f"kubectl get pods -n physics -l {bridge.JOB_LABEL}=12 -o wide",)


def test_of_a_guard_with_another_comment_the_pods_of_all_namespaces_are_listed() -> None:
    [found] = guard.of_job(
        started("CANCELLED", "COMPLETING", guard=True, comment="other"), "job 12"
    )
    assert found.code == "GuardCompleting"
    assert found.commands == (f"kubectl get pods -A -l {bridge.JOB_LABEL}=12 -o wide",)


@pytest.mark.parametrize("namespace", ["x; touch /tmp/x", "$(id)", "--all", "x\ny", ""])
def test_no_command_contains_what_the_user_of_a_guard_has_written_instead_of_a_namespace(
    namespace: str,
) -> None:
    [found] = guard.of_job(
        job(guard=True, comment=bridge.encode(Comment(namespace, "u"))), "job 12"
    )
    assert found.commands == (f"kubectl get pods -A -l {bridge.JOB_LABEL}=12 -o wide",)


def test_nothing_is_shown_of_a_guard_that_has_ended() -> None:
    assert guard.of_job(started("CANCELLED", guard=True, comment=OURS), "job 12") == []


def left(name: str, deleted: float | None = None, phase: str = "Running") -> Object:
    """A pod of the guard, whose grace period of an hour ends at that time."""
    ends = (
        {}
        if deleted is None
        else {"deletionTimestamp": at(deleted), "deletionGracePeriodSeconds": 3600}
    )
    return {"metadata": {"name": name, "namespace": "physics", **ends}, "status": {"phase": phase}}


def test_the_pods_that_a_guards_node_waits_for_are_named_with_the_end_of_their_grace() -> None:
    late, ends, runs = guard.left(
        seen(kube={"guarded": (left("b", 25), left("a", -25), left("c"))})
    )
    assert (late.about, late.level, late.at) == ("pod physics/a", Level.BLOCKS, None)
    assert "kubectl -n physics describe pod a" in late.remedy
    assert (ends.about, ends.level, ends.at) == ("pod physics/b", Level.WAITS, NOW + 25)
    assert "has 3600 s to end" in ends.cause
    assert (runs.about, runs.event) == ("pod physics/c", "the Slurm Bridge deletes it")


def test_the_node_of_a_guard_waits_for_no_pod_that_has_ended_and_many_pods_are_counted() -> None:
    assert (
        guard.left(seen(kube={"guarded": (left("a", 25, "Succeeded"), left("b", 25, "Failed"))}))
        == []
    )
    assert guard.left(seen(kube={"guarded": None})) == []
    many = guard.left(seen(kube={"guarded": tuple(left(f"p{number}", 25) for number in range(7))}))
    assert len(many) == 6
    assert "2 more" in many[-1].cause
