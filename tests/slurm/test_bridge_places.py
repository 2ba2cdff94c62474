"""When and where a pod of the bridge may run: real slurmctld, kube-apiserver, kube-scheduler and
ReplicaSet controller.

No kubelet runs: the tests end the pods.
"""

import asyncio
import contextlib
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from sidecars.bridge.core import requeued, shape
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, Client, Manifest, Resource
from sidecars.slurm import protocol
from sidecars.slurm.errors import Rejected
from sidecars.slurm.external import ExternalRequest
from sidecars.slurm.job_states import has_ended
from tests.cluster.control_plane import ControlPlane
from tests.contract.target import Target
from tests.support.apiserver import until
from tests.support.bridge import node, pod
from tests.support.bridge import slurm as simulated
from tests.support.bridge_world import (
    ACCOUNTS,
    NUMBERS,
    OTHER,
    World,
    a_world,
    add_node,
    slurm_conf,
)
from tests.support.real import ports
from tests.support.real.daemons import ADDRESS, Daemons
from tests.support.real.external_slurm import running, target

USER = "mail"
PREEMPTION = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=urgent Nodes=bridge State=UP PriorityTier=10 PreemptMode=OFF
"""
REPLICA_SETS = Resource("apps", "v1", "ReplicaSet", "replicasets")
JOBS = Resource("batch", "v1", "Job", "jobs")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """slurmctld with the lines of docs/bridge-install.md, and a partition whose jobs preempt those
    of the other one.
    """
    with running(
        tmp_path_factory.mktemp("slurm"), ports.BRIDGE_PLACES, slurm_conf() + PREEMPTION
    ) as found:
        asyncio.run(target(found).call(protocol.create_nodes(OTHER)))
        yield found


@pytest_asyncio.fixture
async def world(plane: ControlPlane, slurm: Target, settings: Settings) -> AsyncIterator[World]:
    """A tenant's namespace and two nodes of eight CPUs."""
    async with a_world(plane, settings, simulated(), user=USER) as found:
        entry = f'{{"user": "{USER}", "partitions": ["slurm-bridge", "urgent"]}}'
        await found.admin.merge_patch(
            CONFIG_MAPS, "slurm", "slurm-bridge-tenants", {"data": {found.namespace: entry}}
        )
        yield found
        for job_id in await live(slurm):
            await slurm.call(protocol.cancel_job(job_id))


@contextlib.asynccontextmanager
async def bridge_of(world: World, slurm: Target, *nodes: str) -> AsyncIterator[None]:
    """A bridge, as soon as Slurm has just these of the world's nodes. Slurm starts jobs on the
    first one first.
    """
    for name in set(world.nodes) - set(nodes):
        await world.admin.merge_patch(
            NODES, None, name, {"metadata": {"labels": {bridge.EXTERNAL_NODE: None}}}
        )
    async with world.bridge():

        async def look() -> bool:
            found = await slurm.call(protocol.get_nodes())
            names = {it.name for it in found.nodes if it.extra} if found is not None else set()
            return names == set(nodes)

        await until(f"Slurm to have the nodes {nodes}", look)
        for weight, name in enumerate(nodes, 1):
            change = {"weight": weight}
            await slurm.call(
                protocol.Request("POST", f"node/{name}", body=change, read=lambda answer: None)
            )
        yield


async def live(slurm: Target) -> list[int]:
    """The jobs that have not ended."""
    found = await slurm.call(protocol.get_job_states())
    return [job_id for job_id, states in found.items() if not has_ended(states)]


async def create(world: World, name: str, partition: str, seconds: int = 1) -> None:
    """A pod that no other one fits beside, with this grace period."""
    item = pod(world.namespace, name, cpu="6")
    item["spec"]["terminationGracePeriodSeconds"] = seconds
    item["metadata"]["annotations"] = {f"{bridge.WISHES}partition": partition}
    await world.admin.create(PODS, item)


