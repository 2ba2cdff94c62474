"""Workers that Slurm's power saving starts and stops, by the operator in the world of the tests."""

import random
from typing import Any, Literal

import pytest

from sidecars.simulate import SlurmModel
from tests.support.virtual_time import run
from tests.support.world.scripts import Container, DeletePod, Evict
from tests.support.world.world import World, world

OFFER = "CPUs=4 RealMemory=8000"
IMAGE = "slurmd:1"
CLOSED = "SlurmOperatorClosed-slinky"
SAVING = {
    "enabled": True,
    "idleSeconds": 30,
    "startSeconds": 120,
    "retrySeconds": 60,
    "node": OFFER,
}


def powered_down(model: SlurmModel) -> int:
    return sum("POWERED_DOWN" in model.states(name) for name in model.nodes)


def begin(w: World, replicas: int = 3, **saving: Any) -> SlurmModel:
    w.nodeset(replicas=replicas, powerSaving=SAVING | saving)
    return w.slurms["slurm", "slurm"]


def no_drain(w: World, model: SlurmModel) -> None:
    """A job that has begun is never ended; the world checks it. And no drain remains."""
    assert not [name for name in model.nodes if model.states(name) & {"DRAIN", "DOWN"}]
    assert w.jobs.requeued_before_start == 0


def test_workers_come_with_jobs_and_go_when_slurm_stops_them_and_the_records_stay() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            model = begin(w)
            await w.until("three records of powered-down nodes", lambda: powered_down(model) == 3)
            assert w.pods() == []
            jobs = [w.job(1, 20), w.job(1, 40)]
            await w.until("both jobs to end", lambda: all(job.over for job in jobs), 300)
            await w.until("no pod", lambda: not w.pods(), 300)
            await w.until("three records of powered-down nodes", lambda: powered_down(model) == 3)
            assert w.condition("slinky", "PowerSaving")["reason"] == "Following"
            no_drain(w, model)
            await w.settle()

    run(scenario())


def test_so_many_workers_as_min_always_run_and_the_others_stop_after_it_was_reduced() -> None:
    async def scenario() -> None:
        async with world(8) as w:
            model = begin(w, min=2)
            w.each_second.append(model.advance)
            await w.until("the workers", lambda: len(w.pods()) == 2 and powered_down(model) == 1)
            await w.run(300)
            assert len(w.pods()) == 2
            job = w.job(1, 200)
            await w.until("the job to run", lambda: bool(job.processes), 120)
            w.change("slinky", {"powerSaving": {"min": 0}})
            await w.until("the idle worker to be gone", lambda: len(w.pods()) == 1, 120)
            assert not job.over
            await w.until("the job to end", lambda: job.over, 300)
            await w.until("no pod", lambda: not w.pods(), 120)
            no_drain(w, model)
            w.change("slinky", {"powerSaving": {"min": 1}})
            await w.until(
                "the worker that always runs again", lambda: powered_down(model) == 2, 120
            )
            no_drain(w, model)

    run(scenario())


def test_nothing_is_lost_while_the_operator_is_down_or_slurmctld_restarts() -> None:
    async def scenario() -> None:
        async with world(2) as w:
            model = begin(w)
            await w.until("the records", lambda: powered_down(model) == 3)
            first = w.job(2, 30)
            await w.run(2)
            w.restarts_after = 40.0
            w.crash()
            model.restart()
            await w.until("the job to end", lambda: first.over, 300)
            w.crash()
            second = w.job(1, 10)
            await w.until("the second job to end", lambda: second.over, 400)
            await w.until("no pod", lambda: not w.pods(), 400)
            await w.until("three records of powered-down nodes", lambda: powered_down(model) == 3)
            no_drain(w, model)

    run(scenario())


