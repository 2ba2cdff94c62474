"""The bridge with a real slurmctld, kube-apiserver and kube-scheduler, and the controllers of
groups of pods.

The kubelets are simulated: in the first test nothing ends the pods but the test itself.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sidecars.bridge.core.groups import SourceKind
from sidecars.bridge.owners import RESOURCES
from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import PODS, AlreadyExists, ApiError, Manifest, NotFound, Resource
from sidecars.slurm import protocol
from sidecars.slurm.external import ExternalJob
from sidecars.slurm.job_states import has_ended
from tests.charts.examples import examples
from tests.cluster.control_plane import ControlPlane
from tests.contract.target import Target
from tests.support.apiserver import until
from tests.support.bridge import slurm as simulated
from tests.support.bridge_world import CHART, CRDS, OTHER, World, a_world, crd, slurm_conf
from tests.support.real import ports
from tests.support.real.daemons import ADDRESS, Daemons
from tests.support.real.external_slurm import running

PORT = ports.BRIDGE
MAIL = 8
"""A user of the images."""
JOBS = Resource("batch", "v1", "Job", "jobs")
JOB_SETS = RESOURCES[SourceKind.JOB_SET]
POD_GROUPS = RESOURCES[SourceKind.SCHEDULER_PLUGINS]
LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    """slurmctld with the lines of docs/bridge-install.md, and a backfill scheduler that doesn't let
    heterogeneous jobs wait.
    """
    with running(tmp_path / "slurm", PORT, slurm_conf("bf_interval=1")) as found:
        yield found


@pytest_asyncio.fixture
async def world(plane: ControlPlane, slurm: Target, settings: Settings) -> AsyncIterator[World]:
    """A tenant's namespace and two nodes of eight CPUs, with a bridge."""
    await slurm.call(protocol.create_nodes(OTHER))
    async with (
        a_world(plane, settings, simulated(), user="mail") as found,
        found.bridge(),
    ):
        yield found


async def test_slurm_gives_a_node_to_a_pod_only_when_the_pod_before_it_is_gone(
    slurm: Target, world: World
) -> None:
    for name in ("first", "second", "third"):
        await world.create(name, cpu="6")

    async def bound() -> set[str]:
        return {name for name in ("first", "second", "third") if await world.place(name)}

    async def two() -> bool:
        return len(await bound()) == 2

    await until("two of three pods, which fill the two nodes, to be bound", two)
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


def template(cpus: int) -> dict[str, Any]:
    """That of a pod that requests so many CPUs."""
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": {"cpu": str(cpus), "memory": "100Mi"}},
    }
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}


def job_set(world: World, restarts: int) -> Manifest:
    """A driver of one CPU and two workers of three, which start again so often after a failure."""

    def replicated(name: str, cpus: int, pods: int) -> dict[str, Any]:
        pod = template(cpus)
        pod["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": pod}
        return {"name": name, "replicas": 1, "template": {"spec": spec}}

    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": JOB_SETS.kind,
        "metadata": {"namespace": world.namespace, "name": "train"},
        "spec": {
            "failurePolicy": {"maxRestarts": restarts},
            "replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 3, 2)],
        },
    }


def leader_worker_set(world: World) -> Manifest:
    """One group: a leader of one CPU and two workers of three."""
    return {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "metadata": {"namespace": world.namespace, "name": "serve"},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": 3,
                "leaderTemplate": template(1),
                "workerTemplate": template(3),
            },
        },
    }


async def create(world: World, resource: Resource, manifest: Manifest) -> None:
    """As soon as the webhooks answer."""

    async def created() -> bool:
        try:
            await world.admin.create(resource, manifest)
        except ApiError as error:
            if "webhook" in str(error):
                return False
            raise
        return True

    await until(f"{resource.kind} to be created", created)


def placed(pods: Sequence[Manifest]) -> list[str]:
    """The Kubernetes nodes of those that are bound."""
    return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]


