"""The bridge on nodes with a slurmd, with a simulated Slurm."""

import dataclasses
from typing import Any

import msgspec
import pytest

from sidecars.bridge import guarded_nodes as guards
from sidecars.bridge.core import manifests
from sidecars.bridge.core.devices import Rules
from sidecars.bridge.core.nodes import FEATURE
from sidecars.bridge.core.records import View
from sidecars.contract import bridge, extra
from sidecars.kube import EVENTS, NODES, PODS, Store
from sidecars.simulate.records import Fault, SimJob
from sidecars.slurm import protocol
from sidecars.slurm.external import ExternalRequest
from sidecars.slurm.records import Node
from tests.support.bridge import live, node, pod
from tests.unit.bridge.core.test_decide import BOUND, RUNNING
from tests.unit.bridge.world import World


def worker(world: World, **annotations: str) -> None:
    """The worker of the Slurm node w0, on a Kubernetes node of its own, and its slurmd."""
    kube_node = node("bare")
    del kube_node["metadata"]["labels"][bridge.EXTERNAL_NODE]
    world.kube.put(NODES, kube_node)
    metadata = {
        "namespace": "slurm",
        "name": "w0",
        "annotations": annotations or {bridge.GUARD: "1"},
    }
    spec = {"nodeName": "bare", "containers": [{"name": "slurmd"}]}
    item = world.kube.put(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )
    facts = extra.encode(extra.PodFacts(item["metadata"]["uid"], "w0", "slurm"))
    world.slurm.node_register("w0", extra=facts, features=["guarded"])
    world.slurm.partitions["slurm-bridge"].feature = "guarded"


def bounded(name: str = "p") -> dict[str, Any]:
    """A pod that can use no more than it requests."""
    found = pod("team", name)
    [container] = found["spec"]["containers"]
    container["resources"]["limits"] = dict(container["resources"]["requests"])
    return found


def gone(world: World) -> str | None:
    """What is written on the worker."""
    annotations = world.kube.objects(PODS)["slurm", "w0"]["metadata"]["annotations"]
    found = annotations.get(bridge.GONE)
    return None if found is None else str(found)


async def test_a_kubernetes_node_with_a_worker_whose_epilog_does_not_wait_gets_no_external_node(
    world: World,
) -> None:
    """Slurm would give the same cores to jobs on the worker and to pods."""
    worker(world, other="1")
    labelled = node("bare")
    assert bridge.EXTERNAL_NODE in labelled["metadata"]["labels"]
    world.kube.put(NODES, labelled)
    async with world.bridge():
        await world.until("the record of another node", lambda: "k1" in world.slurm.nodes)
        await world.until(
            "the refusal",
            lambda: any(
                "has the worker of Slurm node w0" in event["note"]
                for event in world.kube.objects(EVENTS).values()
            ),
        )
        assert "bare" not in world.slurm.nodes


async def bound(world: World) -> SimJob:
    """The job of the pod p, which runs on the worker's node."""
    job = await world.job()
    assert job.guard
    assert not job.external
    world.slurm.job_run(job.job_id, {"w0": 1})
    await world.until("the release", world.released)
    world.bind()
    assert world.pod()["spec"]["nodeName"] == "bare"
    return job


def terminates(world: World) -> None:
    """The pod was deleted, and its containers have not ended."""
    item = world.pod()
    item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.kube.put(PODS, item)


async def passes(world: World, count: int = 4) -> None:
    before = len(world.slurm.requests("GET", "jobs/state/"))
    await world.until(
        "some passes", lambda: len(world.slurm.requests("GET", "jobs/state/")) >= before + count
    )


async def test_the_epilog_is_answered_when_the_pod_is_gone_and_the_answer_is_withdrawn_at_its_end(
    world: World,
) -> None:
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        job = await bound(world)
        terminates(world)
        world.slurm.job_end(job.job_id, state="TIMEOUT", completing=True)
        await passes(world)
        assert not gone(world)
        world.kube.remove(PODS, "team", "p")
        await world.until("the word that the pod is gone", lambda: gone(world) == str(job.job_id))
        world.slurm.job_end(job.job_id, state="TIMEOUT")
        await world.until("its withdrawal", lambda: gone(world) == "")
    assert world.slurm.nodes["w0"].flags.isdisjoint({"DRAIN"})


async def test_the_epilog_of_a_guard_that_was_queued_again_is_answered_whatever_its_user_changed(
    world: World,
) -> None:
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        job = await bound(world)
    world.slurm.job_restart(job.job_id, output="/home/ada/x")
    # All that this bridge knows of the job is its record of now.
    async with world.bridge():
        await world.until(
            "the pod to be deleted", lambda: ("team", "p") not in world.kube.objects(PODS)
        )
        await world.until("the word that the pod is gone", lambda: gone(world) == str(job.job_id))
        # As the Epilog does when it has waited for ten minutes.
        assert world.slurm.update_node(
            "w0", "DRAIN", f"{bridge.DRAIN_PREFIX}the bridge has not confirmed"
        )
        await passes(world)
        assert "DRAIN" in world.slurm.nodes["w0"].flags, "the Epilog has not ended"
        assert gone(world) == str(job.job_id)
        world.slurm.job_end(job.job_id, state="CANCELLED")
        await world.until(
            "the end of the drain", lambda: "DRAIN" not in world.slurm.nodes["w0"].flags
        )
        await world.until("the withdrawal", lambda: gone(world) == "")