def test_a_worker_that_never_registers_is_replaced_after_the_resume_timeout() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            model = begin(w, replicas=1, startSeconds=60)
            model.resume_timeout = 60.0
            await w.until("the record", lambda: powered_down(model) == 1)
            w.faults.without_slurmctld.clear()
            model.set_power(model.nodes["slinky-0"], "POWER_UP")
            await w.until("the pod", lambda: len(w.pods()) == 1)
            model.nodes["slinky-0"].power_at -= 60
            model.advance()
            await w.until("no pod", lambda: not w.pods(), 120)
            assert w.condition("slinky", "PowerSaving")["reason"] == "ResumeTimeout"
            await w.until(
                "the node to be usable again", lambda: "DOWN" not in model.states("slinky-0"), 200
            )

    run(scenario())


@pytest.mark.parametrize("minimum", [0, 1])
def test_a_worker_that_registers_after_the_resume_timeout_is_used(minimum: int) -> None:
    async def scenario() -> None:
        async with world(7) as w:
            model = begin(w, replicas=1, startSeconds=60, min=minimum, idleSeconds=3600)
            model.resume_timeout = 60.0
            w.each_second.append(model.advance)
            await w.until("the record", lambda: len(model.nodes) == 1)
            for name in w.kube_nodes:
                w.kubelets.cut_off(name, "slurmctld")
            w.job(1, 20)
            await w.until("the pod", lambda: len(w.pods()) == 1)
            [pod] = w.pods()
            await w.run(5)
            w.restarts_after = 100.0
            w.crash()
            await w.until("the ResumeTimeout", lambda: "DOWN" in model.states("slinky-0"), 100)
            for name in w.kube_nodes:
                w.kubelets.join(name)
            await w.until(
                "the registration", lambda: "POWERED_DOWN" not in model.states("slinky-0")
            )
            assert "DOWN" in model.states("slinky-0")
            await w.until("the job to end", lambda: all(job.over for job in w.jobs.all), 200)
            assert [it["metadata"]["uid"] for it in w.pods()] == [pod["metadata"]["uid"]]

    run(scenario())


def test_nodes_whose_pods_can_t_start_are_closed_for_a_while_without_a_drain() -> None:
    async def scenario() -> None:
        async with world(10) as w:
            model = begin(w, replicas=3, capacityWaitSeconds=30)
            await w.until("the records", lambda: powered_down(model) == 3)
            w.each_second.append(model.advance)
            w.kubelets.broken_images.add(IMAGE)
            w.job(1, 20)
            await w.until("the nodes to be closed", lambda: CLOSED in model.reservations, 60)
            closed = model.reservations[CLOSED]
            assert closed.nodes == "slinky-[0-2]"
            assert {"IGNORE_JOBS", "OVERLAP"} <= set(closed.flags)
            assert 55 <= closed.end_time - w.wall_clock() <= 61
            await w.until("the job to be queued again", lambda: w.jobs.requeued_before_start, 10)
            await w.until("no pod", lambda: not w.pods(), 60)
            assert w.condition("slinky", "PowerSaving")["reason"] == "NoCapacity"
            w.kubelets.broken_images.discard(IMAGE)
            await w.until("the job to end", lambda: all(it.over for it in w.jobs.all), 180)
            assert w.wall_clock() > closed.end_time + 20
            assert CLOSED not in model.reservations
            assert w.condition("slinky", "PowerSaving")["reason"] == "Following"
            assert not [it for it in model.requests("POST", "nodes/") if "DRAIN" in str(it.body)]

    run(scenario())


@pytest.mark.parametrize("replicas", [0, None])
def test_closed_records_are_deleted_with_their_nodeset_or_ordinal(replicas: int | None) -> None:
    async def scenario() -> None:
        async with world(11) as w:
            model = begin(w, replicas=3, retrySeconds=3600, capacityWaitSeconds=30)
            await w.until("the records", lambda: powered_down(model) == 3)
            w.kubelets.broken_images.add(IMAGE)
            w.job(1, 20)
            await w.until("the nodes to be closed", lambda: CLOSED in model.reservations, 60)
            if replicas is None:
                w.api.delete("/apis/slinky.slurm.net/v1beta1/nodesets", "slurm", "slinky")
            else:
                w.change("slinky", {"replicas": replicas})
            # Slurm may give the job one of them once they are open, and takes it back startSeconds
            # later.
            await w.until("no record", lambda: not model.nodes, 900)
            await w.until("no reservation", lambda: CLOSED not in model.reservations)

    run(scenario())


