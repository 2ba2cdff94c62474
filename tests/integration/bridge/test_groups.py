"""Groups of pods with the labels and annotations of their controllers, and with the rights of
docs/bridge-pods.md.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from sidecars.bridge.core.groups import SourceKind
from sidecars.bridge.owners import NEWER, RESOURCES
from sidecars.contract import bridge
from sidecars.kube import PODS, ApiError, Resource
from sidecars.simulate.records import SimJob
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import KUBERNETES_MINOR
from tests.support.bridge import live, pod
from tests.support.bridge_world import CRDS, World, control_plane, crd

CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False
)
GANGS = {
    35: RESOURCES[SourceKind.WORKLOAD],
    36: RESOURCES[SourceKind.POD_GROUP],
    37: NEWER[SourceKind.POD_GROUP],
}[KUBERNETES_MINOR]
"""The kind that Kubernetes itself has for pods that start together."""
OPTIONS = (
    "--feature-gates=MutatingAdmissionPolicy=true,GenericWorkload=true",
    f"--runtime-config=admissionregistration.k8s.io/v1beta1=true,{GANGS.api_version}=true",
)
"""Of a kube-apiserver that has this kind, and the policy in each version."""
JOB_SETS = RESOURCES[SourceKind.JOB_SET]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With a scheduler, and without the kinds of others."""
    with control_plane(tmp_path_factory.mktemp("groups"), OPTIONS) as found:
        yield found


async def create(
    world: World, name: str, cpu: str, labels: dict[str, str], **annotations: str
) -> None:
    """A pod with these labels and annotations."""
    item = pod(world.namespace, name, cpu=cpu)
    item["metadata"] |= {"labels": labels, "annotations": annotations}
    await world.admin.create(PODS, item)


def of_job_set(replicated_job: str) -> dict[str, str]:
    """The labels by which the JobSet controller marks the pods of a JobSet `js`."""
    prefix = "jobset.sigs.k8s.io/"
    names = {
        "jobset-name": "js",
        "jobset-uid": "0f",
        "replicatedjob-name": replicated_job,
        "job-index": "0",
    }
    return {f"{prefix}{key}": value for key, value in names.items()}


def job_set(world: World) -> dict[str, Any]:
    """A driver and two workers."""
    jobs = [
        {
            "name": name,
            "replicas": 1,
            "template": {"spec": {"parallelism": count, "completions": count}},
        }
        for name, count in (("driver", 1), ("workers", 2))
    ]
    metadata = {"namespace": world.namespace, "name": "js"}
    return {
        "apiVersion": JOB_SETS.api_version,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": jobs},
    }


async def components(world: World) -> dict[int, SimJob]:
    """Those of the only job by the CPUs of each pod, as soon as all may start."""

    async def look() -> bool:
        return [job.blocked for job in live(world.slurm)] == [False, False]

    await world.until("two components that may start", look)
    return {job.cpus: job for job in live(world.slurm)}


async def bound(world: World, **places: str) -> None:
    """Wait until these pods are bound to these nodes."""

    async def look() -> bool:
        return {name: await world.place(name) for name in places} == places

    await world.until(f"the pods to be bound to {places}", look)


async def test_a_leader_and_its_workers_are_one_heterogeneous_job(world: World) -> None:
    prefix = "leaderworkerset.sigs.k8s.io/"
    labels = {f"{prefix}name": "serve", f"{prefix}group-index": "0", f"{prefix}group-key": "5c"}
    async with world.bridge():
        await world.records()
        await create(
            world,
            "serve-0",
            "1",
            {**labels, f"{prefix}worker-index": "0"},
            **{f"{prefix}size": "3"},
        )
        for index in ("1", "2"):
            name = f"serve-0-{index}"
            await create(
                world,
                name,
                "3",
                {**labels, f"{prefix}worker-index": index},
                **{f"{prefix}size": "3"},
            )
        found = await components(world)
        assert {cpus: job.tasks for cpus, job in found.items()} == {1: 1, 3: 2}
        first, second = world.nodes
        world.slurm.job_run(found[1].job_id, {first: 1})
        world.slurm.job_run(found[3].job_id, {second: 2})
        await bound(world, **{"serve-0": first, "serve-0-1": second, "serve-0-2": second})
        world.slurm.job_end(found[3].job_id, state="CANCELLED")
        for name in ("serve-0", "serve-0-1", "serve-0-2"):
            await world.gone(name)

        async def over() -> bool:
            return not live(world.slurm)

        await world.until("the other component to be cancelled", over)
    assert len(world.slurm.jobs) == 2


