"""How soon the operator sees what has happened, in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from sidecars.kube import Manifest
from sidecars.simulate import Fault
from sidecars.slurm import states
from sidecars.workloads import names
from tests.support.virtual_time import run
from tests.support.world.api import Place
from tests.support.world.client import SlurmFault
from tests.support.world.kubelets import NODE
from tests.support.world.world import NODESET, POD, World, is_ready, world

WORKERS = 6
MANY = 500


async def until_counted(w: World, field: str, count: int) -> float:
    """Wait for a count in the NodeSet's status; the seconds that took."""

    def look() -> bool:
        return ((w.api.get(NODESET, "slurm", "slinky") or {}).get("status") or {}).get(
            field
        ) == count

    return await w.until(f"{field} is {count}", look)


def test_a_worker_that_became_ready_counts_as_idle_without_waiting_for_the_next_poll() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            w.nodeset(replicas=0)
            await w.run(10)
            took = []
            for count in range(1, WORKERS + 1):
                w.change("slinky", {"replicas": count})
                await until_counted(w, "readyReplicas", count)
                took.append(await until_counted(w, "slurmIdle", count))
            assert max(took) <= 0.25

    run(scenario())


def test_the_end_of_a_condemned_pods_job_is_seen_at_one_of_two_polls_in_each_second() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            w.nodeset(replicas=WORKERS)
            await w.until("the workers are ready", lambda: ready(w) == WORKERS)
            await w.run(10)
            jobs = [w.job(1, 20 + 4.13 * number) for number in range(WORKERS)]
            await w.until("all jobs run", lambda: all(job.job_id for job in jobs))
            w.change("slinky", {"replicas": 0})
            model = w.slurms["slurm", "slurm"]

            def busy() -> int:
                return sum(states.is_busy(model.states(name)) for name in model.nodes)

            took = []
            for left in reversed(range(WORKERS)):
                await w.until("one more node has no job", partial(lambda n: busy() == n, left))
                took.append(
                    await w.until(
                        "its pod is deleted", partial(lambda n: len(staying(w)) == n, left)
                    )
                )
            assert max(took) <= 0.75

    run(scenario())


def staying(w: World) -> list[Manifest]:
    """The pods that nobody has deleted."""
    return [pod for pod in w.pods() if "deletionTimestamp" not in pod["metadata"]]


@asynccontextmanager
async def many_being_created() -> AsyncIterator[World]:
    """A world with a slow API server, and a NodeSet of which some pods are ready and most are still
    to be created.
    """
    async with world(1, kube_nodes=MANY) as w:
        await w.run(5)
        w.faults.slow = 1.0
        w.nodeset(replicas=MANY)
        await w.until("a pod has its node in Slurm", lambda: w.slurms["slurm", "slurm"].nodes)
        assert len(w.pods()) < MANY / 4
        yield w


def test_a_node_cordoned_while_many_pods_are_created_is_drained_before_the_last_exists() -> None:
    async def scenario() -> None:
        async with many_being_created() as w:
            name, node = next(iter(w.slurms["slurm", "slurm"].nodes.items()))
            kube_node = next(
                pod["spec"]["nodeName"] for pod in w.pods() if pod["spec"]["hostname"] == name
            )
            w.api.change(NODE, "", kube_node, {"spec": {"unschedulable": True}})
            assert await w.until("the node is drained", lambda: "DRAIN" in node.flags) <= 4
            assert len(w.pods()) < MANY

    run(scenario())


def test_a_nodeset_that_is_scaled_in_while_many_pods_are_created_stops_creating_them() -> None:
    async def scenario() -> None:
        async with many_being_created() as w:
            w.change("slinky", {"replicas": 1})
            await w.run(3)
            there = len(w.pods())
            await w.run(5)
            assert len(w.pods()) <= there < MANY / 2

    run(scenario())