def test_a_nodeset_is_deleted_with_its_records() -> None:
    async def scenario() -> None:
        async with world(4) as w:
            model = begin(w)
            await w.until("the records", lambda: powered_down(model) == 3)
            job = w.job(1, 20)
            await w.until("the job to run", lambda: bool(job.processes), 120)
            w.api.delete("/apis/slinky.slurm.net/v1beta1/nodesets", "slurm", "slinky")
            await w.until("no record", lambda: not model.nodes, 300)
            assert job.over

    run(scenario())


def test_records_stay_when_slurm_refuses_to_replace_them_until_the_fault_is_corrected() -> None:
    async def scenario() -> None:
        async with world(5) as w:
            model = begin(w)
            await w.until("the records", lambda: powered_down(model) == 3)
            wrong = f"{OFFER} Gres=gpu:2 GresConf=name=gpu,count=1"
            w.change("slinky", {"powerSaving": {"node": wrong}})
            await w.until(
                "the refusal", lambda: w.condition("slinky", "PowerSaving")["reason"] == "Invalid"
            )
            assert "GresConf=name=gpu,count=1" in w.condition("slinky", "PowerSaving")["message"]
            begun = len(model.requests("POST", "new/"))
            for _ in range(100):
                await w.run(1)
                assert powered_down(model) == 3
            assert (
                len(model.requests("POST", "new/")) - begun <= 4
            )  # once a minute, and the former record again
            job = w.job(1, 20)
            await w.until("a job to end by the former records", lambda: job.over, 300)
            w.change("slinky", {"powerSaving": {"node": f"{OFFER} Gres=gpu:2"}})
            await w.until(
                "the new records",
                lambda: all(it.gres == "gpu:2" for it in model.nodes.values()),
                120,
            )
            await w.until(
                "the condition",
                lambda: w.condition("slinky", "PowerSaving")["reason"] == "Following",
            )
            no_drain(w, model)

    run(scenario())


def test_all_nodes_with_gpus_get_their_records_which_follow_the_values() -> None:
    async def scenario() -> None:
        async with world(9) as w:
            model = begin(w, node=f"{OFFER} Gres=gpu:2")
            await w.until("three records of powered-down nodes", lambda: powered_down(model) == 3)
            assert {node.gres for node in model.nodes.values()} == {"gpu:2"}
            w.change("slinky", {"powerSaving": {"node": f"{OFFER} Gres=gpu:a100:1,gpu:h100:1"}})
            await w.until(
                "the new records",
                lambda: {it.gres for it in model.nodes.values()} == {"gpu:a100:1,gpu:h100:1"},
                120,
            )
            assert powered_down(model) == 3
            await w.until("their NodeSet in each", lambda: are_named(model))
            assert w.condition("slinky", "PowerSaving")["reason"] == "Following"

    run(scenario())


def test_a_worker_is_ready_before_the_planned_start_of_its_job_and_is_not_replaced() -> None:
    async def scenario() -> None:
        async with world(6) as w:
            model = begin(w, replicas=2, startAheadSeconds=60)
            await w.until("the records", lambda: powered_down(model) == 2)
            start = int(w.wall_clock()) + 150
            model.job_plan(model.job_submit(), ["slinky-1"], start)
            await w.run(60)
            assert w.pods() == []
            await w.until("the worker", lambda: "POWERED_DOWN" not in model.states("slinky-1"), 60)
            await w.until(
                "its registration", lambda: "POWERING_UP" not in model.states("slinky-1"), 60
            )
            assert w.wall_clock() < start
            [pod] = w.pods()
            await w.run(start - w.wall_clock())
            assert [it["metadata"]["uid"] for it in w.pods()] == [pod["metadata"]["uid"]]

    run(scenario())


WITHOUT_A_POD = 60.0
"""Seconds within which a node that Slurm powers up gets its pod, while an operator works."""

CRASHED: tuple[Literal["slurmd", "node"], ...] = ("slurmd", "node")


