"""Bridges of two Kubernetes clusters with one Slurm cluster: none touches what the other has."""

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator

from sidecars.contract import bridge
from sidecars.kube import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS
from sidecars.simulate.records import SimJob
from tests.support.bridge import live, node, pod, tenants
from tests.support.kube_double import KubeDouble
from tests.unit.bridge.world import CLUSTER, World

OTHER = "22222222-0000-4000-8000-000000000000"


@contextlib.asynccontextmanager
async def another(world: World, kube_node: str) -> AsyncIterator[World]:
    """Another Kubernetes cluster with the same Slurm and the same tenants."""
    async with KubeDouble() as kube:
        kube.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": OTHER}})
        kube.put(NODES, node(kube_node))
        kube.put(CONFIG_MAPS, tenants("slurm", team='{"user": "ada"}'))
        yield dataclasses.replace(world, kube=kube)


def notes(world: World) -> list[str]:
    return [it["note"] for it in world.kube.objects(EVENTS).values()]


async def end_of_the_pod(world: World) -> None:
    await world.until("the pod's end", lambda: not world.kube.objects(PODS))


def with_the_comment_of_an_earlier_bridge(job: SimJob) -> None:
    found = bridge.decode(job.admin_comment)
    assert found is not None
    job.comment = job.admin_comment = bridge.encode(dataclasses.replace(found, cluster=""))


async def test_the_jobs_and_nodes_of_another_cluster_stay_as_they_are(world: World) -> None:
    async with world.bridge():
        await world.until("the record", lambda: "k1" in world.slurm.nodes)
        await world.until("its Extra", lambda: bool(world.slurm.nodes["k1"].extra))
        world.kube.put(PODS, pod("team", "p"))
        first = await world.job()
        world.slurm.job_run(first.job_id, {"k1": 1})
        await world.until("the release", world.released)
        world.bind()
        async with another(world, "k2") as other, other.bridge():
            await other.until("the record", lambda: "k2" in world.slurm.nodes)
            other.kube.put(PODS, pod("team", "p"))
            await other.until("the other job", lambda: len(live(world.slurm)) == 2)
            second = max(live(world.slurm), key=lambda job: job.job_id)
            await other.until("its start", lambda: not second.blocked)
            # There, its pod doesn't exist.
            assert second.excluded == ["k1"]
            world.slurm.job_run(second.job_id, {"k2": 1})
            await other.until("the other release", other.released)
            other.bind()
            comments = [bridge.decode(it.admin_comment) for it in (first, second)]
            assert [it and it.cluster for it in comments] == [CLUSTER, OTHER]
            # When a bridge sees the end of its own job, it has looked at the other's.
            for its, job in ((world, first), (other, second)):
                world.slurm.job_end(job.job_id, state="COMPLETED")
                await end_of_the_pod(its)
            assert [it.states for it in (first, second)] == [{"COMPLETED"}] * 2
    assert {"k1", "k2"} <= world.slurm.nodes.keys()
    assert not any(it.reason for it in map(world.slurm.nodes.__getitem__, ("k1", "k2")))


async def test_a_node_of_the_same_name_gets_no_record_and_no_job_of_the_other_cluster(
    world: World,
) -> None:
    async with world.bridge():
        await world.until("the record", lambda: "k1" in world.slurm.nodes)
        await world.until("its Extra", lambda: bool(world.slurm.nodes["k1"].extra))
        extra = world.slurm.nodes["k1"].extra
        async with another(world, "k1") as other, other.bridge():
            await other.until("the Event", lambda: bool(notes(other)))
            [note] = notes(other)
            assert note == (
                "Slurm node k1 is of another Kubernetes cluster: give this one another name with "
                f"the label {bridge.NODE_NAME}"
            )
            assert world.slurm.nodes["k1"].extra == extra
            renamed = node("k1")
            renamed["metadata"]["labels"][bridge.NODE_NAME] = "east-k1"
            other.kube.put(NODES, renamed)
            await other.until("the record", lambda: "east-k1" in world.slurm.nodes)
    assert json.loads(extra)[bridge.CLUSTER] == CLUSTER


async def test_a_job_that_an_earlier_bridge_has_started_is_named_before_another_cluster_comes(
    world: World,
) -> None:
    async with world.bridge():
        job = await world.running()
    with_the_comment_of_an_earlier_bridge(job)
    async with world.bridge():
        await world.until(
            "the cluster's name", lambda: f'"cluster":"{CLUSTER}"' in job.admin_comment
        )
        async with another(world, "k2") as other, other.bridge():
            await other.until("the record", lambda: "k2" in world.slurm.nodes)
            other.kube.put(PODS, pod("team", "p"))
            await other.until("the other job", lambda: len(live(world.slurm)) == 2)
    assert "RUNNING" in job.states