def test_the_status_of_a_nodeset_counts_up_while_its_pods_are_created() -> None:
    async def scenario() -> None:
        async with many_being_created() as w:
            w.faults.slow = 2.0
            seen = set()
            while len(w.pods()) < MANY:
                seen.add(
                    ((w.api.get(NODESET, "slurm", "slinky") or {}).get("status") or {}).get(
                        "replicas"
                    )
                )
                await w.run(0.5)
            assert len({count for count in seen if count}) >= 2

    run(scenario())


def shown_idle(w: World) -> int:
    """How many pods show that they are idle."""
    return [it["type"] for pod in w.pods() for it in pod["status"].get("conditions") or ()].count(
        "SlurmNodeStateIdle"
    )


def ready(w: World) -> int:
    """How many pods are ready."""
    return sum(map(is_ready, w.pods()))


def test_while_pods_start_a_busy_worker_is_protected_at_once_and_an_idle_one_later() -> None:
    async def scenario() -> None:
        async with many_being_created() as w:
            w.job(1, 600.0)

            def protected() -> list[str]:
                return [
                    p["metadata"]["name"]
                    for p in w.pods()
                    if p["metadata"]["labels"].get(names.POD_PROTECT)
                ]

            assert await w.until("its worker is protected", protected) <= 4
            while len(w.pods()) < MANY:
                assert shown_idle(w) == 0
                await w.run(0.1)
            w.faults.slow = 0.0
            await w.until("all are ready", lambda: ready(w) == MANY)
            assert await w.until("the idle ones show it", lambda: shown_idle(w) == MANY - 1) <= 5

    run(scenario())


def test_a_worker_that_never_comes_up_delays_what_the_others_show_for_five_seconds() -> None:
    async def scenario() -> None:
        async with world(1, kube_nodes=WORKERS) as w:
            w.nodeset(replicas=WORKERS + 1)
            await w.until("all pods but one are ready", lambda: ready(w) == WORKERS)
            assert (
                await w.until(
                    "the others show that they are idle", lambda: shown_idle(w) == WORKERS
                )
                <= 6
            )

    run(scenario())


def test_a_lone_worker_shows_that_it_is_idle_as_soon_as_slurm_lists_it_so() -> None:
    async def scenario() -> None:
        async with world(1, kube_nodes=WORKERS) as w:
            w.nodeset(replicas=1)
            await until_counted(w, "slurmIdle", 1)
            assert await w.until("it shows that it is idle", lambda: shown_idle(w) == 1) <= 0.5

    run(scenario())


def test_a_pass_that_began_before_deletions_were_seen_sends_none_of_them_again() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            w.nodeset(replicas=4)
            await until_counted(w, "slurmIdle", 4)
            await w.run(5)
            asked: list[str] = []
            handle = w.api.handle

            def watched(method: str, place: Place, *rest: Any) -> bytes:
                if (
                    method == "DELETE"
                    and place.plural == "pods"
                    and place.name.startswith("slinky-")
                ):
                    asked.append(place.name)
                    w.faults.lag_until = w.loop.time() + 0.5
                return handle(method, place, *rest)

            w.api.handle = watched  # type: ignore[assignment, method-assign]
            w.slurms["slurm", "slurm"].fail(Fault.SLOW, path="jobs/", seconds=1.0)
            w.change("slinky", {"replicas": 2})
            await w.until("a pod is deleted", lambda: asked)
            w.operator().runtime.queues.nodesets.add(("slurm", "slinky"))
            await w.run(4)
            assert sorted(asked) == ["slinky-2", "slinky-3"]

    run(scenario())


def is_marked(pod: Manifest) -> bool:
    """Whether it is to go."""
    return names.POD_CORDON in pod["metadata"].get("annotations", {})


def is_drained(w: World, pod: Manifest) -> bool:
    """Whether its node is drained in Slurm."""
    node = w.slurms["slurm", "slurm"].nodes.get(pod["spec"]["hostname"])
    return node is not None and "DRAIN" in node.flags