async def test_no_pod_is_released_by_a_guard_whose_user_has_changed_its_output_while_it_was_pending(
    world: World,
) -> None:
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        job = await world.job()
        job.output = "/home/ada/x"
        world.slurm.job_run(job.job_id, {"w0": 1})
        words = f"its user has changed the output of job {job.job_id}"
        await world.until("the reason", lambda: words in world.condition().get("message", ""))
        assert not world.released()


async def test_a_job_of_a_user_that_looks_like_a_guard_has_nothing_written_on_its_node(
    world: World,
) -> None:
    """Its Epilogs don't wait: no user can write an admin comment."""
    worker(world)
    async with world.bridge():
        request = ExternalRequest("x", "slurm-bridge", "", guard=True)
        body = protocol.submit_external(request).body
        assert body is not None
        world.slurm.submit_job(body, "eve")
        [job] = live(world.slurm)
        world.slurm.job_run(job.job_id, {"w0": 1})
        await passes(world)
        world.slurm.job_restart(job.job_id, output="/home/ada/x")
        await passes(world)
        world.slurm.job_restart(job.job_id, output="/home/ada/x", completing=False)
        await passes(world)
    assert gone(world) is None
    assert "DRAIN" not in world.slurm.nodes["w0"].flags


async def test_a_partition_with_nodes_of_both_kinds_gets_no_job(world: World) -> None:
    worker(world)
    world.slurm.partitions["slurm-bridge"].feature = ""
    world.kube.put(PODS, bounded())
    async with world.bridge():
        words = "external nodes, such as k1, and nodes with a slurmd, such as w0"
        await world.until("the refusal", lambda: words in world.condition().get("message", ""))
        assert world.condition()["reason"] == "Refused"
        assert not live(world.slurm)
        world.slurm.partitions["slurm-bridge"].feature = FEATURE
        assert not (await world.job()).guard


async def test_a_node_that_loses_its_guard_with_a_pod_on_it_is_drained_until_the_pod_is_gone(
    world: World,
) -> None:
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        job = await bound(world)
        terminates(world)
        world.slurm.job_end(job.job_id, state="NODE_FAIL")
        await world.until("the drain", lambda: "DRAIN" in world.slurm.nodes["w0"].flags)
        assert (
            world.slurm.nodes["w0"].reason == "slurm-bridge: pod team/p runs here without a guard"
        )
        world.kube.remove(PODS, "team", "p")
        await world.until(
            "the end of the drain", lambda: "DRAIN" not in world.slurm.nodes["w0"].flags
        )


async def test_a_node_with_a_pod_is_drained_while_its_slurmd_has_not_answered_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "SILENT_SECONDS", 0.0)
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        await bound(world)
        world.slurm.node_silence("w0")
        await world.until("the drain", lambda: "DRAIN" in world.slurm.nodes["w0"].flags)
        assert (
            world.slurm.nodes["w0"].reason
            == "slurm-bridge: pod team/p runs here, and slurmd doesn't answer"
        )
    assert world.pod()["spec"]["nodeName"] == "bare"


async def drained_and_lost(world: World) -> None:
    """The pod p ends on the node w0, which is lost when the bridge has drained it."""
    await bound(world)
    terminates(world)
    world.slurm.node_silence("w0")
    await world.until("the drain", lambda: "DRAIN" in world.slurm.nodes["w0"].flags)
    world.slurm.node_vanish("w0")


async def test_a_node_that_was_drained_and_lost_is_in_service_again_after_its_pod_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the chart's ReturnToService=1, slurmctld itself would leave it DOWN for ever."""
    monkeypatch.setattr(guards, "SILENT_SECONDS", 0.0)
    world.slurm.return_to_service = 1
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        await drained_and_lost(world)
        world.slurm.node_responds("w0")
        assert world.slurm.nodes["w0"].base == "DOWN"
        world.kube.remove(PODS, "team", "p")
        await world.until("the service", lambda: world.slurm.nodes["w0"].base == "IDLE")
        assert world.slurm.nodes["w0"].flags.isdisjoint({"DRAIN"})


