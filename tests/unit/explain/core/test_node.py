"""Why a Slurm node takes no jobs: whose drain it is, and what ends it."""

from typing import Any

import pytest

from sidecars.explain.core import node as subject
from sidecars.explain.core.records import Answer, Finding, Level
from sidecars.policy.checks.results import Kind, Verdict, written
from sidecars.slurm.records import Reservation
from tests.unit.explain.core.building import (
    NOW,
    at,
    daemon,
    kube_node,
    node,
    pod,
    seen,
    starting,
    unscheduled,
)

EXEC = "kubectl -n slurm exec slurm-controller-0 -c slurmctld --"


def explained(*states: str, kube: dict[str, Any] | None = None, **more: Any) -> Answer:
    return subject.explain(
        seen({"nodes": (node("cpu-0", *states, **more),)}, kube, exec_in=EXEC), "cpu-0"
    )


def the_only(*states: str, **more: Any) -> Finding:
    [finding] = explained(*states, **more).findings
    return finding


def test_a_node_that_takes_jobs_has_no_finding() -> None:
    assert explained("IDLE").findings == ()
    assert explained("MIXED", alloc_cpus=2).state == "MIXED, 2 of 4 CPUs allocated"
    limited = explained("MIXED", alloc_cpus=2, specialized_cores=1)
    assert limited.state == "MIXED, 2 of 3 CPUs allocated"


@pytest.mark.parametrize(
    ("reason", "user", "owner", "level"),
    [
        ("bad disk", "root", "an administrator or another program (root)", Level.BLOCKS),
        ("Kill task failed", "slurm", "an administrator or another program (slurm)", Level.BLOCKS),
        ("slurm-operator: Pod (slurm/a) was cordoned", "slurm", "the operator", Level.WAITS),
        ("slurm-node: health: disk: /var is full", "slurm", "a check", Level.BLOCKS),
        ("slurm-node: check: scratch: /tmp is bad", "slurm", "a check", Level.BLOCKS),
        ("Not responding", "slurm", "slurmctld", Level.WAITS),
        ("", "", "an administrator or another program", Level.BLOCKS),
    ],
)
def test_a_drain_has_its_owner(reason: str, user: str, owner: str, level: Level) -> None:
    finding = the_only("IDLE", "DRAIN", reason=reason, reason_set_by_user=user)
    assert finding.code == "Drained"
    assert f"set by {owner}" in finding.cause
    assert finding.level is level


def test_results_of_checks_are_shown_unless_the_node_passed() -> None:
    verdicts = {"cpu-0": Verdict(Kind.FAILED, "rate is 1MB/s"), "cpu-1": Verdict(Kind.PASSED)}
    data = {
        "disk": written(verdicts, NOW - 600, 5),
        "net": written({"cpu-0": Verdict(Kind.PASSED)}, NOW, 5),
        "x": "{",
    }
    results = {"metadata": {"name": "slurm-check-results"}, "data": data}
    [finding] = explained("IDLE", kube={"check_results": (results,)}).findings
    assert (finding.code, finding.level) == ("CheckFailed", Level.WARNS)
    assert finding.cause == "Check disk, 10 min ago: failed: rate is 1MB/s."


def test_a_drain_of_a_check_ends_with_its_next_run() -> None:
    finding = the_only(
        "IDLE", "DRAIN", reason="slurm-node: check: disk: full", reason_set_by_user="slurm"
    )
    assert finding.event == "the next run of the check that passes returns it"
    assert "Repair the node" in finding.remedy


def test_the_slurm_bridge_lifts_its_own_drain() -> None:
    found = the_only(
        "IDLE",
        "DRAIN",
        reason="slurm-bridge: pod team/p runs here without a guard",
        reason_set_by_user="x",
    )
    assert (
        found.cause
        == "It is drained, set by the Slurm Bridge: pod team/p runs here without a guard."
    )
    assert (found.level, found.commands) == (Level.WAITS, ())
    assert "lifts the drain" in found.event


def test_only_a_foreign_drain_is_resumed_by_hand() -> None:
    resume = f"{EXEC} scontrol update nodename=cpu-0 state=resume"
    assert the_only("DOWN", reason="bad disk", reason_set_by_user="root").commands == (resume,)
    assert the_only("IDLE", "DRAIN", reason="slurm-operator: its pod was deleted").commands == ()


def test_a_drain_for_deletion_ends_with_its_pod_and_a_health_check_with_the_next_check() -> None:
    ends = the_only(
        "MIXED", "DRAIN", reason="slurm-operator: Pod (slurm/a) is pending termination for scale-in"
    )
    checked = the_only("IDLE", "DRAIN", reason="slurm-node: health: disk: /var is full")
    assert ends.event == "its jobs end, then its pod is deleted"
    assert "draining" in ends.cause
    assert "health check" in checked.event
    assert "Free space" in checked.remedy


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("IDLE", "NOT_RESPONDING"), "NotResponding"),
        (("IDLE", "INVALID_REG"), "INVALID_REG"),
        (("IDLE", "POWERED_DOWN"), "PoweredDown"),
        (("ALLOCATED", "POWERING_UP"), "PoweringUp"),
        (("IDLE", "POWERING_UP", "NOT_RESPONDING"), "PoweringUp"),
    ],
)
def test_states_that_are_no_drain_have_findings_of_their_own(
    states: tuple[str, ...], code: str
) -> None:
    assert the_only(*states).code == code


