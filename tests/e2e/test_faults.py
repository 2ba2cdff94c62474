"""An eviction and a scale-in that meet jobs, and an operator that is frozen."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.e2e.test_states import eviction, operator_leads, until_state
from tests.support.real.harness import CommandError, Slurm, until, until_equal
from tests.support.real.kills import processes

POD, NODE = "slurm-worker-slinky-1", "slinky-1"


@pytest.fixture(autouse=True)
def _no_job_is_left(slurm: Slurm) -> Iterator[None]:
    yield
    slurm.login("scancel", "--user=root")


def uids(slurm: Slurm) -> dict[str, str]:
    return {name: str(pod["metadata"]["uid"]) for name, pod in slurm.pods().items()}


def occupied(slurm: Slurm, node: str) -> int:
    """A job that has a node to itself, may not be started twice, and runs until it is ended."""
    number = slurm.submit_until_ended("-w", node, "--exclusive", "--no-requeue")
    until_state(slurm, number, "RUNNING")
    return number


def evict(slurm: Slurm) -> str:
    """Evict POD as `kubectl drain` does; why the API server refuses it, "" if nothing."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": POD, "namespace": "slurm"},
    }
    path = f"/api/v1/namespaces/slurm/pods/{POD}/eviction"
    try:
        slurm.kubernetes.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    except CommandError as error:
        return str(error)
    return ""


def test_an_eviction_waits_for_the_job_and_then_replaces_the_worker(slurm: Slurm) -> None:
    before = uids(slurm)
    number = occupied(slurm, NODE)
    until("the busy worker to be protected", lambda: "disruption budget" in eviction(slurm, POD))
    assert "disruption budget" in evict(slurm)
    slurm.end(number)
    until("the eviction to be granted", lambda: not evict(slurm), pause=1)
    assert slurm.job(number)["JobState"] == "COMPLETED"
    until("a successor", lambda: uids(slurm).get(POD) not in {None, before[POD]})
    slurm.until_idle(2)
    assert slurm.job(number)["Restarts"] == "0"


def test_a_scale_in_waits_for_a_suspended_job(slurm: Slurm) -> None:
    before = uids(slurm)
    number = occupied(slurm, NODE)
    slurm.login("scontrol", "suspend", str(number))
    until_state(slurm, number, "SUSPENDED")
    try:
        slurm.scale(0)
        until_equal("the other worker to be deleted", lambda: set(slurm.pods()), {POD})
        # Now it would end if it ran.
        slurm.worker(POD, "touch", f"/tmp/end-{number}")  # noqa: S108 - in the worker
        slurm.login("sleep", "10")
        assert uids(slurm) == {POD: before[POD]}
        assert slurm.job(number)["JobState"] == "SUSPENDED"
        slurm.login("scontrol", "resume", str(number))
        until_state(slurm, number, "COMPLETED")
        until("the last worker to be deleted", lambda: not slurm.pods())
    finally:
        slurm.login("scancel", str(number))
        slurm.scale(2)
        slurm.until_idle(2)


@contextmanager
def frozen(slurm: Slurm, pod: str) -> Iterator[None]:
    """No process of an operator's pod runs inside the block."""
    found = processes(slurm.kubernetes.get("-n", "slinky", "pod", pod)["metadata"]["uid"])
    assert found

    def send(number: signal.Signals) -> None:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)


def starts(slurm: Slurm, pod: str) -> int:
    """How often an operator's container was started again."""
    [container] = slurm.kubernetes.get("-n", "slinky", "pod", pod)["status"]["containerStatuses"]
    return int(container["restartCount"])


def draining(slurm: Slurm) -> list[str]:
    return [node for node, state in slurm.nodes().items() if "drain" in state]


def test_a_leader_that_was_frozen_until_another_led_undoes_nothing_of_what_that_one_did(
    slurm: Slurm,
) -> None:
    kubectl = slurm.kubernetes.kubectl
    kubectl("-n", "slinky", "scale", "deploy/slurm-operator", "--replicas=2")
    kubectl(
        "-n", "slinky", "rollout", "status", "deploy/slurm-operator", "--timeout=120s", timeout=130
    )
    jobs = [occupied(slurm, node) for node in ("slinky-0", "slinky-1")]
    before = uids(slurm)
    try:
        first = until("an operator to lead", lambda: operator_leads(slurm))
        started = starts(slurm, first)
        slurm.scale(1)
        until("a node to drain", lambda: draining(slurm))
        with frozen(slurm, first):
            until("the other operator to lead", lambda: operator_leads(slurm) not in {None, first})
            slurm.scale(2)
            until("the drain to be lifted", lambda: not draining(slurm))
        until("the former leader to end", lambda: starts(slurm, first) > started)
        assert operator_leads(slurm) != first
        assert draining(slurm) == []
        assert uids(slurm) == before
        assert {slurm.job(number)["JobState"] for number in jobs} == {"RUNNING"}
    finally:
        slurm.login("scancel", *map(str, jobs))
        slurm.scale(2)
        kubectl("-n", "slinky", "scale", "deploy/slurm-operator", "--replicas=1")
    slurm.until_idle(2)
