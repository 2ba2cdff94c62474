"""Workers that Slurm doesn't know, in a simulated cluster: deleted records are healed, forgotten
jobs are protected.
"""

from collections.abc import Iterable

import pytest

from tests.support.virtual_time import run
from tests.support.world.world import NODESET, POD, World, world

FOUR = ("a", "b", "c", "d")


def uids(w: World, nodesets: Iterable[str] = ("slinky",)) -> set[str]:
    return {pod["metadata"]["uid"] for name in nodesets for pod in w.pods(name)}


@pytest.mark.parametrize("restarts", ["nothing", "the operator", "slurmctld"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_worker_whose_record_was_deleted_is_replaced_in_the_smallest_cluster(
    replicas: int, restarts: str
) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=replicas)
            await w.run(60)
            if restarts == "the operator":
                w.crash()
            elif restarts == "slurmctld":
                w.slurmctlds["slurm"].restart()
            await w.run(60)
            before = uids(w)
            w.delete_record("slinky-0")
            # An empty list counts after a minute, and a worker of it is replaced after ten more.
            await w.until("its pod is replaced", lambda: len(before - uids(w)) == 1, 900)
            slurm = w.slurms["slurm", "slurm"]
            await w.until("Slurm knows all again", lambda: len(slurm.nodes) == replicas, 120)

    run(scenario())


@pytest.mark.parametrize("replicas", [1, 4])
def test_a_worker_whose_record_was_deleted_is_replaced_although_slurmctld_is_reconfigured(
    replicas: int,
) -> None:
    async def scenario() -> None:
        async with world(4) as w:
            w.nodeset(replicas=replicas)
            await w.run(120)
            before = uids(w)
            w.delete_record("slinky-0")
            await w.run(5)
            w.slurms["slurm", "slurm"].reconfigure()
            await w.until("its pod is replaced", lambda: len(before - uids(w)) == 1, 900)

    run(scenario())


def test_a_nodeset_with_a_worker_unknown_to_slurm_is_deleted_after_a_reconfigure() -> None:
    async def scenario() -> None:
        async with world(4) as w:
            w.nodeset(replicas=3)
            await w.run(60)
            w.delete_record("slinky-0")
            w.slurms["slurm", "slurm"].reconfigure()
            w.api.delete(NODESET, "slurm", "slinky")
            await w.until(
                "it is deleted", lambda: w.api.get(NODESET, "slurm", "slinky") is None, 300
            )

    run(scenario())


def test_a_worker_whose_record_was_deleted_with_a_suspended_job_is_replaced_after_it() -> None:
    async def scenario() -> None:
        async with world(4) as w:
            w.nodeset(replicas=2)
            await w.run(30)
            job = w.job(1, 200, kind="suspended")
            slurm = w.slurms["slurm", "slurm"]
            await w.until(
                "it is suspended",
                lambda: bool(job.job_id) and slurm.jobs[job.job_id].states == {"SUSPENDED"},
                60,
            )
            before = uids(w)
            w.delete_record(job.nodes[0])
            assert job.nodes[0] not in slurm.nodes
            while not job.over:
                assert uids(w) == before
                await w.run(1)
            await w.until("its pod is replaced", lambda: len(before - uids(w)) == 1, 200)

    run(scenario())


@pytest.mark.parametrize("crashes", [False, True])
def test_no_worker_of_many_small_nodesets_is_deleted_after_slurm_has_lost_its_state(
    *, crashes: bool
) -> None:
    async def scenario() -> None:
        async with world(5) as w:
            for name in FOUR:
                w.nodeset(name, replicas=1)
            await w.run(60)
            w.lose_state(registers=False)
            await w.until("Ready shows it", lambda: w.condition("a")["reason"] == "StateLost", 200)
            before = uids(w, FOUR)
            w.api.delete(POD, "slurm", "a-0")
            w.api.delete(POD, "slurm", "b-0")
            await w.until(
                "two are replaced by hand", lambda: len(w.slurms["slurm", "slurm"].nodes) == 2, 200
            )
            if crashes:
                w.crash()
            await w.run(800)
            assert len(before & uids(w, FOUR)) == 2
            w.change("c", {"replicas": 0})
            await w.run(60)
            assert len(w.pods("c")) == 1
            assert "may have lost its state" in w.condition("c")["message"]
            w.kubelets.register_again(w.slurms["slurm", "slurm"])
            await w.until("it is drained and deleted", lambda: not w.pods("c"), 200)

    run(scenario())
