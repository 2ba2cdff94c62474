"""The bridge with a real slurmctld, kube-apiserver and kube-scheduler. No kubelet runs: the test ends the pods."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecars.contract import bridge
from sidecars.kube import PODS
from sidecars.slurm import protocol
from tests.contract.target import Target
from tests.e2e.test_external_jobs import answers, daemons
from tests.support.apiserver import until
from tests.support.bridge import slurm as simulated
from tests.support.bridge_run import prepared
from tests.support.bridge_world import World, a_world, control_plane

LINES = """\
SchedulerParameters=extra_constraints,sched_interval=2,bf_interval=1
NodeSet=bridge Feature=slurm-bridge
PartitionName=slurm-bridge Nodes=bridge State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Target]:
    """slurmctld with the lines of docs/bridge.md."""
    with daemons(tmp_path / "slurm", 7837, LINES) as target:
        asyncio.run(answers(target))
        yield target


async def test_slurm_gives_a_node_to_a_pod_only_when_the_pod_before_it_is_gone(slurm: Target, tmp_path: Path) -> None:
    # A list of nodes that is empty counts only after a minute.
    other = "NodeName=other NodeAddr=127.0.0.1 CPUs=1 RealMemory=100 State=External Feature=other"
    await slurm.call(protocol.create_nodes(other))
    key = tmp_path / "jwt.key"
    key.write_bytes(slurm.key)
    with control_plane(tmp_path / "kubernetes") as plane:
        async with a_world(plane, slurm.url, key, simulated(), user="mail") as world, world.bridge():
            await schedule(slurm, world)


async def schedule(slurm: Target, world: World) -> None:
    for name in ("first", "second", "third"):
        await world.create(name, cpu="6")

    async def bound() -> set[str]:
        return {name for name in ("first", "second", "third") if await world.place(name)}

    async def two() -> bool:
        return len(await bound()) == 2

    await until("two of three pods, which fill the two nodes, to be bound", two, 60)
    waiting, *_ = {"first", "second", "third"} - await bound()
    places = {name: await world.place(name) for name in await bound()}
    assert set(places.values()) == set(world.nodes)

    ended = min(places)
    pod = await world.pod(ended)
    assert pod is not None
    job_id = int(pod["metadata"]["labels"][bridge.JOB_LABEL])
    assert (await slurm.call(protocol.get_external_job(job_id))).user_name == "mail"
    await slurm.call(protocol.cancel_job(job_id))

    async def terminating() -> bool:
        found = await world.pod(ended)
        return found is not None and "deletionTimestamp" in found["metadata"]

    async def refused() -> bool:
        return (await world.condition(waiting)).get("reason") == "NodeNotFree"

    await until("the pod of the cancelled job to be deleted", terminating)
    await until("the next job to run, and its pod to wait", refused)
    assert not await world.place(waiting)
    await world.admin.delete(PODS, world.namespace, ended, grace_period_seconds=0)

    async def followed() -> bool:
        return await world.place(waiting) == places[ended]

    await until("the next pod to be bound", followed)
    states = (await slurm.call(protocol.get_job_states())).values()
    assert sorted(map(sorted, states)) == [["CANCELLED"], ["RUNNING"], ["RUNNING"]]


@pytest.mark.timeout(600)
async def test_no_core_byte_or_device_has_two_owners_in_a_random_run_and_nothing_is_left_at_its_end(
    tmp_path: Path,
) -> None:
    """The short form of `make soak`: pods, groups, scancel, lost nodes, kills of the bridge and of Slurm's daemons."""
    async with prepared(tmp_path, 7857, seed=7) as run:
        await run.run(25)
    assert run.stays.counts["compared"] > 0
    assert run.done["kill the bridge"] > 0
