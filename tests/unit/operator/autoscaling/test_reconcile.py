"""NodeSets that follow the queue, in a simulated cluster."""

import threading
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from sidecars.autoscaling.records import Plan
from sidecars.kube.errors import api_error
from sidecars.operator.autoscaling import effects, reconcile
from sidecars.simulate.records import Fault
from sidecars.workloads import names
from tests.support.virtual_time import run
from tests.support.world.kubelets import Slurmd
from tests.support.world.world import CONTROLLER, NODESET, World, world

QUICK = {
    "max": 6,
    "idleSeconds": 30,
    "coolDownSeconds": 30,
    "stepSeconds": 5,
    "node": "Sockets=1 CoresPerSocket=4",
}


def replicas(w: World, name: str = "slinky") -> int:
    return int((w.api.get(NODESET, "slurm", name) or {})["spec"]["replicas"])


def turns(sizes: list[int]) -> int:
    """How often a row of numbers changes its direction."""
    steps = [after > before for before, after in pairwise(sizes) if after != before]
    return sum(one != other for one, other in pairwise(steps))


def watched(w: World, name: str = "slinky") -> list[int]:
    """The number of replicas at each second from now on."""
    found: list[int] = []
    w.each_second.append(lambda: found.append(replicas(w, name)))
    return found


async def emptied(w: World) -> None:
    await w.until("all jobs have ended", lambda: all(job.over for job in w.jobs.all), 900)
    await w.until("nothing is left", lambda: not w.pods() and not replicas(w), 900)


def scaled(w: World, **more: Any) -> None:
    w.nodeset(replicas=0, autoscaling=QUICK | more)


def test_a_nodeset_grows_from_nothing_with_the_queue_and_shrinks_to_nothing() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            scaled(w)
            await w.run(30)
            slurm = w.slurms["slurm", "slurm"]
            sizes = watched(w)
            for count, seconds in ((1, 20), (3, 60), (2, 40)):
                w.jobs.queue(slurm, count, seconds)
            took = await w.until("the first pod", w.pods, 30)
            assert took <= 3.0
            await emptied(w)
            assert max(sizes) == 6
            assert turns(sizes) == 1
            assert w.condition("slinky", "Autoscaled")["reason"] in ("Satisfied", "Minimum")

    run(scenario())


@pytest.mark.parametrize(
    "fault", [Fault.NO_SLURMCTLD, Fault.HANG, Fault.EMPTY, Fault.ERRORS_WITH_200, Fault.STALE]
)
@pytest.mark.parametrize("at", [3.0, 30.0, 75.0])
def test_while_slurm_does_not_answer_a_busy_nodeset_keeps_its_size_and_no_job_is_lost(
    fault: Fault, at: float
) -> None:
    async def scenario() -> None:
        async with world(2) as w:
            scaled(w)
            await w.run(30)
            slurm = w.slurms["slurm", "slurm"]
            sizes = watched(w)
            for count, seconds in ((2, 60), (3, 100)):
                w.jobs.queue(slurm, count, seconds)
            await w.run(at)
            slurm.fail(fault)
            await w.run(20)
            before = replicas(w)
            await w.run(120)
            assert replicas(w) == before
            slurm.heal()
            await emptied(w)
            assert turns(sizes) <= 2

    run(scenario())


@pytest.mark.parametrize("at", [2.0, 20.0, 70.0, 100.0])
def test_an_operator_that_is_started_again_goes_on_with_what_it_has_recorded(at: float) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            scaled(w)
            await w.run(30)
            slurm = w.slurms["slurm", "slurm"]
            sizes = watched(w)
            for count, seconds in ((1, 30), (3, 60), (2, 90)):
                w.jobs.queue(slurm, count, seconds)
            await w.run(at)
            w.crash()
            await emptied(w)
            assert max(sizes) == 6
            assert turns(sizes) <= 2

    run(scenario())


def test_a_node_that_gets_a_job_before_it_is_drained_stays() -> None:
    async def scenario() -> None:
        async with world(4) as w:
            scaled(w, min=1)
            await w.run(30)
            slurm = w.slurms["slurm", "slurm"]
            w.jobs.queue(slurm, 3, 20)
            await w.until("the job runs", lambda: w.jobs.all[0].runs, 120)
            while replicas(w) == 3:
                # A job comes at each moment at which the operator may decide.
                await w.run(0.25)
                if w.jobs.all[-1].over and len(w.jobs.all) < 12:
                    w.job(2, 29.9)
            await w.until("only the minimum is left", lambda: len(w.pods()) == 1, 600)
            assert replicas(w) == 1

    run(scenario())