def test_a_pod_is_only_to_be_deleted_when_it_has_no_job() -> None:
    assert the_only("ALLOCATED", "INVALID_REG").remedy.startswith(
        "When it has no job, delete its pod"
    )


def test_a_reservation_counts_while_it_lasts() -> None:
    present = Reservation(
        "course", "cpu-[0-1]", users=("bob",), start_time=int(NOW) - 60, end_time=int(NOW) + 600
    )
    past = Reservation("old", "cpu-0", start_time=int(NOW) - 600, end_time=int(NOW) - 60)
    other = Reservation("else", "cpu-7", start_time=int(NOW) - 60, end_time=int(NOW) + 600)
    found = seen(
        {
            "nodes": (node("cpu-0", "IDLE", "RESERVED", reservation="course"),),
            "reservations": (present, past, other),
        }
    )
    [finding] = subject.explain(found, "cpu-0").findings
    assert finding.at == NOW + 600
    assert "course reserves it for bob" in finding.cause


def test_a_node_that_the_operator_has_closed_is_reserved_for_nobody() -> None:
    closing = "SlurmOperatorClosed-cpu"
    record = Reservation(
        closing, "cpu-0", users=("root",), start_time=int(NOW) - 60, end_time=int(NOW) + 240
    )
    closed = node("cpu-0", "IDLE", "POWERED_DOWN", "RESERVED", reservation=closing)
    found = subject.explain(seen({"nodes": (closed,), "reservations": (record,)}), "cpu-0")
    [finding] = [it for it in found.findings if it.code == "Closed"]
    assert finding.at == NOW + 240
    assert "PowerSaving" in finding.remedy
    assert "Reserved" not in {it.code for it in found.findings}


def test_a_node_that_has_not_registered_shows_its_pod() -> None:
    answer = subject.explain(seen(kube={"pods": (unscheduled("cpu-7"),)}), "cpu-7")
    assert answer.state == "not registered in Slurm"
    assert [it.code for it in answer.findings] == ["Unschedulable"]


def test_a_ready_pod_that_slurm_does_not_know_is_not_registered() -> None:
    answer = subject.explain(seen(kube={"pods": (pod("cpu-7"),)}), "cpu-7")
    assert [it.code for it in answer.findings] == ["NotRegistered"]


def test_a_silent_slurm_accuses_no_pod_of_not_being_registered() -> None:
    answer = subject.explain(seen({"nodes": None}, {"pods": (pod("cpu-7"),)}), "cpu-7")
    assert answer.findings == ()
    assert "unknown" in answer.state


def test_an_unknown_name_is_not_known() -> None:
    assert not subject.explain(seen(), "nobody").known


def test_a_kubernetes_node_is_explained_with_its_workers() -> None:
    worker = starting("cpu-0", "ImagePullBackOff")
    found = seen(kube={"pods": (worker,), "kube_nodes": (kube_node(cordoned=True),)})
    answer = subject.explain(found, "kube-cpu-0")
    assert {it.code for it in answer.findings} == {"Cordoned", "ImagePullBackOff"}
    assert answer.state == "1 worker pods: slurm-worker-cpu-0"


def test_pressure_on_a_kubernetes_node_is_a_warning() -> None:
    pressed = kube_node()
    pressed["status"]["conditions"].append(
        {"type": "DiskPressure", "status": "True", "message": "full", "lastTransitionTime": at(-5)}
    )
    answer = subject.explain(seen(kube={"kube_nodes": (pressed,), "pods": ()}), "kube-cpu-0")
    assert [(it.code, it.level) for it in answer.findings] == [("DiskPressure", Level.WARNS)]


@pytest.mark.parametrize(
    ("addresses", "used"),
    [
        (("10.0.0.5", "fd00::5"), "IPv4, as 10.0.0.5"),
        (("fd00::5", "10.0.0.5"), "IPv6, as fd00::5"),
        (("10.0.0.5",), ""),
        ((), ""),
    ],
)
def test_a_node_out_of_reach_whose_pod_has_both_ip_families_shows_which_one_slurm_uses(
    addresses: tuple[str, ...], used: str
) -> None:
    worker = pod(podIPs=[{"ip": it} for it in addresses])
    silent = node("cpu-0", "IDLE", "NOT_RESPONDING")
    down = node(
        "cpu-0", "DOWN", "NOT_RESPONDING", reason="Not responding", reason_set_by_user="slurm"
    )
    for nodes in ((silent,), (down,), ()):
        [finding] = subject.explain(
            seen({"nodes": nodes}, {"pods": (worker, daemon())}), "cpu-0"
        ).findings
        assert (f"Slurm uses {used} is the first" in finding.remedy) == bool(used), finding
        assert ("both IP families" in finding.remedy) == bool(used)