def fail(w: World, rng: random.Random) -> None:
    """Pods don't start, their slurmd doesn't reach slurmctld, or they end."""
    seconds, which = rng.uniform(10, 100), rng.randrange(100)
    kube_node = rng.choice(w.kube_nodes)
    match rng.randrange(7):
        case 0 | 1:
            w.kubelets.broken_images.add(IMAGE)
            w.loop.call_later(seconds, w.kubelets.broken_images.discard, IMAGE)
        case 2 | 3:
            for name in w.kube_nodes:
                w.kubelets.cut_off(name, "slurmctld")
                w.loop.call_later(seconds, w.kubelets.join, name)
        case 4:
            w.kubelets.kill(kube_node)
            w.loop.call_later(seconds, w.kubelets.revive, kube_node)
        case 5:
            rng.choice((Evict(which), DeletePod(which))).do(w)
        case 6:
            Container(which, rng.choice(CRASHED)).do(w)


def no_reason(model: SlurmModel) -> bool:
    return not any(node.reason for node in model.nodes.values())


def are_named(model: SlurmModel) -> bool:
    """Whether all records name their NodeSet, which is the last step of their creation."""
    return all(node.extra for node in model.nodes.values())


def ended(model: SlurmModel, state: str) -> set[int]:
    return {number for number, job in model.jobs.items() if state in job.states}


@pytest.mark.parametrize("failures", [False, True], ids=["kills", "kills and failing pods"])
@pytest.mark.parametrize("seed", range(8))
def test_in_random_runs_no_job_is_lost_and_each_node_gets_its_pod_in_time(
    seed: int, failures: bool
) -> None:
    async def scenario() -> None:
        async with world(seed) as w:
            rng = random.Random(seed)  # noqa: S311 - a reproducible run
            least = seed % 2
            model = begin(
                w, replicas=4, min=2 - least, **({"startSeconds": 60} if failures else {})
            )
            model.resume_timeout = 60.0 if failures else model.resume_timeout
            await w.until("the records", lambda: len(model.nodes) == 4)
            waiting: dict[str, float] = {}

            def check() -> None:
                pods = {
                    str(pod["spec"].get("hostname") or pod["metadata"]["name"]) for pod in w.pods()
                }
                for name in model.nodes:
                    if (
                        "POWERING_UP" not in model.states(name)
                        or name in pods
                        or not w.operator_works("slurm")
                    ):
                        waiting.pop(name, None)
                    elif w.loop.time() - waiting.setdefault(name, w.loop.time()) > WITHOUT_A_POD:
                        w.watchdog.note(
                            f"{name} is powered up since {waiting[name]:.0f}, and has no pod"
                        )

            w.each_second += [model.advance, check]
            for number in range(12):
                if failures:
                    fail(w, rng)
                if number == 6:
                    w.change("slinky", {"powerSaving": {"min": least}})
                w.job(rng.randint(1, 3), rng.uniform(5, 60))
                await w.run(rng.uniform(1, 40))
                w.restarts_after = rng.uniform(1, 50)
                match rng.randrange(4):
                    case 0:
                        w.crash()
                    case 1:
                        model.restart()
                    case 2:
                        w.freeze(20.0)
            await w.until("all jobs to end", lambda: all(job.over for job in w.jobs.all), 1500)
            # Each has completed, but those whose processes have ended with their pod.
            excused = {job.job_id for job in w.jobs.all if job.excuse}
            assert len(ended(model, "COMPLETED")) + len(excused & ended(model, "NODE_FAIL")) == 12
            await w.until("the idle workers to be gone", lambda: len(w.pods()) == least, 600)
            await w.until(
                "nothing but idle nodes",
                lambda: powered_down(model) == 4 - least and no_reason(model),
                120,
            )
            await w.until("the NodeSet in each record", lambda: are_named(model), 120)
            begun = len(model.requests("POST", "nodes/"))
            await w.run(300)
            assert model.requests("POST", "nodes/")[begun:] == []  # nothing oscillates
            assert len(model.nodes) == 4
            assert not [name for name in model.nodes if model.states(name) & {"DRAIN", "DOWN"}]

    run(scenario())