async def test_the_drain_of_a_worker_that_vanishes_ends_with_the_pod(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its record would remain for ever: the operator deletes none with a drain of the
    bridge.
    """
    monkeypatch.setattr(guards, "SILENT_SECONDS", 0.0)
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        await drained_and_lost(world)
        world.kube.remove(PODS, "slurm", "w0")
        await passes(world)
        assert "DRAIN" in world.slurm.nodes["w0"].flags
        world.kube.remove(PODS, "team", "p")
        await world.until(
            "the end of the drain", lambda: "DRAIN" not in world.slurm.nodes["w0"].flags
        )
    assert world.slurm.nodes["w0"].base == "DOWN"


async def test_a_slurmd_that_has_just_been_lost_drains_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "SILENT_SECONDS", 3600.0)
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        await bound(world)
        world.slurm.node_silence("w0")
        await passes(world)
    assert "DRAIN" not in world.slurm.nodes["w0"].flags


class Nodes:
    """Slurm's list of nodes, with the time at which it is asked for."""

    def __init__(self, record: Node) -> None:
        self.nodes, self.known, self.at = {record.name: record}, True, 0.0

    def now(self) -> float:
        return self.at

    async def poll(self) -> None:
        """No other answer."""


class Sent:
    """The requests to Slurm."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def call(self, request: Any) -> None:
        self.bodies.append(request.body)


async def test_a_slurmd_is_silent_for_as_long_as_before_after_answers_that_are_not_plausible() -> (
    None
):
    """Nodes that vanish at once make the whole list so. Slurm forgets the guard of a silent slurmd
    after a while.
    """
    store: Store[manifests.Pod] = Store()
    meta = {
        "namespace": "slurm",
        "name": "w0",
        "uid": "w",
        "annotations": {bridge.GUARD: bridge.GUARD_VERSION},
    }
    store.put(msgspec.convert({"metadata": meta, "spec": {"nodeName": "a"}}, manifests.Pod))
    record = Node(
        "w0",
        frozenset({"IDLE", "NOT_RESPONDING"}),
        extra=extra.encode(extra.PodFacts("w", "w0", "slurm")),
    )
    poller, slurm = Nodes(record), Sent()
    given: Any = (None, slurm, poller, store)
    found = guards.Guards(*given)
    guard = dataclasses.replace(RUNNING, guard=True)
    view = View((BOUND,), {guard.job_id: guard}, True, {"team": "ada"})
    for poller.at, poller.known in (
        (0.0, True),
        (guards.SILENT_SECONDS / 2, False),
        (guards.SILENT_SECONDS, True),
    ):
        found.look()
        assert await found.apply(view)
    [body] = slurm.bodies
    assert body["reason"] == "slurm-bridge: pod team/pod runs here, and slurmd doesn't answer"


async def test_no_pod_is_released_to_cores_of_a_worker_that_slurm_has_given_to_two_guards(
    world: World,
) -> None:
    """As after the resumption of a suspended guard."""
    worker(world)
    world.slurm.nodes["w0"].cpus = 1
    world.kube.put(PODS, bounded())
    async with world.bridge():
        first = await bound(world)
        world.kube.put(PODS, bounded("q"))
        await world.until(
            "its job", lambda: [it.blocked for it in live(world.slurm)] == [False, False]
        )
        [second] = [it for it in live(world.slurm) if it is not first]
        world.slurm.job_run(second.job_id, {"w0": 1})
        await world.until(
            "the reason", lambda: "more CPUs than it has" in world.condition("q").get("message", "")
        )
        assert not world.released("q")
        world.slurm.job_end(first.job_id)
        world.kube.remove(PODS, "team", "p")
        await world.until("the release", lambda: world.released("q"))


@pytest.mark.parametrize(
    ("granted", "released"), [("gpu:2(IDX:0-1)", True), ("gpu:1(IDX:0)", False)]
)
async def test_a_pod_with_gpus_is_released_to_a_worker_of_which_its_job_has_all_gpus(
    world: World, granted: str, released: bool
) -> None:
    rules = Rules({"nvidia.com/gpu": "gpu"}, {})
    world.settings = dataclasses.replace(world.settings, devices=rules)
    worker(world)
    world.slurm.nodes["w0"].gres = "gpu:2"
    item = bounded()
    item["metadata"]["annotations"] = {f"{bridge.WISHES}exclusive": "true"}
    item["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    world.kube.put(PODS, item)
    async with world.bridge():
        job = await world.job()
        world.slurm.job_run(job.job_id, {"w0": 1}, {"w0": granted})
        if released:
            await world.until("the release", world.released)
        else:
            words = f"job {job.job_id} has 1 of 2 gpu of node bare"
            await world.until("the reason", lambda: words in world.condition().get("message", ""))
            assert not world.released()


async def test_the_kubernetes_node_of_a_worker_gets_no_external_node(world: World) -> None:
    worker(world)
    world.kube.put(NODES, node("bare"))
    async with world.bridge():
        await world.until("the refusal", lambda: "Refused" in world.reasons())
        await world.until("the other record", lambda: "k1" in world.slurm.nodes)
        await passes(world)
    assert "bare" not in world.slurm.nodes


async def test_nothing_is_written_while_slurm_is_unknown(world: World) -> None:
    worker(world)
    world.kube.put(PODS, bounded())
    async with world.bridge():
        job = await bound(world)
        world.slurm.job_end(job.job_id, completing=True)
        world.slurm.fail(Fault.NO_SLURMCTLD)
        world.kube.remove(PODS, "team", "p")
        await passes(world)
        assert not gone(world)
        world.slurm.heal()
        await world.until("the word that the pod is gone", lambda: gone(world) == str(job.job_id))
