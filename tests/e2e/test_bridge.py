"""The bridge with a real slurmctld, kube-apiserver and kube-scheduler. No kubelet runs: the test ends the pods."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sidecars.contract import bridge
from sidecars.kube import PODS
from sidecars.slurm import protocol
from tests.contract.target import Target
from tests.e2e.test_external_jobs import answers, daemons
from tests.support.apiserver import until
from tests.support.bridge import pod
from tests.support.bridge import slurm as simulated
from tests.support.bridge_world import World, a_world, control_plane

LINES = """\
SchedulerParameters=extra_constraints,sched_interval=2,bf_interval=1
NodeSet=bridge Feature=slurm-bridge
PartitionName=slurm-bridge Nodes=bridge State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Target]:
    """slurmctld with the lines of docs/bridge.md, and a backfill scheduler that doesn't let heterogeneous jobs wait."""
    with daemons(tmp_path / "slurm", 7837, LINES) as target:
        asyncio.run(answers(target))
        yield target


@pytest_asyncio.fixture
async def world(slurm: Target, tmp_path: Path) -> AsyncIterator[World]:
    """A tenant's namespace and two nodes, with a bridge."""
    # A list of nodes that is empty counts only after a minute.
    other = "NodeName=other NodeAddr=127.0.0.1 CPUs=1 RealMemory=100 State=External Feature=other"
    await slurm.call(protocol.create_nodes(other))
    key = tmp_path / "jwt.key"
    key.write_bytes(slurm.key)
    with control_plane(tmp_path / "kubernetes") as plane:
        async with a_world(plane, slurm.url, key, simulated(), user="mail") as found, found.bridge():
            yield found


async def test_slurm_gives_a_node_to_a_pod_only_when_the_pod_before_it_is_gone(slurm: Target, world: World) -> None:
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


async def test_a_leader_and_its_workers_start_and_end_together(slurm: Target, world: World) -> None:
    prefix = "leaderworkerset.sigs.k8s.io/"
    cpus = {"serve-0": "1", "serve-0-1": "3", "serve-0-2": "3"}
    for name, cpu in cpus.items():
        item = pod(world.namespace, name, cpu=cpu)
        item["metadata"] |= {
            "labels": {f"{prefix}name": "serve", f"{prefix}group-index": "0"},
            "annotations": {f"{prefix}size": "3"},
        }
        await world.admin.create(PODS, item)

    async def bound() -> bool:
        return all([await world.place(name) for name in cpus])

    await until("the leader and its workers to be bound", bound, 60)
    places = {name: await world.place(name) for name in cpus}
    assert places["serve-0"] not in {places["serve-0-1"], places["serve-0-2"]}, "components share no node"
    labels = {name: int(((await world.pod(name)) or {})["metadata"]["labels"][bridge.JOB_LABEL]) for name in cpus}
    leader, workers = labels["serve-0"], labels["serve-0-1"]
    assert labels["serve-0-2"] == workers
    found = [await slurm.call(protocol.get_external_job(it)) for it in (leader, workers)]
    assert {it.het_id for it in found} == {min(leader, workers)}
    assert {it.user_name for it in found} == {"mail"}

    await slurm.call(protocol.cancel_job(max(leader, workers)))
    for name in cpus:
        await world.gone(name)

    async def ended() -> bool:
        return set((await slurm.call(protocol.get_job_states())).values()) == {frozenset({"CANCELLED"})}

    await until("the other component to be cancelled", ended)
