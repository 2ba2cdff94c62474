"""NodeSet scenarios that users of Slinky's slurm-operator rely on, as tests/integration/README.md
lists them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from sidecars.contract.extra import PodFacts, encode
from sidecars.custom_resources import CONTROLLERS, NODESETS
from sidecars.kube import CONFIG_MAPS, NODES, POD_DISRUPTION_BUDGETS, PODS, SERVICES, Manifest
from sidecars.policy.gate import ACCEPTED
from sidecars.policy.podstate import deadline_text
from sidecars.simulate import Fault
from sidecars.slurm.hostlists import expand
from tests.integration.operator.fences import passed
from tests.integration.operator.test_nodesets import change, kube_node, kube_nodes
from tests.support.apiserver import WatchedNamespace, custom, until

pytestmark = pytest.mark.timeout(120, func_only=True)

CORDON = "nodeset.slinky.slurm.net/pod-cordon"
BROKEN = "slurmd:broken"


async def is_true(what: str, look: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something of the simulated Slurm is so."""

    async def ask() -> bool:
        return look()

    await until(what, ask, seconds)


async def uids(world: WatchedNamespace) -> dict[str, str]:
    """Of the worker pods that are not on their way out, by name."""
    pods = (await world.pods()).values()
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
    }


async def cordoned(world: WatchedNamespace) -> set[str]:
    """Pods with the annotation pod-cordon."""
    pods = await world.pods()
    return {
        name for name, pod in pods.items() if pod["metadata"]["annotations"].get(CORDON) == "true"
    }


async def replaced(world: WatchedNamespace, before: dict[str, str], *names: str) -> bool:
    """Whether just these pods have a successor."""
    now = await uids(world)
    return now.keys() == before.keys() and {
        name for name in now if now[name] != before[name]
    } == set(names)


def drained(world: WatchedNamespace, *names: str) -> bool:
    """Whether just these Slurm nodes drain."""
    return {name for name in world.slurm.nodes if "DRAIN" in world.slurm.states(name)} == set(names)


async def status(world: WatchedNamespace) -> dict[str, Any]:
    """The status of NodeSet slinky."""
    found = await world.get(NODESETS, "slinky")
    return dict((found or {}).get("status") or {})


async def annotate(world: WatchedNamespace, pod: str, **annotations: str | None) -> None:
    """Annotations `nodeset.slinky.slurm.net/…` of a pod."""
    names = {
        f"nodeset.slinky.slurm.net/{name.replace('_', '-')}": value
        for name, value in annotations.items()
    }
    await world.client.merge_patch(PODS, world.namespace, pod, {"metadata": {"annotations": names}})