async def bound(world: World, name: str, kube_node: str) -> None:
    async def look() -> bool:
        return await world.place(name) == kube_node

    await until(f"pod {name} to be bound to {kube_node}", look)


async def job_of(world: World, name: str) -> int:
    found = await world.pod(name)
    assert found is not None
    return int(found["metadata"]["labels"][bridge.JOB_LABEL])


async def scontrol(daemons: Daemons, *words: str) -> None:
    done = await asyncio.to_thread(daemons.scontrol, *words)
    assert not done.returncode, done.stderr


Cause = Callable[[Daemons, int, str], Awaitable[None]]


async def preempts(daemons: Daemons, job_id: int, slurm_node: str) -> None:
    """The job of the next pod does."""


async def is_cancelled(daemons: Daemons, job_id: int, slurm_node: str) -> None:
    await target(daemons).call(protocol.cancel_job(job_id))


async def reaches_its_time_limit(daemons: Daemons, job_id: int, slurm_node: str) -> None:
    await scontrol(daemons, "update", f"jobid={job_id}", "endtime=now")


async def loses_its_node(daemons: Daemons, job_id: int, slurm_node: str) -> None:
    await scontrol(daemons, "update", f"nodename={slurm_node}", "state=DOWN", "reason=lost")
    await scontrol(daemons, "update", f"nodename={slurm_node}", "state=RESUME")


@pytest.mark.parametrize(
    ("state", "cause", "partition"),
    [
        ("PREEMPTED", preempts, "urgent"),
        ("CANCELLED", is_cancelled, "slurm-bridge"),
        ("TIMEOUT", reaches_its_time_limit, "slurm-bridge"),
        ("NODE_FAIL", loses_its_node, "slurm-bridge"),
    ],
)
async def test_a_pod_whose_job_has_ended_keeps_its_grace_period_and_its_place_until_it_is_gone(
    daemons: Daemons, slurm: Target, world: World, state: str, cause: Cause, partition: str
) -> None:
    place = world.nodes[0]
    async with bridge_of(world, slurm, place):
        await create(world, "first", "slurm-bridge", seconds=120)
        await bound(world, "first", place)
        job_id = await job_of(world, "first")
        await create(world, "next", partition)
        await cause(daemons, job_id, place)

        async def refused() -> bool:
            return (await world.condition("next")).get("reason") == "NodeNotFree"

        await until("the next job to run, and its pod to wait", refused)
        assert (await slurm.call(protocol.get_job_states()))[job_id] == {state}
        first = await world.pod("first")
        assert first is not None
        assert first["metadata"]["deletionGracePeriodSeconds"] == 120
        assert not await world.place("next")
        await world.admin.delete(PODS, world.namespace, "first", grace_period_seconds=0)
        await bound(world, "next", place)


@pytest.mark.parametrize(
    ("cause", "partition", "reason"),
    [
        (preempts, "urgent", "PreemptedBySlurm"),
        (loses_its_node, "slurm-bridge", "SlurmNodeFail"),
    ],
)
async def test_a_job_that_may_not_fail_outlives_the_end_of_its_pod_that_slurm_causes(
    daemons: Daemons, slurm: Target, world: World, cause: Cause, partition: str, reason: str
) -> None:
    """With the policy of docs/bridge-lifecycle.md, for the real controller of Jobs."""
    place = world.nodes[0]
    ignore = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    template = pod(world.namespace, "p", cpu="6")["spec"] | {"restartPolicy": "Never"}
    spec = {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [ignore]},
        "template": {"spec": template},
    }

    async def its_pods() -> list[Manifest]:
        return [it for it in await world.pods() if it["metadata"]["name"].startswith("once-")]

    async with bridge_of(world, slurm, place):
        metadata = {"namespace": world.namespace, "name": "once"}
        await world.admin.create(JOBS, {"metadata": metadata, "spec": spec})
        [first] = await until("the pod of the Job", its_pods)
        name = first["metadata"]["name"]
        await bound(world, name, place)
        await create(world, "next", partition)
        await cause(daemons, await job_of(world, name), place)

        async def deleted() -> list[str]:
            found = await world.pod(name)
            assert found is not None
            return [
                it["reason"]
                for it in found["status"]["conditions"]
                if it["type"] == "DisruptionTarget" and "deletionTimestamp" in found["metadata"]
            ]

        assert await until("the pod to be deleted", deleted) == [reason]
        # As its kubelet does.
        ended = {"status": {"phase": "Failed"}}
        await world.admin.merge_patch(PODS, world.namespace, name, ended, subresource="status")
        await world.admin.delete(PODS, world.namespace, name, grace_period_seconds=0)

        async def another() -> bool:
            return [it["metadata"]["name"] for it in await its_pods()] not in ([], [name])

        await until("the Job to create its pod again", another)
        found = await world.admin.get(JOBS, world.namespace, "once")
        assert not found["status"].get("failed")
        assert not found["status"].get("conditions")
        await world.admin.delete(JOBS, world.namespace, "once", propagation_policy="Background")