async def test_a_kind_that_the_cluster_lacks_delays_no_other_pod_and_is_found_when_it_exists(
    world: World,
) -> None:
    async with world.bridge():
        await world.records()
        await create(world, "driver", "1", of_job_set("driver"))
        await world.create("other", cpu="2")

        async def received() -> bool:
            return "JobSet js (jobsets.jobset.x-k8s.io) doesn't exist" in (
                await world.condition("driver")
            ).get("message", "")

        await world.until("the missing JobSet to be named", received)
        other = await world.job()
        assert other.cpus == 2
        world.slurm.job_run(other.job_id, {world.nodes[0]: 1})
        await bound(world, other=world.nodes[0])
        world.slurm.job_end(other.job_id)
        await world.gone("other")

        await world.admin.create(CRDS, crd(JOB_SETS))

        async def served() -> bool:
            try:
                await world.admin.create(JOB_SETS, job_set(world))
            except ApiError:
                return False
            return True

        await world.until("the kind to be served", served)
        for name in ("worker-0", "worker-1"):
            await create(world, name, "3", of_job_set("workers"))
        found = await components(world)
        first, second = world.nodes
        world.slurm.job_run(found[1].job_id, {first: 1})
        world.slurm.job_run(found[3].job_id, {first: 1, second: 1})

        async def all_of_them() -> bool:
            places = [await world.place(name) for name in ("driver", "worker-0", "worker-1")]
            return sorted(places) == sorted((first, first, second))

        await world.until("the pods to be bound", all_of_them)


async def test_a_right_that_is_missing_is_named_on_the_pod_and_used_when_it_is_granted(
    world: World,
) -> None:
    role = await world.admin.get(CLUSTER_ROLES, None, "slurm-bridge-reader")
    rules = role["rules"]
    less = [rule for rule in rules if rule["apiGroups"] != ["scheduling.x-k8s.io"]]
    await world.admin.merge_patch(CLUSTER_ROLES, None, "slurm-bridge-reader", {"rules": less})
    labels = {"scheduling.x-k8s.io/pod-group": "tj"}
    async with world.bridge():
        await world.records()
        for name in ("a", "b"):
            await create(world, name, "1", labels)

        async def refused() -> bool:
            found = await world.condition("a")
            return (
                found.get("reason") == "Refused"
                and "`get` on podgroups.scheduling.x-k8s.io" in found["message"]
            )

        await world.until("the missing right to be named", refused)
        assert not live(world.slurm)
        kind = RESOURCES[SourceKind.SCHEDULER_PLUGINS]
        await world.admin.create(CRDS, crd(kind))
        await world.admin.merge_patch(CLUSTER_ROLES, None, "slurm-bridge-reader", {"rules": rules})
        metadata = {"namespace": world.namespace, "name": "tj"}
        group = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": metadata,
            "spec": {"minMember": 2},
        }

        async def created() -> bool:
            try:
                await world.admin.create(kind, group)
            except ApiError:
                return False
            return True

        await world.until("the kind to be served", created)
        job = await world.job()
        assert (job.tasks, job.name) == (2, "tj")
        pods = [await world.pod(name) for name in ("a", "b")]
        assert {(it or {})["metadata"]["labels"][bridge.JOB_LABEL] for it in pods} == {
            str(job.job_id)
        }


async def create_gangs(world: World, policies: dict[str, Any], **annotations: str) -> None:
    """A group of pods with each of the policies: a PodGroup, or all in one Workload."""
    metadata = {"namespace": world.namespace, "annotations": annotations}
    specs: dict[str, Any] = {name: {"schedulingPolicy": it} for name, it in policies.items()}
    if GANGS.kind == "Workload":
        specs = {"w": {"podGroups": [{"name": it, "policy": policies[it]} for it in policies]}}
    for name, spec in specs.items():
        item = {"metadata": {**metadata, "name": name}, "spec": spec}
        await world.admin.create(
            GANGS, {"apiVersion": GANGS.api_version, "kind": GANGS.kind, **item}
        )


def of_gang(group: str) -> dict[str, Any]:
    """The fields of the spec of a pod of that group."""
    if GANGS.kind == "Workload":
        return {"workloadRef": {"name": "w", "podGroup": group}}
    return {"schedulingGroup": {"podGroupName": group}}


async def test_the_pods_of_a_gang_start_together_and_those_of_another_group_do_not(
    world: World,
) -> None:
    await create_gangs(world, {"workers": {"gang": {"minCount": 2}}, "others": {"basic": {}}})
    async with world.bridge():
        await world.records()
        for name, group in (("a", "workers"), ("b", "workers"), ("c", "others")):
            item = pod(world.namespace, name, cpu="2")
            item["spec"] |= of_gang(group)
            await world.admin.create(PODS, item)

        async def both() -> bool:
            return len([job for job in live(world.slurm) if not job.blocked]) == 2

        await world.until("two jobs that may start", both)
        found = {job.tasks: str(job.job_id) for job in live(world.slurm)}
        assert set(found) == {1, 2}
        labels = {
            name: ((await world.pod(name)) or {})["metadata"]["labels"][bridge.JOB_LABEL]
            for name in "abc"
        }
        assert labels == {"a": found[2], "b": found[2], "c": found[1]}


async def test_the_annotations_of_a_gang_are_those_of_its_pods_unless_they_have_their_own(
    world: World,
) -> None:
    limit = f"{bridge.WISHES}timelimit"
    await create_gangs(world, {"all": {"basic": {}}}, **{limit: "7"})
    async with world.bridge():
        await world.records()
        for name, annotations in (("plain", {}), ("own", {limit: "9"})):
            item = pod(world.namespace, name)
            item["metadata"]["annotations"] = annotations
            item["spec"] |= of_gang("all")
            await world.admin.create(PODS, item)

        async def both() -> bool:
            return len([job for job in live(world.slurm) if not job.blocked]) == 2

        await world.until("two jobs that may start", both)
        assert {job.name: job.time_limit for job in live(world.slurm)} == {"plain": 7, "own": 9}