async def test_a_worker_pod_has_its_hostname_subdomain_and_anti_affinity(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=3)
    await world.until_pods("slinky-0", "slinky-1", "slinky-2")
    spec = (await world.pods())["slinky-2"]["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("slinky-2", "slurm-workers-slurm")
    [term] = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    await world.until_ready(3)
    found = await status(world)
    assert found["desired"] == 3
    assert found["selector"] == "app.kubernetes.io/instance=slinky,app.kubernetes.io/name=slurmd"


async def test_the_lowest_free_ordinal_is_filled(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=3)
    await world.until_ready(3)
    before = await uids(world)
    await world.client.delete(PODS, world.namespace, "slinky-1")
    await until("slinky-1 again", lambda: replaced(world, before, "slinky-1"))


async def test_scale_in_drains_the_highest_ordinals_each_with_its_own_reason_and_no_others(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=3)
    await world.until_ready(3)
    jobs = [world.slurm.job_start(f"slinky-{number}") for number in range(3)]
    await world.scale(1)

    async def marked() -> bool:
        return await cordoned(world) == {"slinky-1", "slinky-2"}

    await until("the annotation on both", marked)
    await is_true("both to drain", lambda: drained(world, "slinky-1", "slinky-2"))
    for number in (1, 2):
        message = (
            f"slurm-operator: Pod ({world.namespace}/slinky-{number}) is pending termination for "
            "scale-in"
        )
        assert world.slurm.nodes[f"slinky-{number}"].reason == message
    for job in jobs[1:]:
        world.slurm.job_end(job)
    await world.until_pods("slinky-0")
    assert world.slurm.jobs[jobs[0]].states == {"RUNNING"}


async def test_scale_in_without_slurmrestd_waits_and_reports_the_remedy(
    world: WatchedNamespace,
) -> None:
    slurm = await world.get(CONTROLLERS, "slurm")
    assert slurm is not None
    await world.create(custom("Controller", "silent", slurm["spec"]))
    await world.nodeset("lone", replicas=1, controllerRef={"name": "silent"})

    async def runs() -> bool:
        found = await world.get(NODESETS, "lone")
        return ((found or {}).get("status") or {}).get("readyReplicas") == 1

    await until("the pod to run", runs)
    await world.scale(0, "lone")

    async def message() -> bool:
        ready = await world.condition(NODESETS, "lone")
        return (
            ready.get("reason") == "Draining"
            and "no RestApi refers to Controller 'silent'" in ready["message"]
        )

    await until("the condition", message)
    assert set(await world.pods()) == {"lone-0"}


async def test_a_pod_whose_node_record_slurm_has_lost_can_be_scaled_in(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    await world.slurmctld()
    world.slurm.node_lose("slinky-1")

    async def noticed() -> bool:
        return (await status(world)).get("slurmIdle") == 1

    await until("the operator to notice", noticed)
    await world.scale(1)
    await world.until_pods("slinky-0")


async def test_the_least_useful_pod_is_deleted_first(world: WatchedNamespace) -> None:
    world.kubelet_works = False
    await world.nodeset(replicas=5)
    await world.until_pods(*(f"slinky-{number}" for number in range(5)))
    # The highest ordinal is the most useful one, so that ordinals alone would choose the other way
    # round.
    running = {"name": "slurmd", "restartCount": 0, "image": "", "imageID": "", "started": True}
    running |= {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    for number, phase, ready in (
        (1, "Pending", False),
        (2, "Unknown", False),
        (3, "Running", False),
        (4, "Running", True),
    ):
        await world.bind(f"slinky-{number}", "default-node")
        found: dict[str, Any] = {"phase": phase}
        if phase != "Pending":
            world.slurm.node_register(f"slinky-{number}")
            found["containerStatuses"] = [{**running, "ready": ready}]
        word = "True" if ready else "False"
        found["conditions"] = [
            {"type": "Ready", "status": word, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
        name = f"slinky-{number}"
        await world.client.merge_patch(
            PODS, world.namespace, name, {"status": found}, subresource="status"
        )

    async def seen() -> bool:
        return (await status(world)).get("slurmIdle") == 3

    await until("the operator to see all that", seen)
    order = []
    for replicas in (4, 3, 2, 1, 0):
        before = set(await uids(world))
        await world.scale(replicas)

        async def one_less(before: set[str] = before, replicas: int = replicas) -> set[str]:
            left = set(await uids(world))
            return before - left if len(left) == replicas else set()

        order += list(await until(f"{replicas} pods", one_less))
    assert order == [f"slinky-{number}" for number in range(5)]


async def test_the_deadline_is_that_of_the_last_job_and_is_removed_with_it(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    jobs = [
        world.slurm.job_start("slinky-0", time_limit=30),
        world.slurm.job_start("slinky-[0-1]", time_limit=45),
        world.slurm.job_start("slinky-0", time_limit=60),
    ]
    world.slurm.job_end(world.slurm.job_start("slinky-1", time_limit=600))
    ends = {
        job: world.slurm.jobs[job].start_time + 60 * (world.slurm.jobs[job].time_limit or 0)
        for job in jobs
    }
    for name in ("slinky-0", "slinky-1"):
        await annotate(world, name, pod_cordon="true")

    async def shown(*wanted: str | None) -> bool:
        pods = await world.pods()
        names = ("slinky-0", "slinky-1")
        found = [
            pods[name]["metadata"]["annotations"].get("nodeset.slinky.slurm.net/pod-deadline")
            for name in names
        ]
        return found == list(wanted)

    await until(
        "the deadlines", lambda: shown(deadline_text(ends[jobs[2]]), deadline_text(ends[jobs[1]]))
    )
    for job in jobs:
        world.slurm.job_end(job)
    await until("the deadlines to go", lambda: shown(None, None))


async def test_the_drain_reason_of_a_cordon_quotes_the_annotation_and_an_uncordon_lifts_the_drain(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1") as daemon_set:
        await world.nodeset(**daemon_set)
        await world.until_ready(1)
        for annotation, reason in (
            ("GPU ECC error detected", "slurm-operator: GPU ECC error detected"),
            ("GPU\tECC\nerror\x1b[31m", "slurm-operator: GPU ECC error\ufffd[31m"),
            ("x" * 300, "slurm-operator: " + "x" * 255 + "…"),
        ):
            explained = {"nodeset.slinky.slurm.net/node-cordon-reason": annotation}
            await kube_node(
                world,
                "n1",
                {"metadata": {"annotations": explained}, "spec": {"unschedulable": True}},
            )
            await is_true("the drain", lambda: drained(world, "n1"))
            assert world.slurm.nodes["n1"].reason == reason
            await kube_node(world, "n1", {"spec": {"unschedulable": None}})
            await is_true("its end", lambda: drained(world))


async def test_the_drain_reason_of_a_cordon_quotes_the_propagated_conditions_of_the_kubernetes_node(
    propagating: WatchedNamespace,
) -> None:
    world = propagating

    async def conditions(**status: str) -> None:
        found = [
            {
                "type": kind,
                "status": status[kind],
                "reason": f"{kind}Broken",
                "message": f"{kind} 0 fails",
            }
            for kind in ("Fan", "Disk", "Gpu")
        ]
        await world.client.merge_patch(
            NODES,
            None,
            f"n1.{world.namespace}",
            {"status": {"conditions": found}},
            subresource="status",
        )

    async def shown() -> bool:
        """Whether the pod shows the reason that Slurm has: the operator has nothing more to do."""
        [pod] = (await world.pods()).values()
        message = {it["type"]: it.get("message") for it in pod["status"]["conditions"]}
        return message.get("SlurmNodeStateDrain") == world.slurm.nodes["n1"].reason

    async with kube_nodes(world, "n1") as daemon_set:
        await world.nodeset(**daemon_set)
        await world.until_ready(1)
        await kube_node(world, "n1", {"spec": {"unschedulable": True}})
        await is_true("the drain", lambda: drained(world, "n1"))
        message = world.slurm.nodes["n1"].reason
        assert message.startswith(f"slurm-operator: Node (n1.{world.namespace}) was cordoned")
        await until("the reason at the pod", shown)
        gpu = "slurm-operator: (GpuBroken: Gpu 0 fails)"
        both = f"{gpu}; (DiskBroken: Disk 0 fails)"
        await conditions(Gpu="True", Disk="False", Fan="True")
        await is_true(
            "a condition that comes after the cordon", lambda: world.slurm.nodes["n1"].reason == gpu
        )
        await until("that at the pod", shown)
        await conditions(Gpu="True", Disk="True", Fan="True")
        await is_true(
            "the conditions in the order of the setting",
            lambda: world.slurm.nodes["n1"].reason == both,
        )
        await kube_node(world, "n1", {"spec": {"unschedulable": None}})
        await is_true("the end of the drain", lambda: drained(world))
        await kube_node(world, "n1", {"spec": {"unschedulable": True}})
        await is_true("a drain with the conditions from the start", lambda: drained(world, "n1"))
        assert world.slurm.nodes["n1"].reason == both


async def test_a_foreign_drain_is_not_changed_by_a_cordon_or_an_uncordon_of_the_kubernetes_node(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1", "n2") as daemon_set:
        await world.nodeset(**daemon_set)
        await world.until_ready(2)
        await world.post("n1", state=["DRAIN"], reason="admin: bad disk")

        async def noticed() -> bool:
            return (await status(world)).get("slurmDrain") == 1

        await until("the operator to notice", noticed)
        for unschedulable in (True, None):
            # The second Kubernetes node shows when the operator has acted.
            for host in ("n1", "n2"):
                await kube_node(world, host, {"spec": {"unschedulable": unschedulable}})
            acted = partial(drained, world, *(("n1", "n2") if unschedulable else ("n1",)))
            await is_true("the operator to act", acted)
            assert world.slurm.nodes["n1"].reason == "admin: bad disk"
            pods = await world.pods()
            assert "n1" not in {pods[name]["spec"]["hostname"] for name in await cordoned(world)}


async def test_a_users_cordon_of_a_pod_drains_its_slurm_node_until_the_cordon_is_removed(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    await annotate(world, "slinky-0", pod_cordon="true")
    await is_true("the drain", lambda: drained(world, "slinky-0"))
    assert (
        world.slurm.nodes["slinky-0"].reason
        == f"slurm-operator: Pod ({world.namespace}/slinky-0) was cordoned"
    )
    assert len(await uids(world)) == 2
    await annotate(world, "slinky-0", pod_cordon=None)
    await is_true("its end", lambda: drained(world))


async def test_a_requested_cordon_drains_a_busy_node_and_its_removal_returns_it_to_service(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    world.slurm.job_start("slinky-0", cpus=1)
    await annotate(world, "slinky-0", pod_cordon_requested="true")
    await is_true("the drain", lambda: drained(world, "slinky-0"))
    assert (
        world.slurm.nodes["slinky-0"].reason
        == f"slurm-operator: Pod ({world.namespace}/slinky-0) was asked to be cordoned"
    )

    async def answered() -> bool:
        return await cordoned(world) == {"slinky-0"}

    await until("the operator's answer", answered)
    assert len(await uids(world)) == 2
    await annotate(world, "slinky-0", pod_cordon_requested=None)
    await is_true("its end", lambda: drained(world))

    async def taken_back() -> bool:
        return not await cordoned(world)

    await until("the end of the mark", taken_back)


async def test_only_a_node_without_work_counts_as_drained(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=5)
    await world.until_ready(5)
    mixed = world.slurm.job_start("slinky-1", cpus=1)
    allocated = world.slurm.job_start("slinky-2", cpus=4)
    completing = world.slurm.job_start("slinky-3", cpus=4)
    world.slurm.job_end(completing, completing=True)
    await world.post("slinky-4", state=["DOWN"], reason="")
    # slinky-0 is IDLE, slinky-4 DOWN.
    await world.scale(0)
    await world.until_pods("slinky-1", "slinky-2", "slinky-3")
    # The record of a node that an administrator has set DOWN outlives its pod, drained.
    await is_true(
        "the rest to drain", lambda: drained(world, "slinky-1", "slinky-2", "slinky-3", "slinky-4")
    )
    for job, left in (
        (mixed, ("slinky-2", "slinky-3")),
        (allocated, ("slinky-3",)),
        (completing, ()),
    ):
        world.slurm.job_end(job)
        await world.until_pods(*left)


async def test_the_status_counts_the_states_of_slurm(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=6)
    await world.until_ready(6)
    world.slurm.job_start("slinky-2", cpus=1)
    world.slurm.job_start("slinky-3", cpus=4)
    await world.post("slinky-4", state=["DOWN"], reason="power supply")
    await world.post("slinky-5", state=["DRAIN"], reason="bad disk")
    wanted = {"slurmIdle": 3, "slurmAllocated": 2, "slurmDown": 1, "slurmDrain": 1}

    async def counted() -> bool:
        found = await status(world)
        return {name: found.get(name) for name in wanted} == wanted

    await until(f"{wanted}", counted)


# Updates

ROLLING = {"type": "RollingUpdate"}


def rolling(maximum: int | str) -> dict[str, Any]:
    """An updateStrategy."""
    return {**ROLLING, "rollingUpdate": {"maxUnavailable": maximum}}


async def test_a_small_percentage_of_two_workers_updates_one_at_a_time(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2, updateStrategy=rolling("10%"))
    await world.until_ready(2)
    before = await uids(world)
    world.slurm.job_start("slinky-0", time_limit=60)
    job = world.slurm.job_start("slinky-1", time_limit=60)
    await change(world, slurmd={"image": "slurmd:next"})
    await is_true("one to drain", lambda: drained(world, "slinky-1"))
    message = (
        f"slurm-operator: Pod ({world.namespace}/slinky-1) is pending termination for an update"
    )
    assert world.slurm.nodes["slinky-1"].reason == message

    async def one_cordoned() -> bool:
        return await cordoned(world) == {"slinky-1"}

    await until("its pod alone to be cordoned", one_cordoned)
    world.slurm.job_end(job)
    await until("slinky-1 to be replaced", lambda: replaced(world, before, "slinky-1"))


async def with_a_new_pod_that_is_not_ready(world: WatchedNamespace, replicas: int) -> None:
    """A NodeSet OnDelete whose slinky-0 has the new revision and never becomes ready."""
    world.broken_images.add(BROKEN)
    await world.nodeset(replicas=replicas, updateStrategy={"type": "OnDelete"})
    await world.until_ready(replicas)
    before = await uids(world)
    await change(world, slurmd={"image": BROKEN})

    async def seen() -> bool:
        found = await status(world)
        return (found.get("replicas"), found.get("updatedReplicas")) == (replicas, 0)

    await until("the operator to see the new template", seen)
    assert await uids(world) == before, "OnDelete replaces none automatically"
    await world.client.delete(PODS, world.namespace, "slinky-0")
    await until("a new slinky-0", lambda: replaced(world, before, "slinky-0"))
    [container] = [
        it
        for it in (await world.pods())["slinky-0"]["spec"]["containers"]
        if it["name"] == "slurmd"
    ]
    assert container["image"] == BROKEN


@pytest.mark.parametrize(("maximum", "also_a_healthy_one"), [(1, False), (2, True)])
async def test_unhealthy_old_pods_are_replaced_at_once_and_healthy_ones_only_within_max_unavailable(
    world: WatchedNamespace, maximum: int, *, also_a_healthy_one: bool
) -> None:
    await with_a_new_pod_that_is_not_ready(world, 3)
    before = await uids(world)
    not_ready = [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    await world.client.merge_patch(
        PODS,
        world.namespace,
        "slinky-1",
        {"status": {"conditions": not_ready}},
        subresource="status",
    )
    world.slurm.node_vanish("slinky-1")
    world.slurm.job_start("slinky-2")
    await change(world, updateStrategy=rolling(maximum))
    if also_a_healthy_one:
        await is_true("slinky-2 to drain", lambda: "DRAIN" in world.slurm.states("slinky-2"))
    await until("slinky-1 to be replaced", lambda: replaced(world, before, "slinky-1"))
    if not also_a_healthy_one:
        assert not await cordoned(world)


async def test_an_unavailable_new_pod_counts_against_max_unavailable(
    world: WatchedNamespace,
) -> None:
    await with_a_new_pod_that_is_not_ready(world, 4)
    for number in (1, 2, 3):
        world.slurm.job_start(f"slinky-{number}")
    await change(world, updateStrategy=rolling("50%"))
    await is_true("just one to drain", lambda: drained(world, "slinky-3"))
    counts = {
        "replicas": 4,
        "updatedReplicas": 1,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "unavailableReplicas": 1,
    }

    async def counted() -> bool:
        found = await status(world)
        return {name: found.get(name) for name in counts} == counts

    await until("the status to count them", counted)
    await passed(world)
    assert drained(world, "slinky-3")


async def test_a_worker_is_available_after_min_ready_seconds_and_an_update_waits_for_that(
    world: WatchedNamespace,
) -> None:
    least = 3
    await world.nodeset(replicas=2, minReadySeconds=least, updateStrategy=rolling(1))

    async def made_and_ready() -> list[tuple[float, float]]:
        """When each pod was created, and has been ready since, in the order in which they were
        created; [] until all are.
        """
        found = []
        for pod in (await world.pods()).values():
            ready = next(
                (it for it in pod["status"].get("conditions", ()) if it["type"] == "Ready"), None
            )
            if ready is None:
                return []
            times = (pod["metadata"]["creationTimestamp"], ready["lastTransitionTime"])
            found.append(
                (
                    datetime.fromisoformat(times[0]).timestamp(),
                    datetime.fromisoformat(times[1]).timestamp(),
                )
            )
        return sorted(found)

    async def available() -> bool:
        found = await status(world)
        return (found.get("availableReplicas"), found.get("unavailableReplicas")) == (2, 0)

    await world.until_ready(2)
    await until("both to be available", available)
    assert time.time() >= max(ready for _, ready in await made_and_ready()) + least
    before = await uids(world)
    await change(world, slurmd={"image": "slurmd:next"})
    await until("both to be replaced", lambda: replaced(world, before, "slinky-0", "slinky-1"))
    await world.until_ready(2)
    # The status may have been that of the pods before.
    (_, ready), (made, _) = await until("both to be ready", made_and_ready)
    assert made >= ready + least, "the second went before the successor of the first was available"


# Scheduled updates


def scheduled(start: float, **more: Any) -> dict[str, Any]:
    """An updateStrategy."""
    text = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": text, "duration": "10m", **more},
    }


NAME = "SlurmOperatorMaint-slinky"


async def test_no_reservation_is_created_for_a_start_in_the_past(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=1, updateStrategy=scheduled(time.time() - 3600))
    await world.until_ready(1)

    async def message() -> bool:
        return (await world.condition(NODESETS, "slinky", "ReservationCreated")).get(
            "status"
        ) == "False"

    await until("the condition", message)
    assert NAME not in world.slurm.reservations


async def test_a_scheduled_update_replaces_workers_in_its_reservation_which_also_gets_new_ones(
    world: WatchedNamespace,
) -> None:
    start = int(time.time()) + 8
    await world.nodeset(replicas=2, updateStrategy=scheduled(start))
    await world.until_ready(2)
    before = await uids(world)
    # An administrator's maintenance is no reason.
    world.slurm.reserve(
        "other", "slinky-0", start=int(time.time()) - 57, minutes=1, flags=["MAINT"]
    )
    await change(world, slurmd={"image": "slurmd:next"})
    await is_true("the reservation", lambda: NAME in world.slurm.reservations)
    assert {"MAINT", "IGNORE_JOBS"} <= set(world.slurm.reservations[NAME].flags)
    while True:
        found = await uids(world)
        if time.time() >= start - 0.5:
            break
        assert found == before
        await asyncio.sleep(0.2)
    await until("both to be replaced", lambda: replaced(world, before, "slinky-0", "slinky-1"))
    await world.until_ready(2)
    end = world.slurm.reservations[NAME].end_time
    await change(world, replicas=3, updateStrategy=scheduled(start, duration="20m"))
    await world.until_ready(3)
    wanted = {"slinky-0", "slinky-1", "slinky-2"}
    await is_true(
        "the new one to be in it",
        lambda: set(expand(world.slurm.reservations[NAME].nodes)) == wanted,
    )
    assert world.slurm.reservations[NAME].end_time == end, (
        "what is under way is not changed otherwise"
    )


async def test_a_reservation_has_the_flags_of_its_nodeset_and_is_deleted_before_it(
    world: WatchedNamespace,
) -> None:
    start = int(time.time()) + 3600
    await world.nodeset(
        replicas=1, updateStrategy=scheduled(start, flags=["DAILY", "NO_HOLD_JOBS"])
    )
    await is_true("the reservation", lambda: NAME in world.slurm.reservations)
    made = world.slurm.reservations[NAME]
    assert set(made.flags) == {"MAINT", "IGNORE_JOBS", "DAILY", "NO_HOLD_JOBS", "SPEC_NODES"}
    assert (made.start_time, made.end_time, made.nodes) == (start, start + 600, "slinky-0")
    world.slurm.fail(Fault.RESET, method="DELETE", path="reservation")
    await world.client.delete(NODESETS, world.namespace, "slinky")

    async def message() -> bool:
        nodeset = await world.get(NODESETS, "slinky")
        assert nodeset is not None, "it left before its reservation"
        condition = await world.condition(NODESETS, "slinky", "ReservationCreated")
        return not await world.pods() and condition.get("reason") == "NoAnswer"

    await until("the workers to have left and the condition", message)
    assert NAME in world.slurm.reservations
    world.slurm.heal()

    async def gone() -> bool:
        return await world.get(NODESETS, "slinky") is None

    await until("the NodeSet to be gone", gone)
    assert NAME not in world.slurm.reservations


# What is left of a pod


async def test_a_pin_is_removed_with_its_kubernetes_node_and_with_the_setting(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1") as only_there:
        del only_there["scalingMode"]
        world.default_kube_node = f"n1.{world.namespace}"
        await world.nodeset(replicas=1, pinToNode=True, **only_there)
        await world.until_ready(1)

        async def pins(wanted: dict[str, str]) -> bool:
            return ((await status(world)).get("ordinalToNode") or {}) == wanted

        await until("the pin", lambda: pins({"0": f"n1.{world.namespace}"}))
        await change(world, scalingMode="DaemonSet")
        await until("the pin to be dropped with the mode", lambda: pins({}))
        await change(world, scalingMode="StatefulSet")
        await until("the pin again", lambda: pins({"0": f"n1.{world.namespace}"}))
        await world.client.delete(NODES, None, f"n1.{world.namespace}")
        await until("the pin to be dropped with its Kubernetes node", lambda: pins({}))


async def test_a_pin_is_removed_when_the_template_excludes_its_kubernetes_node(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1", "n2") as only_there:
        del only_there["scalingMode"]
        first, second = (f"{host}.{world.namespace}" for host in ("n1", "n2"))
        world.default_kube_node = first
        await world.nodeset(replicas=1, pinToNode=True, **only_there)
        await world.until_ready(1)
        before = await uids(world)

        async def pinned(kube_node: str) -> bool:
            return (await status(world)).get("ordinalToNode") == {"0": kube_node}

        await until("the pin", lambda: pinned(first))
        await kube_node(world, "n2", {"metadata": {"labels": {"rack": "2"}}})
        world.default_kube_node = second
        await change(world, template={"spec": {"nodeSelector": {"rack": "2"}}})
        await until("a new pod", lambda: replaced(world, before, "slinky-0"))
        spec = (await world.pods())["slinky-0"]["spec"]
        assert "nodeAffinity" not in spec["affinity"]
        await until("a pin to the Kubernetes node that is admitted", lambda: pinned(second))


async def test_a_drain_that_a_former_pod_left_is_lifted_once_its_successor_is_ready(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    nodeset = await world.get(NODESETS, "slinky")
    assert nodeset is not None
    left = PodFacts("long-gone", "slinky-0", world.namespace, nodeset["metadata"]["uid"])
    world.slurm.nodes["slinky-0"].extra = encode(left)
    await world.post("slinky-0", state=["DRAIN"], reason="slurm-node: the pod is terminating")
    await is_true("the drain to be lifted", lambda: drained(world))


async def test_a_failed_pod_is_created_again_after_a_longer_wait_each_time(
    world: WatchedNamespace,
) -> None:
    world.broken_images.add("slurmd:test")
    await world.nodeset(replicas=1)
    await world.until_pods("slinky-0")
    for wait in (1, 2):
        before = await uids(world)
        failed = {"status": {"phase": "Failed"}}
        since = time.monotonic()
        await world.client.merge_patch(
            PODS, world.namespace, "slinky-0", failed, subresource="status"
        )
        await until("a new pod", partial(replaced, world, before, "slinky-0"))
        assert time.monotonic() - since >= wait


async def test_objects_that_a_controllers_workers_share_are_restored_after_a_foreign_change(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1)
    service = await until("the Service", lambda: world.get(SERVICES, "slurm-workers-slurm"))
    budget = await until(
        "the budget", lambda: world.get(POD_DISRUPTION_BUDGETS, "slurm-workers-pdb-slurm")
    )
    spoilt: list[tuple[Any, str, Manifest, Manifest]] = [
        (
            SERVICES,
            "slurm-workers-slurm",
            {"spec": {"publishNotReadyAddresses": False}},
            service["spec"],
        ),
        (
            POD_DISRUPTION_BUDGETS,
            "slurm-workers-pdb-slurm",
            {"spec": {"maxUnavailable": 5}},
            budget["spec"],
        ),
    ]
    for resource, name, patch, spec in spoilt:
        await world.client.merge_patch(resource, world.namespace, name, patch)

        def put_right(
            resource: Any = resource, name: str = name, spec: Manifest = spec
        ) -> Awaitable[bool]:
            async def look() -> bool:
                return ((await world.get(resource, name)) or {}).get("spec") == spec

            return look()

        await until(f"{name} to be put right", put_right)

        def belongs(resource: Any = resource, name: str = name) -> Awaitable[str | None]:
            async def look() -> str | None:
                found = ((await world.get(resource, name)) or {}).get("metadata") or {}
                owners = [
                    (it["kind"], it["name"], it.get("controller", False))
                    for it in found.get("ownerReferences", ())
                ]
                return str(found["uid"]) if owners == [("NodeSet", "slinky", False)] else None

            return look()

        before = await until(f"the owner of {name}", belongs)
        await world.client.merge_patch(
            resource, world.namespace, name, {"metadata": {"ownerReferences": None}}
        )
        assert await until(f"{name} to have its owner again", belongs) == before
        await world.client.delete(resource, world.namespace, name)
        assert await until(f"{name} to come back", belongs) != before


# Bad input


async def test_a_bad_hostname_of_a_kubernetes_node_is_reported_and_removes_no_worker(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1", "n2") as daemon_set:
        await world.nodeset(**daemon_set)
        await world.until_ready(2)
        before = await uids(world)
        for bad in ("two\nlines", "x" * 64):
            override = {"nodeset.slinky.slurm.net/hostname-override": bad}
            await kube_node(world, "n1", {"metadata": {"annotations": override}})

            async def message(bad: str = bad) -> bool:
                ready = await world.condition(NODESETS, "slinky")
                return ready.get("reason") == "NameConflict" and repr(bad[:80]) in ready["message"]

            await until("the condition", message)
        assert await uids(world) == before
        assert drained(world)


async def test_an_extra_conf_that_stops_slurmd_is_reported_and_delays_no_other_nodeset(
    world: WatchedNamespace,
) -> None:
    await world.nodeset("bad", replicas=1, extraConf="Wieght=10", slurmd={"image": "slurmd:26.05"})
    await world.nodeset("good", replicas=1)

    async def message() -> bool:
        ready = await world.condition(NODESETS, "bad")
        return (
            ready.get("reason") == "Invalid"
            and "spec.extraConf: Wieght isn't a key" in ready["message"]
        )

    await until("the condition", message)
    await world.until_ready(1, "good")
    assert set(await world.pods()) == {"good-0"}
    await change(world, "bad", extraConf="Weight=10")
    await world.until_ready(1, "bad")


async def test_a_configuration_file_of_a_reserved_name_is_named_in_a_condition(
    world: WatchedNamespace,
) -> None:
    mine = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mine", "namespace": world.namespace},
    }
    await world.client.create(
        CONFIG_MAPS, {**mine, "data": {"slurm.conf": "ClusterName=mine\n", "foo.conf": "a=b\n"}}
    )
    refer = {"spec": {"configFileRefs": [{"name": "mine"}]}}
    await world.client.merge_patch(CONTROLLERS, world.namespace, "slurm", refer)

    async def message() -> bool:
        accepted = await world.condition(CONTROLLERS, "slurm", ACCEPTED)
        return (
            accepted.get("reason") == "Invalid"
            and "may not bring slurm.conf" in accepted["message"]
        )

    await until("the condition", message)