@asynccontextmanager
async def many_that_go() -> AsyncIterator[World]:
    """A world with a slow API server, and a NodeSet that has just been scaled in by most of its
    pods.
    """
    async with world(1, kube_nodes=MANY) as w:
        w.nodeset(replicas=MANY)
        await until_counted(w, "slurmIdle", MANY)
        await w.run(10)
        w.faults.slow = 1.0
        w.change("slinky", {"replicas": WORKERS})
        yield w


def test_a_node_cordoned_while_many_pods_are_deleted_is_drained_before_the_last_ends() -> None:
    async def scenario() -> None:
        async with many_that_go() as w:
            await w.until(
                "the first pods that go are drained",
                lambda: any(is_drained(w, pod) for pod in w.pods()),
            )
            for _ in range(2):
                pod = next(pod for pod in w.pods() if not is_drained(w, pod))
                w.api.change(NODE, "", pod["spec"]["nodeName"], {"spec": {"unschedulable": True}})
                assert await w.until("its node is drained", partial(is_drained, w, pod)) <= 4
                assert len(w.pods()) > MANY / 2
                await w.until("pods are deleted", lambda: len(w.pods()) < MANY - WORKERS)

    run(scenario())


def test_a_nodeset_that_is_scaled_out_again_while_many_pods_go_keeps_those_that_are_left() -> None:
    async def scenario() -> None:
        async with many_that_go() as w:
            await w.until("pods are deleted", lambda: len(w.pods()) < MANY - WORKERS)
            there = {pod["metadata"]["uid"] for pod in w.pods()}
            w.change("slinky", {"replicas": MANY})
            await w.until(
                "all exist again",
                lambda: len(w.pods()) == MANY and not any(map(is_marked, w.pods())),
            )
            kept = there & {pod["metadata"]["uid"] for pod in w.pods()}
            assert len(kept) > MANY / 2

    run(scenario())


def test_a_slurmctld_that_is_down_is_no_refusal_of_the_reservation_which_is_made_soon_after() -> (
    None
):
    async def scenario() -> None:
        async with world(1) as w:
            await w.run(5)
            slurm = w.slurms["slurm", "slurm"]
            slurm.fail(Fault.NO_SLURMCTLD, method="POST", path="reservation")
            start = {"startTime": "2026-12-24T12:00:00Z", "duration": "1h"}
            w.nodeset(
                replicas=1, updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": start}
            )

            def shown() -> dict[str, Any]:
                return w.condition("slinky", "ReservationCreated")

            await w.until("the reservation is tried", lambda: slurm.requests("POST", "reservation"))
            await w.run(1)
            assert (shown()["status"], shown()["reason"]) == ("Unknown", "NoAnswer")
            slurm.heal()
            assert await w.until("it is shown", lambda: shown()["status"] == "True") <= 10

    run(scenario())


@pytest.mark.parametrize("mark", ["true", None], ids=["drain", "undrain"])
def test_what_slurm_failed_to_do_for_a_users_cordon_is_tried_again_though_nothing_else_happens(
    mark: str | None,
) -> None:
    async def scenario() -> None:
        async with world(1) as w:
            w.nodeset(replicas=1)
            await until_counted(w, "slurmIdle", 1)
            [pod] = w.pods()

            def annotate(value: str | None) -> None:
                patch = {"metadata": {"annotations": {names.POD_CORDON: value}}}
                w.api.change(POD, "slurm", pod["metadata"]["name"], patch)

            if mark is None:
                annotate("true")
                await w.until("its node is drained", lambda: is_drained(w, pod))
            await w.run(10)
            w.faults.slurm_writes[w.faults.slurm_done + 1] = SlurmFault.ERROR
            annotate(mark)
            assert (
                await w.until("Slurm is asked", lambda: is_drained(w, pod) is (mark is not None))
                <= 10
            )

    run(scenario())