def test_a_node_that_was_kept_for_a_job_stays_when_the_job_starts_at_last() -> None:
    async def scenario() -> None:
        async with world(8) as w:
            scaled(w)
            slurm = w.slurms["slurm", "slurm"]
            w.jobs.queue(slurm, 1, 20)
            await w.until("the node is idle again", lambda: w.jobs.all[0].over, 120)
            for number in range(20):
                waiting = slurm.job_submit(cpus=4)
                # Longer than an idle node is left. Jobs and nodes are read at different moments.
                await w.run(40 + number / 20)
                job = w.jobs.submit(slurm, 1, 10)
                job.pending_id = waiting
                sizes = watched(w)
                await w.until("the job has ended", partial(getattr, job, "over"), 60)
                assert set(sizes) == {1}, number

    run(scenario())


def test_a_worker_in_slurm_that_the_kubelet_has_not_reported_is_the_one_its_job_waits_for() -> None:
    async def scenario() -> None:
        async with world(8) as w:
            scaled(w)
            w.kubelets.late = 120.0
            slurm = w.slurms["slurm", "slurm"]
            slurm.job_submit(cpus=4)
            await w.until("the worker is in Slurm", lambda: slurm.nodes, 60)
            sizes = watched(w)
            # Longer than a pod is left that no job needs.
            await w.run(90)
            assert set(sizes) == {1}

    run(scenario())


@pytest.mark.parametrize("fault", [Fault.NO_SLURMCTLD, Fault.HANG])
def test_a_nodeset_gets_its_minimum_although_the_queue_is_not_read_and_nodes_are(
    fault: Fault,
) -> None:
    async def scenario() -> None:
        async with world(8) as w:
            scaled(w)
            w.jobs.queue(w.slurms["slurm", "slurm"], 1, 600)
            await w.until("the job runs", lambda: w.jobs.all[0].runs, 120)
            w.slurms["slurm", "slurm"].fail(fault, path="jobs/")
            await w.run(10)
            w.change("slinky", {"autoscaling": {"min": 3}})
            assert await w.until("the minimum", lambda: replicas(w) == 3, 90) <= 75

    run(scenario())


@pytest.mark.parametrize("seconds", [1.5, 5.0, 20.0])
def test_a_nodeset_follows_a_queue_that_takes_longer_to_read_than_the_nodes(seconds: float) -> None:
    async def scenario() -> None:
        async with world(8) as w:
            scaled(w)
            slurm = w.slurms["slurm", "slurm"]
            slurm.fail(Fault.SLOW, path="jobs/", seconds=seconds)
            w.jobs.queue(slurm, 1, 900)
            await w.until("the first job runs", lambda: w.jobs.all[0].runs, 120)
            w.jobs.queue(slurm, 2, 60)
            assert await w.until("two more", lambda: replicas(w) == 3, 120) <= 3 * (seconds + 10)
            await w.until("one is left", lambda: replicas(w) == 1, 600)

    run(scenario())


def test_a_nodeset_whose_workers_cannot_run_jobs_stops_growing_until_they_are_mended() -> None:
    async def scenario() -> None:
        async with world(7) as w:
            scaled(w, max=50)
            await w.run(30)
            slurm = w.slurms["slurm", "slurm"]
            reason = "gres/gpu count reported lower than configured (0 < 4)"

            def invalid(slurmd: Slurmd) -> None:
                slurm.nodes[slurmd.slurm_node].flags.add("INVALID_REG")
                slurm.update_node(slurmd.slurm_node, "DRAIN", reason)

            w.kubelets.registered.append(invalid)
            job = w.jobs.queue(slurm, 1, 20)
            await w.until(
                "growth stops",
                lambda: w.condition("slinky", "Autoscaled")["reason"] == "WorkersUnusable",
                300,
            )
            await w.run(300)
            assert replicas(w) == 4
            found = w.condition("slinky", "Autoscaled")
            assert found["status"] == "False"
            assert found["message"].startswith("4 of 4 workers can't run jobs")
            assert reason in found["message"]
            w.kubelets.registered.remove(invalid)
            for node in slurm.nodes.values():
                node.flags -= {"INVALID_REG"}
                slurm.update_node(node.name, "RESUME")
            await w.until("the job has run", lambda: job.over, 120)
            await emptied(w)

    run(scenario())


def test_what_nodes_offer_is_learnt_from_the_first_one_and_remembered_without_any() -> None:
    async def scenario() -> None:
        async with world(5) as w:
            scaled(w, node="")
            await w.run(30)
            slurm = w.slurms["slurm", "slurm"]
            sizes = watched(w)
            w.jobs.queue(slurm, 3, 20)
            await w.until("one node is started", lambda: replicas(w) == 1, 10)
            await emptied(w)
            assert max(sizes) == 3
            sizes.clear()
            w.jobs.queue(slurm, 3, 20)
            await w.until("three nodes are started", lambda: replicas(w) == 3, 10)
            assert 1 not in sizes
            await emptied(w)

    run(scenario())


