"""NodeSets whose Kubernetes nodes are added by a node autoscaler, in a simulated cluster: each node
is bought once.
"""

import random
from typing import Any

import pytest

from tests.support.virtual_time import run
from tests.support.world.node_autoscaler import GROUP, NodeAutoscaler
from tests.support.world.world import World, world

SLOW = 600.0
NODE = {"node": "Sockets=1 CoresPerSocket=4"}
QUICK = {"max": 8, "idleSeconds": 30, "coolDownSeconds": 60, "stepSeconds": 5, **NODE}
JOBS = 5


def scaled(w: World, name: str, **more: Any) -> None:
    """A NodeSet whose workers run on the Kubernetes nodes of the group of its name."""
    template = {"spec": {"nodeSelector": {GROUP: name}}}
    w.nodeset(name, 0, autoscaling=QUICK | more, template=template)


def random_seconds(rng: random.Random) -> float:
    return rng.uniform(20, SLOW)


def never(_: random.Random) -> None:
    return None


async def jobs_run(w: World) -> None:
    """Jobs that need a node each, until all have begun."""
    for _ in range(JOBS):
        w.jobs.queue(w.slurms["slurm", "slurm"], 1, 300)
    await w.until("all jobs run", lambda: all(job.runs or job.over for job in w.jobs.all), 1500)


@pytest.mark.parametrize("karpenter", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_was_ordered_is_waited_for_and_no_other_nodeset_buys_one_for_the_job(
    seed: int, karpenter: bool
) -> None:
    async def scenario() -> None:
        async with world(seed) as w:
            autoscaler = NodeAutoscaler(
                w, {"cheap": random_seconds, "dear": random_seconds}, karpenter=karpenter
            )
            autoscaler.attach()
            scaled(w, "cheap", price=1)
            scaled(w, "dear", price=5)
            await w.run(30)
            await jobs_run(w)
            assert autoscaler.bought == {"cheap": JOBS}

    run(scenario())


@pytest.mark.parametrize("karpenter", [False, True])
def test_a_nodeset_for_which_no_node_is_ordered_is_given_up_within_a_minute(
    karpenter: bool,
) -> None:
    async def scenario() -> None:
        async with world(4) as w:
            autoscaler = NodeAutoscaler(
                w, {"cheap": never, "dear": lambda _: 20.0}, karpenter=karpenter
            )
            autoscaler.attach()
            scaled(w, "cheap", price=1, capacityWaitSeconds=600)
            scaled(w, "dear", price=5)
            await w.run(30)
            began = w.loop.time()
            await jobs_run(w)
            assert w.loop.time() - began < 120
            assert autoscaler.bought == {"dear": JOBS}
            condition = w.condition("cheap", "Autoscaled")
            assert condition["reason"] == "NoCapacity"
            assert "no group of nodes fits" in condition["message"]

    run(scenario())


@pytest.mark.parametrize("silent", [False, True])
def test_without_events_or_the_right_to_read_them_capacity_wait_seconds_decide(
    silent: bool,
) -> None:
    async def scenario() -> None:
        async with world(5) as w:
            w.faults.events_are_hidden = not silent
            autoscaler = NodeAutoscaler(
                w, {"cheap": lambda _: SLOW, "dear": lambda _: 20.0}, silent=silent
            )
            autoscaler.attach()
            scaled(w, "cheap", price=1, capacityWaitSeconds=60)
            scaled(w, "dear", price=5)
            await w.run(30)
            began = w.loop.time()
            await jobs_run(w)
            assert 60 < w.loop.time() - began < 200
            assert autoscaler.bought["dear"] == JOBS

    run(scenario())


@pytest.mark.parametrize("seed", range(2))
def test_power_saving_does_not_give_up_a_node_that_was_ordered(seed: int) -> None:
    async def scenario() -> None:
        async with world(seed) as w:
            autoscaler = NodeAutoscaler(w, {"cheap": random_seconds})
            autoscaler.attach()
            saving = {
                "enabled": True,
                "idleSeconds": 30,
                "startSeconds": 1200,
                "capacityWaitSeconds": 60,
                "retrySeconds": 60,
                "node": "CPUs=4 RealMemory=8000",
            }
            template = {"spec": {"nodeSelector": {GROUP: "cheap"}}}
            w.nodeset("cheap", 3, powerSaving=saving, template=template)
            model = w.slurms["slurm", "slurm"]
            model.resume_timeout = 1200.0
            await w.until("the records", lambda: len(model.nodes) == 3)
            jobs = [w.job(1, 60) for _ in range(3)]
            await w.until("all jobs have ended", lambda: all(it.over for it in jobs), 1800)
            assert autoscaler.bought == {"cheap": 3}
            assert w.jobs.requeued_before_start == 0

    run(scenario())