async def test_a_pod_that_the_scheduler_cannot_bind_costs_its_job_and_the_next_gets_another_node(
    slurm: Target, world: World
) -> None:
    wrong, right = world.nodes
    # What Slurm doesn't know.
    full = {"status": {"allocatable": {"pods": "0"}}}
    before = (await slurm.call(protocol.get_job_states())).keys()
    async with bridge_of(world, slurm, wrong, right):
        await world.admin.merge_patch(NODES, None, wrong, full, subresource="status")
        labels = {"app": "serve"}
        template = {"metadata": {"labels": labels}, "spec": pod(world.namespace, "p")["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"namespace": world.namespace, "name": "serve"}
        await world.admin.create(REPLICA_SETS, {"metadata": metadata, "spec": spec})

        async def elsewhere() -> list[Manifest]:
            return [it for it in await world.pods() if it["spec"].get("nodeName")]

        [placed] = await until("a pod of the ReplicaSet to be bound", elsewhere)
        assert placed["spec"]["nodeName"] == right

        async def received() -> list[str]:
            events, _ = await world.admin.list(EVENTS, world.namespace)
            return [it["note"] for it in events if it["reason"] == "NotBound"]

        [note] = await until("the Event", received)
        assert f"was not bound to {wrong} within 15 s: " in note
        assert "Too many pods" in note
        listed = await slurm.call(protocol.get_job_states())
        new = [states for job, states in listed.items() if job not in before]
        assert sorted(map("+".join, new)) == ["CANCELLED", "RUNNING"]
        await world.admin.delete(REPLICA_SETS, world.namespace, "serve")


async def test_the_job_of_a_pod_is_not_placed_on_a_node_whose_taint_it_does_not_tolerate(
    slurm: Target, world: World
) -> None:
    """But as soon as the node has none any longer."""
    tainted, other = world.nodes
    taints = [{"key": "unknown-to-slurm", "effect": "NoSchedule"}]
    async with bridge_of(world, slurm, tainted, other):
        await world.admin.merge_patch(NODES, None, tainted, {"spec": {"taints": taints}})
        await create(world, "first", "slurm-bridge")
        await bound(world, "first", other)
        await create(world, "next", "slurm-bridge")

        async def waits() -> bool:
            return (await world.condition("next")).get("reason") == "Waiting"

        await until("the next pod to wait", waits)
        await world.admin.merge_patch(NODES, None, tainted, {"spec": {"taints": None}})
        await bound(world, "next", tainted)
        events, _ = await world.admin.list(EVENTS, world.namespace)
        assert "NotBound" not in {it["reason"] for it in events}


@contextlib.asynccontextmanager
async def waiting_for(
    world: World, slurm: Target, place: str, other: str
) -> AsyncIterator[tuple[Manifest, int]]:
    """A pod whose job runs on the first node, where one of an ended job terminates for long. The
    other node is full.
    """
    async with bridge_of(world, slurm, place, other):
        await create(world, "first", "slurm-bridge", seconds=120)
        await bound(world, "first", place)
        await create(world, "second", "slurm-bridge")
        await bound(world, "second", other)
        await slurm.call(protocol.cancel_job(await job_of(world, "first")))
        await create(world, "next", "slurm-bridge")

        async def refused() -> bool:
            return (await world.condition("next")).get("reason") == "NodeNotFree"

        await until("the next job to run, and its pod to wait", refused)
        waits = await world.pod("next")
        assert waits is not None
        yield waits, await job_of(world, "next")
        await world.admin.delete(PODS, world.namespace, "first", grace_period_seconds=0)


async def test_a_pod_whose_node_is_cordoned_when_its_job_runs_gets_another_job_and_node(
    slurm: Target, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requeued, "RELEASE_SECONDS", 3.0)
    place, other = world.nodes
    async with waiting_for(world, slurm, place, other) as (waits, job_id):
        await world.admin.merge_patch(NODES, None, place, {"spec": {"unschedulable": True}})
        await world.admin.delete(PODS, world.namespace, "second", grace_period_seconds=0)
        await bound(world, "next", other)
        found = await world.pod("next")
        assert found is not None
        assert found["metadata"]["uid"] == waits["metadata"]["uid"]
        assert (await slurm.call(protocol.get_job_states()))[job_id] == {"CANCELLED"}
        assert await job_of(world, "next") != job_id


@pytest.mark.parametrize(
    ("state", "cause"), [("TIMEOUT", reaches_its_time_limit), ("NODE_FAIL", loses_its_node)]
)
async def test_a_pod_that_never_ran_gets_another_job_when_slurm_has_ended_its_first_one(
    daemons: Daemons, slurm: Target, world: World, state: str, cause: Cause
) -> None:
    place, other = world.nodes
    async with waiting_for(world, slurm, place, other) as (waits, job_id):
        await cause(daemons, job_id, place)

        async def another() -> bool:
            found = await world.pod("next")
            assert found is not None
            assert found["metadata"]["uid"] == waits["metadata"]["uid"]
            return found["metadata"].get("labels", {}).get(bridge.JOB_LABEL, "") not in (
                "",
                str(job_id),
            )

        await until("another job of the same pod", another)
        assert (await slurm.call(protocol.get_job_states()))[job_id] == {state}


async def test_a_node_that_a_user_poisons_with_a_signal_is_back_in_service_when_the_job_has_ended(
    slurm: Target, world: World
) -> None:
    place = world.nodes[0]
    # Otherwise slurmctld waits for an answer from there.
    addresses = {"status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}}
    await world.admin.merge_patch(NODES, None, place, addresses, subresource="status")
    async with bridge_of(world, slurm, place):
        await create(world, "first", "slurm-bridge")
        await bound(world, "first", place)
        path = f"job/{await job_of(world, 'first')}"
        signal = protocol.Request("DELETE", path, (("signal", "USR1"),), read=lambda answer: None)
        await slurm.call(signal, user=USER)
        await slurm.until_node(
            place, "silent and drained", lambda it: {"NOT_RESPONDING", "DRAIN"} <= it
        )
        assert "deletionTimestamp" not in ((await world.pod("first")) or {})["metadata"]
        await create(world, "next", "slurm-bridge")
        await world.admin.delete(PODS, world.namespace, "first", grace_period_seconds=0)
        await bound(world, "next", place)
        assert "NOT_RESPONDING" not in (await slurm.node(place)).states


@contextlib.asynccontextmanager
async def reserved(slurm: Target, place: str, **values: Any) -> AsyncIterator[str]:
    """A reservation of the node, until no job is left in it."""
    name = f"of-{place}"
    request = protocol.save_reservation(name, minutes=60, nodes=[place], users=[USER], **values)
    await slurm.call(request)
    yield name

    async def deleted() -> bool:
        # Slurm refuses it while a job runs in it.
        with contextlib.suppress(Rejected):
            await slurm.call(protocol.delete_reservation(name))
        return name not in {it.name for it in await slurm.call(protocol.get_reservations())}

    await until("the end of the reservation", deleted)


async def submitted(world: World, name: str, **wishes: str) -> None:
    """A pod that no other one fits beside, with these annotations, which Slurm has seen."""
    item = pod(world.namespace, name, cpu="6")
    item["metadata"]["annotations"] = {f"{bridge.WISHES}{key}": it for key, it in wishes.items()}
    await world.admin.create(PODS, item)

    async def started() -> bool:
        found = await world.condition(name)
        return bool(await world.place(name)) or found.get("reason") == "Waiting"

    await until(f"a job of pod {name}", started)


async def test_a_pod_gets_a_reserved_node_only_by_the_name_of_the_reservation(
    slurm: Target, world: World
) -> None:
    place = world.nodes[0]
    async with bridge_of(world, slurm, place):
        async with reserved(slurm, place, start_time=int(time.time())) as name:
            await submitted(world, "outside")
            await submitted(world, "inside", reservation=name)
            await bound(world, "inside", place)
            assert not await world.place("outside")
            await world.admin.delete(PODS, world.namespace, "inside", grace_period_seconds=0)
        await bound(world, "outside", place)


async def test_before_a_maintenance_only_pods_start_that_end_before_it(
    slurm: Target, world: World
) -> None:
    place = world.nodes[0]
    begins = int(time.time()) + 30 * 60
    async with bridge_of(world, slurm, place):
        async with reserved(slurm, place, start_time=begins, flags=["MAINT"]):
            await submitted(world, "long", timelimit="60")
            await submitted(world, "short", timelimit="10")
            await bound(world, "short", place)
            assert not await world.place("long")
            await world.admin.delete(PODS, world.namespace, "short", grace_period_seconds=0)
        await bound(world, "long", place)


ZONE, DISK, NOWHERE = "topology.kubernetes.io/zone", "disk", "example.com/nowhere"
LABELS: Mapping[str, dict[str, str]] = {
    "plain": {},
    "zone-a": {ZONE: "a"},
    "zone-b": {ZONE: "b", DISK: ""},
    "no-zone": {ZONE: "", DISK: "ssd"},
}
"""Of the nodes for selectors."""


def requires(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    """Nodes that one of the terms fits."""
    found = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": found}}}


SELECTORS: list[dict[str, Any]] = [
    {"nodeSelector": {ZONE: "a"}},
    {"nodeSelector": {ZONE: "", DISK: "ssd"}},
    {"nodeSelector": {NOWHERE: ""}},
    affinity([requires(ZONE, "In", "a", "")]),
    affinity([requires(ZONE, "NotIn", "a")]),
    affinity([requires(ZONE, "NotIn", "a", "")]),
    affinity([requires(DISK, "NotIn", "")]),
    affinity([requires(DISK, "Exists")]),
    affinity([requires(DISK, "DoesNotExist")]),
    affinity([requires(NOWHERE, "NotIn", "a")]),
    affinity([requires(NOWHERE, "DoesNotExist")]),
    affinity([requires(NOWHERE, "Exists")]),
    affinity([requires(ZONE, "In", "a", "b"), requires(DISK, "DoesNotExist")]),
    affinity(
        [requires(ZONE, "In", "a")], [requires(DISK, "Exists"), requires(ZONE, "NotIn", "b", "c")]
    ),
    affinity(
        [requires(ZONE, "DoesNotExist")],
        [requires(ZONE, "In", "a", "b"), requires(DISK, "NotIn", "ssd")],
    ),
    {
        "nodeSelector": {DISK: ""},
        **affinity([requires(ZONE, "Exists")], [requires(NOWHERE, "Exists")]),
    },
]


def on_one(name: str, selector: dict[str, Any]) -> dict[str, Any]:
    """The affinity of the selector, with no other node than this one."""
    only = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    found = copy.deepcopy(
        {"affinity": selector["affinity"]} if "affinity" in selector else affinity([])
    )
    for term in found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]:
        term["matchFields"] = only
    return found


async def chosen_by_slurm(slurm: Target) -> list[set[str]]:
    """The nodes that Slurm gives to a job with each of the selectors, if all other nodes are
    excluded.
    """
    size = "CPUs=64 Sockets=1 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=16000"
    for name, labels in LABELS.items():
        await slurm.call(
            protocol.create_nodes(f"NodeName={name} NodeAddr={ADDRESS} {size} State=External")
        )
        extra = bridge.node_extra(name, labels, (ZONE, DISK, NOWHERE))
        await slurm.call(protocol.update_nodes([name], extra=extra))
    asked: dict[int, tuple[int, str]] = {}
    for index, selector in enumerate(SELECTORS):
        constraint = shape.constraint(
            msgspec.convert({"metadata": {"name": "p", "uid": "u"}, "spec": selector}, Pod)
        )
        for name in LABELS:
            others = tuple({*LABELS, "other"} - {name})
            request = ExternalRequest(
                "p", "all", "", memory_per_task=10, extra=constraint, excluded_nodes=others
            )
            job_id = await slurm.call(protocol.submit_external(request), user=USER)
            # Slurm may know at once that no node fits.
            with contextlib.suppress(Rejected):
                await slurm.call(protocol.start_external(job_id, ""))
            asked[job_id] = index, name
    found: list[set[str]] = [set() for _ in SELECTORS]

    async def all_tried() -> bool:
        for job_id, (index, name) in list(asked.items()):
            job = await slurm.call(protocol.get_external_job(job_id))
            if "RUNNING" in job.states:
                assert [it.node for it in job.allocations] == [name]
                found[index].add(name)
            elif job.reason not in ("Constraints", "BadConstraints"):
                continue
            del asked[job_id]
        return not asked

    await until("Slurm to have tried all jobs", all_tried)
    return found


async def chosen_by_kubernetes(admin: Client) -> list[set[str]]:
    """The nodes to which kube-scheduler binds a pod with each of the selectors, if it has no other
    choice.
    """
    namespace = f"selectors-{next(NUMBERS)}"
    await admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    await admin.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": namespace}})
    for name, labels in LABELS.items():
        item = node(name, cpus=64)
        item["metadata"]["labels"] = labels
        await add_node(admin, item)
    for index, selector in enumerate(SELECTORS):
        for name in LABELS:
            item = pod(namespace, f"{name}-{index}")
            item["spec"] |= {
                **selector,
                **on_one(name, selector),
                "tolerations": [{"operator": "Exists"}],
            }
            del item["spec"]["schedulingGates"]
            await admin.create(PODS, item)
    found: list[set[str]] = [set() for _ in SELECTORS]

    async def all_tried() -> bool:
        pods, _ = await admin.list(PODS, namespace)
        for it in pods:
            if it["spec"].get("nodeName"):
                found[int(it["metadata"]["name"].rpartition("-")[2])].add(it["spec"]["nodeName"])
        return all(
            any(c["type"] == "PodScheduled" for c in it["status"].get("conditions", ()))
            for it in pods
        )

    await until("the scheduler to have tried all pods", all_tried)
    for name in LABELS:
        await admin.delete(NODES, None, name)
    return found


async def test_slurm_finds_the_same_nodes_by_the_selectors_of_a_pod_as_kubernetes(
    slurm: Target, world: World
) -> None:
    try:
        by_slurm = await chosen_by_slurm(slurm)
    finally:
        for job_id in await live(slurm):
            await slurm.call(protocol.cancel_job(job_id))
        for name in LABELS:
            await slurm.call(protocol.delete_node(name))
    by_kubernetes = await chosen_by_kubernetes(world.admin)
    assert {0, 1, 2, 3, 4} == {len(it) for it in by_kubernetes}
    assert by_slurm == by_kubernetes