async def group_of_three(world: World, before: Collection[str] = ()) -> list[Manifest]:
    """The three pods of the group when all run, the smallest first, without those `before`."""

    async def look() -> list[Manifest] | None:
        pods = [pod for pod in await world.pods() if pod["metadata"]["uid"] not in before]
        running = [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return running if len(running) == len(pods) == 3 else None

    return sorted(await until("the three pods of the group to run", look), key=cpus)


def cpus(pod: Manifest) -> int:
    """What the pod requests."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def uids(pods: Sequence[Manifest]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


async def jobs(slurm: Target) -> list[ExternalJob]:
    """All that Slurm knows."""
    return [
        await slurm.call(protocol.get_external_job(it))
        for it in await slurm.call(protocol.get_job_states())
    ]


async def live(slurm: Target) -> list[ExternalJob]:
    return [job for job in await jobs(slurm) if not has_ended(job.states)]


async def are_one_job(slurm: Target, pods: Sequence[Manifest]) -> tuple[int, int]:
    """The ids of the components for the first pod and for the two others, the only jobs that have
    not ended.
    """
    first, *others = [int(pod["metadata"]["labels"][bridge.JOB_LABEL]) for pod in pods]
    [other] = set(others)
    assert first != other
    found = await live(slurm)
    assert {it.job_id for it in found} == {first, other}
    assert {it.het_id for it in found} == {min(first, other)}
    assert {it.user_name for it in found} == {"mail"}
    smallest, *rest = placed(pods)
    assert smallest not in rest, "components share no node"
    return first, other


async def test_the_pods_of_a_batch_job_are_one_job_if_it_asks_for_that_and_else_one_each(
    slurm: Target, world: World
) -> None:
    labels = {"together": {bridge.GROUP_SIZE_LABEL: "2"}, "apart": {}}
    async with world.kubelet():
        for name, its in labels.items():
            pod = template(1)
            pod["metadata"] = {"labels": {"name": name, **its}}
            pod["spec"]["restartPolicy"] = "Never"
            spec = {"parallelism": 2, "completions": 2, "template": pod}
            metadata = {"namespace": world.namespace, "name": name}
            await world.admin.create(
                JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
            )

        async def running() -> bool:
            return [pod["status"].get("phase") for pod in await world.pods()] == ["Running"] * 4

        await until("four pods to run", running)
        found: dict[str, set[str]] = {name: set() for name in labels}
        for pod in await world.pods():
            found[pod["metadata"]["labels"]["name"]].add(
                pod["metadata"]["labels"][bridge.JOB_LABEL]
            )
        assert {name: len(its) for name, its in found.items()} == {"together": 1, "apart": 2}
        assert {str(job.job_id) for job in await live(slurm)} == found["together"] | found["apart"]


async def test_a_job_set_of_unequal_pods_is_one_job_that_ends_and_starts_again_as_a_whole(
    slurm: Target, world: World
) -> None:
    async with world.kubelet():
        await world.create("before", cpu="8")

        async def running() -> bool:
            return bool(await world.place("before"))

        await until("the pod before it to be bound", running)
        await create(world, JOB_SETS, job_set(world, restarts=1))

        async def waiting() -> bool:
            pods = [pod for pod in await world.pods() if pod["metadata"]["name"] != "before"]
            names = [pod["metadata"]["name"] for pod in pods]
            reasons = [(await world.condition(name)).get("reason") for name in names]
            return reasons == ["Waiting"] * 3

        await until("the three pods to wait for Slurm", waiting)
        assert len(placed(await world.pods())) == 1, (
            "the driver would fit on the other node, and waits with its workers"
        )
        await world.admin.delete(PODS, world.namespace, "before", grace_period_seconds=0)
        first = await group_of_three(world)
        _, workers = await are_one_job(slurm, first)

        await slurm.call(protocol.cancel_job(workers))
        second = await group_of_three(world, uids(first))
        driver, _ = await are_one_job(slurm, second)

        await slurm.call(protocol.cancel_job(driver))

        async def over() -> bool:
            found = await world.admin.get(JOB_SETS, world.namespace, "train")
            return (
                found.get("status", {}).get("terminalState") == "Failed" and not await world.pods()
            )

        await until("the JobSet to fail after its last restart, and its pods to be gone", over)
        await no_job_remains(slurm)


async def test_replicated_jobs_that_depend_on_each_other_are_jobs_of_their_own(
    slurm: Target, world: World
) -> None:
    manifest = job_set(world, restarts=0)
    manifest["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]
    async with world.kubelet():
        await create(world, JOB_SETS, manifest)
        driver, *workers = [
            int(pod["metadata"]["labels"][bridge.JOB_LABEL]) for pod in await group_of_three(world)
        ]
        found = {job.job_id: job.het_id for job in await live(slurm)}
        assert found == {driver: 0, workers[0]: 0}
        assert workers[0] == workers[1] != driver
        await world.admin.delete(JOB_SETS, world.namespace, "train")
        await no_job_remains(slurm)


async def test_the_pods_of_a_job_set_with_a_pod_group_as_kubeflow_trainer_writes_it_are_one_job(
    slurm: Target, world: World
) -> None:
    manifest = job_set(world, restarts=0)
    for job in manifest["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["metadata"] = {
            "labels": {"scheduling.x-k8s.io/pod-group": "trainjob"}
        }
    metadata = {"namespace": world.namespace, "name": "trainjob"}
    group = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": 3},
    }
    with contextlib.suppress(AlreadyExists):
        await world.admin.create(CRDS, crd(POD_GROUPS))

    async def served() -> bool:
        with contextlib.suppress(NotFound):
            await world.admin.create(POD_GROUPS, group)
            return True
        return False

    await until("the kind PodGroup to be served", served)
    async with world.kubelet():
        await create(world, JOB_SETS, manifest)
        pods = await group_of_three(world)
        await are_one_job(slurm, pods)
        comments = [bridge.decode(job.comment) for job in await live(slurm)]
        assert {comment.group for comment in comments if comment is not None} == {
            "podgroup/trainjob"
        }
        for pod in pods:
            await world.finish(pod["metadata"]["name"])

        async def over() -> bool:
            found = await world.admin.get(JOB_SETS, world.namespace, "train")
            return bool(found.get("status", {}).get("terminalState") == "Completed")

        await until("the JobSet to be complete", over)
        await no_job_remains(slurm)


async def test_a_group_of_a_leader_worker_set_is_one_job_and_is_created_again_after_its_end(
    slurm: Target, world: World
) -> None:
    async with world.kubelet():
        await create(world, LEADER_WORKER_SETS, leader_worker_set(world))
        first = await group_of_three(world)
        _, workers = await are_one_job(slurm, first)

        await slurm.call(protocol.cancel_job(workers))
        second = await group_of_three(world, uids(first))
        await are_one_job(slurm, second)

        await world.admin.delete(LEADER_WORKER_SETS, world.namespace, "serve")

        async def over() -> bool:
            return not await world.pods()

        await until("the pods of the LeaderWorkerSet to be gone", over)
        await no_job_remains(slurm)


async def no_job_remains(slurm: Target) -> None:
    """Wait until all jobs have ended."""

    async def look() -> bool:
        return not await live(slurm)

    await until("all jobs to have ended", look)
    assert {frozenset(job.states) for job in await jobs(slurm)} == {frozenset({"CANCELLED"})}


async def sbatch(daemons: Daemons, script: str) -> None:
    """Submit a script of /etc/slurm as the tenant's user, as soon as that is possible."""
    words = ("sbatch", "--chdir=/tmp", f"/etc/slurm/{script}")

    async def submitted() -> bool:
        done = await asyncio.to_thread(daemons.run, "batch", *words, user=MAIL)
        return done.returncode == 0

    await until(f"{script} to be submitted, see {daemons.home}", submitted)


def brought_along(world: World) -> tuple[Manifest, str]:
    """The Job and the script of docs/bridge-pods.md, for the namespace of the test."""
    page = (
        (CHART.parents[1] / "docs" / "bridge-pods.md")
        .read_text(encoding="utf-8")
        .replace("physics", world.namespace)
    )
    [section] = re.findall(
        r"^## A Slurm job that brings pods along$.*?(?:^## |\Z)", page, re.MULTILINE | re.DOTALL
    )
    [example] = examples("docs/bridge-pods.md", section)
    [script] = re.findall(r"```sh title=\"[^\"]+\"\n(.*?)```", section, re.DOTALL)
    assert script.splitlines()[-1] == "solver"
    return example.documents[0], script.replace(
        "\nsolver\n", "\nuntil [ -e /etc/slurm/stop ]; do sleep 0.2; done\n"
    )


@pytest.mark.parametrize(
    "suspended", [False, True], ids=["as in the example", "suspended until it is submitted"]
)
async def test_a_slurm_job_brings_the_pods_of_a_job_along_and_ends_them_with_it(
    daemons: Daemons, slurm: Target, world: World, suspended: bool
) -> None:
    manifest, script = brought_along(world)
    name = manifest["metadata"]["name"]
    if suspended:
        manifest["spec"]["suspend"] = True
    node = f"NodeAddr={ADDRESS} Port={daemons.port('slurmd')} Feature=batch"
    prepare = "chmod 644 /etc/slurm/with-pods.sh"
    daemons.slurmd(
        "batch", "-Z", "--conf", node, files={"with-pods.sh": script.encode()}, prepare=prepare
    )
    async with world.kubelet():
        await world.admin.create(JOBS, manifest)

        async def without() -> bool:
            pods = await world.pods()
            reasons = [
                (await world.condition(pod["metadata"]["name"])).get("reason") for pod in pods
            ]
            return reasons == ["NoJob"] * 2

        if not suspended:
            await until("the pods to wait for a job of their user", without)
        await sbatch(daemons, "with-pods.sh")
        if suspended:
            assert not await world.pods()
            await world.admin.merge_patch(JOBS, world.namespace, name, {"spec": {"suspend": False}})

        async def running() -> bool:
            return [pod["status"].get("phase") for pod in await world.pods()] == ["Running"] * 2

        await until("the pods to run with the Slurm job", running)
        [first, second] = await live(slurm)
        assert first.het_id == second.het_id != 0
        labels = {pod["metadata"]["labels"][bridge.JOB_LABEL] for pod in await world.pods()}
        assert labels == {str(it.job_id) for it in (first, second) if it.external}
        assert all("RUNNING" in it.states for it in (first, second))
        (daemons.home / "batch" / "etc" / "stop").touch()

        async def ended() -> bool:
            found = await world.admin.get(JOBS, world.namespace, name)
            return bool(found["status"].get("failed")) and not await world.pods()

        await until("the pods to end with the Slurm job", ended)
        assert not await live(slurm)
