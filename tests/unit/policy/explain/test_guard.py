"""What is shown of a guard, on the side of its job and on that of its pod."""

import pytest

from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.policy.explain import guard
from tests.unit.policy.explain.building import job, started

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
    [found] = guard.of_job(started("CANCELLED", "COMPLETING", guard=True, comment="other"), "job 12")
    assert found.code == "GuardCompleting"
    assert found.commands == (f"kubectl get pods -A -l {bridge.JOB_LABEL}=12 -o wide",)


@pytest.mark.parametrize("namespace", ["x; touch /tmp/x", "$(id)", "--all", "x\ny", ""])
def test_no_command_contains_what_the_user_of_a_guard_has_written_instead_of_a_namespace(namespace: str) -> None:
    [found] = guard.of_job(job(guard=True, comment=bridge.encode(Comment(namespace, "u"))), "job 12")
    assert found.commands == (f"kubectl get pods -A -l {bridge.JOB_LABEL}=12 -o wide",)


def test_nothing_is_shown_of_a_guard_that_has_ended() -> None:
    assert guard.of_job(started("CANCELLED", guard=True, comment=OURS), "job 12") == []
