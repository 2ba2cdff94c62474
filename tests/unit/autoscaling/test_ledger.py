"""Promises that Slurm doesn't keep: `sidecars.autoscaling.ledger`."""

from dataclasses import replace

import pytest

from sidecars.autoscaling.ledger import GAP, RETRY, Ledger
from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import Nodes, Plan, PresentNode, Settings, patience
from sidecars.slurm.records import QueuedJob
from tests.unit.autoscaling.builders import NOW, busy, job, node, nodeset, replicas, why


class Scene:
    """Plans every five seconds, as the operator does."""

    def __init__(self, *jobs: QueuedJob) -> None:
        self.ledger, self.queue = Ledger(), Queue(jobs)
        self.autoscaling = Autoscaling(Settings())
        self.now = NOW

    def plan(self, *nodes: PresentNode) -> Plan:
        self.queue.refuse(self.ledger.refused(self.now))
        found = self.autoscaling.plan(
            [nodeset(replicas=len(nodes))],
            Jobs(self.queue, self.now),
            Nodes(nodes, self.now),
            {},
            self.now,
        )
        self.ledger.observe(found.startable, self.queue, self.now, 120.0)
        return found

    def wait(self, seconds: float, *nodes: PresentNode) -> Plan:
        end = self.now + seconds
        while self.now < end:
            self.plan(*nodes)
            self.now += 5
        return self.plan(*nodes)


def test_a_job_that_slurm_does_not_start_on_a_free_node_gets_no_more_and_is_named() -> None:
    scene = Scene(*(job(i, tasks=8) for i in (1, 2, 3)))
    there = node("cpu-0", idle_since=NOW)
    first = scene.plan(there)
    assert (first.startable, replicas(first)) == ((1,), {"cpu": 3})
    after = scene.wait(125, there)
    assert [(it.reason.value, it.detail, it.jobs) for it in after.excluded] == [
        ("NotStarted", "Resources", (1, 2, 3))
    ]
    assert after.promises == ()
    assert replicas(scene.wait(300, there)) == {"cpu": 0}


def test_another_request_still_gets_its_nodes() -> None:
    scene = Scene(job(1, tasks=8))
    scene.wait(130, node("cpu-0"))
    scene.queue.update([job(2, tasks=7)])
    found = scene.plan(node("cpu-0"))
    assert (why(found), [it.jobs for it in found.promises]) == ({"NotStarted": 1}, [(2,)])


def test_a_refused_request_is_tried_again_ever_more_seldom() -> None:
    scene = Scene(job(1, tasks=8))
    there = node("cpu-0", idle_since=NOW + 1_000_000)
    for pause in (RETRY, 2 * RETRY):
        assert why(scene.wait(125, there)) == {"NotStarted": 1}
        assert why(scene.wait(pause - 20, there)) == {"NotStarted": 1}
        assert why(scene.wait(20, there)) == {}


def test_a_request_of_which_no_job_waits_is_forgotten() -> None:
    scene = Scene(job(1, tasks=8))
    scene.wait(130, node("cpu-0"))
    scene.queue.update([], [1])
    scene.plan(node("cpu-0"))
    scene.queue.update([job(2, tasks=8)])
    assert why(scene.plan(node("cpu-0"))) == {}


@pytest.mark.parametrize("reason", ["Priority", "None", "", "BeginTime"])
def test_a_job_that_slurm_has_not_tried_to_start_is_not_refused(reason: str) -> None:
    scene = Scene(job(1, tasks=8, reason=reason))
    assert why(scene.wait(600, node("cpu-0"))) == {}


def test_jobs_behind_one_that_finds_no_room_are_not_refused() -> None:
    wide = job(1, priority=200, tasks=3, min_nodes=3, max_nodes=3)
    scene = Scene(wide, job(2, tasks=8))
    found = scene.wait(600, node("cpu-0"), busy("cpu-1"))
    assert "NotStarted" not in why(found)
    assert found.startable == ()


def test_an_array_whose_tasks_start_one_after_the_other_is_not_refused() -> None:
    scene = Scene(job(1, tasks=8, array_tasks="0-99"))
    for number in range(30):
        scene.queue.update([job(1, tasks=8, array_tasks=f"{number}-99")])
        assert "NotStarted" not in why(scene.wait(30, node("cpu-0")))


def test_a_node_on_which_a_job_still_ends_is_not_free() -> None:
    scene = Scene(job(1, tasks=8))
    assert why(scene.wait(600, replace(node("cpu-0"), unsettled=True))) == {}


def test_time_without_a_plan_does_not_count() -> None:
    scene = Scene(job(1, tasks=8))
    scene.plan(node("cpu-0"))
    scene.now += GAP + 100
    scene.plan(node("cpu-0"))
    assert why(scene.plan(node("cpu-0"))) == {}


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [
        ("", 120),
        ("defer,sched_interval=10", 120),
        ("sched_interval=300", 600),
        ("bf_interval=600,sched_interval=300", 1200),
        ("sched_interval=soon", 120),
    ],
)
def test_the_schedulers_of_slurm_get_the_time_of_two_runs(parameters: str, seconds: int) -> None:
    assert patience(parameters.split(",")) == seconds