def test_a_job_that_no_nodeset_could_run_is_named_and_adds_no_node() -> None:
    async def scenario() -> None:
        async with world(6) as w:
            scaled(w)
            await w.run(30)
            w.slurms["slurm", "slurm"].job_submit(cpus=64)
            await w.run(90)
            assert replicas(w) == 0
            status = (w.api.get(CONTROLLER, "slurm", "slurm") or {})["status"]
            found = next(it for it in status["conditions"] if it["type"] == "JobsCounted")
            assert found["reason"] == "NotCounted"
            assert found["message"].startswith("Impossible: ")

    run(scenario())


def test_a_number_that_another_client_writes_is_kept_and_the_client_is_named() -> None:
    async def scenario() -> None:
        async with world(7) as w:
            scaled(w)
            await w.run(30)
            w.change("slinky", {"replicas": 2})
            await w.run(200)
            assert replicas(w) == 2
            assert w.condition("slinky", "Autoscaled")["reason"] == "OtherOwner"
            w.api.change(
                NODESET, "slurm", "slinky", {"metadata": {"annotations": {names.AUTOSCALING: None}}}
            )
            await emptied(w)

    run(scenario())


def test_a_nodeset_that_is_no_longer_scaled_loses_the_condition() -> None:
    async def scenario() -> None:
        async with world(8) as w:
            scaled(w)
            await w.run(30)
            assert w.condition("slinky", "Autoscaled")
            w.change("slinky", {"autoscaling": None})
            await w.run(30)
            assert not w.condition("slinky", "Autoscaled")
            status = (w.api.get(CONTROLLER, "slurm", "slurm") or {})["status"]
            assert not [it for it in status["conditions"] if it["type"] == "JobsCounted"]
            await w.settle()

    run(scenario())


def test_a_nodeset_whose_pods_can_not_start_reports_it_and_the_next_one_gets_its_jobs() -> None:
    async def scenario() -> None:
        async with world(9) as w:
            w.kubelets.broken_images.add("broken:1")
            limits = QUICK | {"capacityWaitSeconds": 60, "coolDownSeconds": 120}
            w.nodeset("cheap", 0, autoscaling=limits, slurmd={"image": "broken:1"})
            w.nodeset("dear", 0, autoscaling=QUICK | {"price": 5})
            await w.run(30)
            w.jobs.queue(w.slurms["slurm", "slurm"], 2, 20)
            await w.until("the cheap one is tried", lambda: replicas(w, "cheap") == 2, 10)
            await w.run(45)
            assert replicas(w, "dear") == 0
            await w.until("the dear one is tried", lambda: replicas(w, "dear") == 2, 60)
            await w.until(
                "that is shown",
                lambda: w.condition("cheap", "Autoscaled")["reason"] == "NoCapacity",
                30,
            )
            await w.until("the job runs", lambda: w.jobs.all[0].runs, 60)
            await w.until("both are empty", lambda: not w.pods("cheap") and not w.pods("dear"), 900)
            assert not replicas(w, "cheap")
            assert not replicas(w, "dear")

    run(scenario())


def test_all_nodesets_together_cost_no_more_than_the_budget() -> None:
    async def scenario() -> None:
        async with world(10) as w:
            w.change_controller({"autoscaling": {"budget": 4}})
            scaled(w)
            w.nodeset("dear", 0, autoscaling=QUICK | {"price": 3})
            await w.run(30)
            small, large = watched(w), watched(w, "dear")
            for _ in range(6):
                w.jobs.queue(w.slurms["slurm", "slurm"], 1, 30)
            await w.until("all jobs have ended", lambda: all(job.over for job in w.jobs.all), 900)
            assert max(one + 3 * other for one, other in zip(small, large, strict=True)) == 4

    run(scenario())


def test_a_nodeset_whose_number_the_api_server_refuses_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = effects.write

    async def refusing(runtime: Any, memory: Any, seen: Any, record: Any) -> None:
        if seen.nodeset.name == "first":
            raise api_error(403, "Forbidden", "admission webhook denied the request")
        await write(runtime, memory, seen, record)

    async def scenario() -> None:
        async with world(11) as w:
            monkeypatch.setattr(effects, "write", refusing)
            w.nodeset("first", 0, autoscaling=QUICK | {"min": 1})
            w.nodeset("second", 0, autoscaling=QUICK | {"min": 1})
            await w.until("the other has its minimum", lambda: replicas(w, "second") == 1, 30)
            await w.until(
                "the refusal is shown",
                lambda: w.condition("first", "Autoscaled").get("reason") == "Refused",
                30,
            )
            assert "webhook denied" in w.condition("first", "Autoscaled")["message"]

    run(scenario())


@pytest.mark.parametrize(
    ("jobs", "nodes", "waits"), [(2, 10, True), (1, 65536, False), (50_000, 10, False)]
)
async def test_the_event_loop_does_not_wait_for_a_long_plan(
    jobs: int, nodes: int, *, waits: bool
) -> None:
    threads: list[int] = []

    def decide() -> Plan:
        threads.append(threading.get_ident())
        return Plan({}, (), (), {})

    await reconcile._planned(decide, jobs, nodes)
    assert (threads == [threading.get_ident()]) is waits
