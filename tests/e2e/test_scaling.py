"""Scaling the worker NodeSet while jobs run on it."""

import json
from collections.abc import Iterator

import pytest

from tests.support.real.harness import Slurm, condition, seconds, until, until_equal


@pytest.fixture(autouse=True)
def _two_workers_again(slurm: Slurm) -> Iterator[None]:
    yield
    # What a test has seen enough of.
    slurm.login("scancel", "--user=root")
    slurm.scale(2)
    slurm.until_idle(2)


def test_a_new_worker_is_idle_in_slurm_within_seconds_of_being_scheduled(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.scale(3)
    slurm.until_idle(3)
    [node] = json.loads(slurm.login("scontrol", "show", "node", "slinky-2", "--json"))["nodes"]
    # By slurmctld's and slurmd's clocks: since when it has had no job, and when its slurmd started.
    idle = max(node[it]["number"] for it in ("last_busy", "slurmd_start_time"))
    scheduled = seconds(
        condition(slurm.pods()["slurm-worker-slinky-2"], "PodScheduled")["lastTransitionTime"]
    )
    took = idle - scheduled
    with capsys.disabled():
        print(
            f"\nworker pod scheduled -> IDLE in Slurm: {took:.0f} s (both times have whole seconds)"
        )
    assert 0 <= took < 15


def occupy(slurm: Slurm, *nodes: str, limit: str = "UNLIMITED") -> dict[str, int]:
    """A job on each of these nodes, by node, which runs until it is ended."""
    jobs = {
        node: slurm.submit_until_ended("-w", node, "--exclusive", f"--time={limit}")
        for node in nodes
    }
    slurm.until_running(*jobs.values())
    return jobs


def test_scale_in_lets_every_job_finish_before_its_pod_goes(slurm: Slurm) -> None:
    slurm.scale(4)
    slurm.until_idle(4)
    jobs = occupy(slurm, "slinky-0", "slinky-1")
    with slurm.watching_pods() as watch:
        slurm.scale(1)
        until_equal(
            "the idle workers to be gone", lambda: set(slurm.nodes()), {"slinky-0", "slinky-1"}
        )
        until_equal("slinky-1 to drain", lambda: slurm.nodes().get("slinky-1"), "draining")
        slurm.end(jobs["slinky-1"])
        until_equal(
            "one worker pod to be left", lambda: set(slurm.pods()), {"slurm-worker-slinky-0"}
        )
        until_equal("their records to be gone", lambda: set(slurm.nodes()), {"slinky-0"})
    slurm.end(jobs["slinky-0"])
    for node, number in jobs.items():
        assert slurm.job(number)["NodeList"] == node
    # Idle pods go first; then the busy one whose job ends first, after its job.
    first, second, busy = (watch.deletion_asked[f"slurm-worker-slinky-{n}"] for n in (3, 2, 1))
    assert max(first, second) <= busy
    assert busy >= seconds(slurm.job(jobs["slinky-1"])["EndTime"] + "+00:00")
    slurm.until_idle(1)


def test_a_drained_node_shows_whose_drain_it_is(slurm: Slurm) -> None:
    # The first as backfill starts it: that job ends no sooner than one without a limit.
    occupy(slurm, "slinky-0", limit="365-0")
    occupy(slurm, "slinky-1")
    slurm.scale(1)
    until_equal("slinky-1 to drain", lambda: slurm.nodes().get("slinky-1"), "draining")
    reason = slurm.login("sinfo", "-h", "-n", "slinky-1", "-o", "%E").strip()
    assert (
        reason
        == "slurm-operator: Pod (slurm/slurm-worker-slinky-1) is pending termination for scale-in"
    )
    ready = until(
        "the NodeSet to say what it waits for",
        lambda: (
            found
            if (
                found := condition(
                    slurm.kubernetes.get("-n", "slurm", "nodeset", "slurm-worker-slinky"), "Ready"
                )
            )
            and found["reason"] == "Draining"
            else None
        ),
    )
    assert "slinky-1" in ready["message"]


def test_scaling_out_again_rescues_a_pod_that_was_to_go(slurm: Slurm) -> None:
    before = slurm.pods()["slurm-worker-slinky-1"]["metadata"]["uid"]
    occupy(slurm, "slinky-0")
    number = occupy(slurm, "slinky-1")["slinky-1"]
    slurm.scale(1)
    until_equal("slinky-1 to drain", lambda: slurm.nodes().get("slinky-1"), "draining")
    slurm.scale(2)
    until_equal("the drain to be lifted", lambda: slurm.nodes().get("slinky-1"), "allocated")
    slurm.end(number)
    assert slurm.pods()["slurm-worker-slinky-1"]["metadata"]["uid"] == before


def test_a_nodeset_scales_to_zero_and_back(slurm: Slurm) -> None:
    slurm.scale(0)
    until("all worker pods to be gone", lambda: not slurm.pods() or None)
    until("all records to be gone", lambda: not slurm.nodes() or None)
    slurm.scale(2)
    slurm.until_idle(2)
    assert sorted(slurm.login("srun", "-N2", "hostname").split()) == ["slinky-0", "slinky-1"]


def test_a_busy_worker_that_is_deleted_finishes_its_job_and_leaves_no_record(slurm: Slurm) -> None:
    number = occupy(slurm, "slinky-1")["slinky-1"]
    before = slurm.pods()["slurm-worker-slinky-1"]["metadata"]["uid"]
    slurm.kubernetes.kubectl(
        "-n", "slurm", "delete", "pod", "slurm-worker-slinky-1", "--wait=false"
    )
    until_equal("slinky-1 to drain", lambda: slurm.nodes().get("slinky-1"), "draining")
    assert slurm.pods()["slurm-worker-slinky-1"]["metadata"]["uid"] == before
    slurm.end(number)
    until(
        "a successor to be idle",
        lambda: (
            (
                slurm.nodes().get("slinky-1") == "idle"
                and slurm.pods()["slurm-worker-slinky-1"]["metadata"]["uid"] != before
            )
            or None
        ),
    )
