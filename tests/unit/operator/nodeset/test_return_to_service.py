"""DOWN nodes under each ReturnToService, in a simulated cluster: who returns them to service, and
who doesn't.
"""

from datetime import UTC, datetime

import pytest

from tests.support.virtual_time import run
from tests.support.world.world import World, world

EACH = pytest.mark.parametrize("setting", [0, 1, 2])


def states(w: World) -> list[frozenset[str]]:
    slurm = w.slurms["slurm", "slurm"]
    return [slurm.states(name) for name in slurm.nodes]


def up(w: World, count: int) -> bool:
    found = states(w)
    return len(found) == count and not any(it & {"DOWN", "DRAIN", "NOT_RESPONDING"} for it in found)


def uids(w: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in w.pods()}


async def until_replaced(w: World, before: set[str]) -> None:
    """Wait until as many pods exist as before, none of which is one of those."""
    await w.until(
        "the workers are replaced",
        lambda: len(w.pods()) == len(before) and before.isdisjoint(uids(w)),
    )


def kube_node_of(w: World, name: str) -> str:
    """The Kubernetes node of a pod."""
    [found] = [pod["spec"]["nodeName"] for pod in w.pods() if pod["metadata"]["name"] == name]
    return str(found)


async def reboot(w: World, kube_node: str) -> None:
    w.kubelets.kill(kube_node)
    await w.run(5)
    w.kubelets.revive(kube_node)


@EACH
def test_all_workers_of_a_scheduled_update_are_used_again(setting: int) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.slurms["slurm", "slurm"].return_to_service = setting
            start = datetime.fromtimestamp(w.wall_clock() + 40, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            scheduled = {
                "type": "ScheduledUpdate",
                "scheduledUpdate": {"startTime": start, "duration": "5m"},
            }
            w.nodeset(replicas=3, updateStrategy=scheduled)
            await w.run(30)
            before = uids(w)
            w.change("slinky", {"slurmd": {"image": w.new_image()}})
            assert len(before) == 3
            await until_replaced(w, before)
            assert all("MAINTENANCE" in it for it in states(w))
            await w.until("all are used again", lambda: up(w, 3))
            await w.until("the NodeSet is ready", lambda: w.condition("slinky")["status"] == "True")

    run(scenario())


@EACH
def test_a_node_that_an_administrator_set_down_gets_no_job_after_its_pod_was_replaced(
    setting: int,
) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            slurm.return_to_service = setting
            w.nodeset(replicas=2)
            await w.run(30)
            before = uids(w)
            w.admin("slinky-1", "bad disk", state="DOWN")
            w.change("slinky", {"slurmd": {"image": w.new_image()}})
            assert len(before) == 2
            await until_replaced(w, before)
            await w.run(60)
            record = slurm.nodes["slinky-1"]
            assert ("DRAIN" in record.flags, record.reason) == (True, "bad disk")
            assert record.base == ("IDLE" if setting == 2 else "DOWN")
            w.admin("slinky-1", None)
            await w.until("both are used again", lambda: up(w, 2))

    run(scenario())


@EACH
def test_a_worker_that_was_cut_off_is_used_again_unless_return_to_service_is_0_and_ready_names_it(
    setting: int,
) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            slurm.return_to_service = setting
            w.nodeset(replicas=2)
            await w.run(30)
            kube_node = kube_node_of(w, "slinky-1")
            w.kubelets.cut_off(kube_node, "slurmctld")
            await w.until("Slurm gives it up", lambda: slurm.nodes["slinky-1"].base == "DOWN", 600)
            await w.until(
                "Ready names it",
                lambda: "slinky-1 (Not responding)" in w.condition("slinky")["message"],
                20,
            )
            w.kubelets.join(kube_node)
            if setting:
                await w.until("it is used again", lambda: up(w, 2), 200)
                await w.until(
                    "the NodeSet is ready", lambda: w.condition("slinky")["status"] == "True"
                )
                return
            await w.run(200)
            assert (slurm.nodes["slinky-1"].base, slurm.nodes["slinky-1"].reason) == (
                "DOWN",
                "Not responding",
            )
            assert w.condition("slinky")["reason"] == "SlurmNodesDown"

    run(scenario())


@EACH
def test_a_worker_whose_kubernetes_node_has_rebooted_is_used_again(setting: int) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            slurm.return_to_service = setting
            w.nodeset(replicas=2)
            await w.run(30)
            before, registered = uids(w), slurm.nodes["slinky-1"].slurmd_start_time
            await reboot(w, kube_node_of(w, "slinky-1"))
            await w.until(
                "slurmd registers", lambda: slurm.nodes["slinky-1"].slurmd_start_time > registered
            )
            await w.until("it is used again", lambda: up(w, 2))
            await w.until("the NodeSet is ready", lambda: w.condition("slinky")["status"] == "True")
            assert uids(w) == before
            # With 2, slurmctld doesn't set it DOWN.
            assert any("RESUME" in line for line in w.watchdog.log) is (setting < 2)

    run(scenario())


@EACH
def test_a_rebooted_worker_that_an_administrator_has_set_down_stays_out_of_service(
    setting: int,
) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            slurm.return_to_service = setting
            w.nodeset(replicas=2)
            await w.run(30)
            w.admin("slinky-1", "bad disk")
            await reboot(w, kube_node_of(w, "slinky-1"))
            await w.run(60)
            record = slurm.nodes["slinky-1"]
            assert ("DRAIN" in record.flags, record.reason) == (True, "bad disk")

    run(scenario())
