"""What a pass looks at: `sidecars.operator.autoscaling.observe`."""

from typing import Any

import msgspec
import pytest

from sidecars.contract.extra import PodFacts, encode
from sidecars.operator.autoscaling import observe
from sidecars.operator.autoscaling.memory import Memory
from sidecars.operator.autoscaling.observe import Seen
from sidecars.operator.runtime.clusters import Cluster
from sidecars.policy.autoscaling import applied
from sidecars.policy.autoscaling.applied import Applied
from sidecars.policy.autoscaling.records import Nodes, Settings
from sidecars.policy.conditions import timestamp
from sidecars.simulate import Fault
from sidecars.workloads import names
from sidecars.workloads.resources import NodeSet, read
from tests.support.builders import controller
from tests.support.operator_parts import CONTROLLER, EPOCH, Parts, SlurmConnection
from tests.unit.operator.autoscaling.builders import nodeset

pytestmark = pytest.mark.looptime
RUNS = [{"name": "slurmd", "state": {"running": {"startedAt": timestamp(EPOCH)}}}]


class Scene:
    """A cluster `slurm` with NodeSet `slinky`."""

    def __init__(self) -> None:
        self.connection = SlurmConnection()
        self.parts = Parts(lambda url, tokens: self.connection)
        self.memory = Memory()
        self.model = self.connection.model

    async def connect(self) -> Cluster:
        cluster = await self.parts.connect()
        await observe.facts(cluster, self.memory)
        return cluster

    def pass_time(self, seconds: float) -> None:
        self.parts.now += seconds
        self.connection.now += seconds

    def seen(self, meta: dict[str, Any] | None = None, **spec: Any) -> Seen:
        manifest = nodeset(self.parts, meta=meta, **spec)
        cluster = self.parts.runtime.clusters.get(CONTROLLER)
        nodes = cluster.poller.nodes if cluster is not None else {}
        return observe.seen(self.parts.runtime, self.memory, manifest, read(NodeSet, manifest), nodes)

    def nodes(self, cluster: Cluster, *seen: Seen) -> Nodes | None:
        return observe.nodes(self.parts.runtime, CONTROLLER, cluster, self.memory, *observe.by_node(seen))


def test_what_slurm_allocates_is_read_from_the_configuration() -> None:
    def found(line: str) -> Settings:
        return observe.settings(controller(extraConf=line), Memory())

    assert (found("").memory, found("").budget) == (True, None)
    assert not found("SelectTypeParameters=CR_Core").memory
    assert found("SelectTypeParameters=CR_CPU_Memory,CR_LLN").memory
    assert found("SelectTypeParameters=CR_CPU_Memory,CR_LLN").memory is True
    assert observe.settings(controller(autoscaling={"budget": 3}), Memory()).budget == 3.0


async def test_the_queue_is_unknown_when_it_cannot_be_read_and_old_while_it_is_being_read() -> None:
    scene = Scene()
    cluster = await scene.connect()
    scene.model.job_submit()
    scene.pass_time(5)
    found = await observe.jobs(scene.parts.runtime, cluster, scene.memory, Settings())
    assert found is not None
    assert found.at == scene.parts.now
    scene.pass_time(5)
    scene.model.fail(Fault.NO_SLURMCTLD, path="jobs")
    assert await observe.jobs(scene.parts.runtime, cluster, scene.memory, Settings()) is None
    scene.model.heal()
    scene.pass_time(5)
    scene.memory.changed = False
    again = await observe.jobs(scene.parts.runtime, cluster, scene.memory, Settings())
    assert again is not None
    assert again.at == scene.parts.now
    assert not scene.memory.changed


async def test_a_started_pod_whose_node_is_in_slurm_is_registered_and_shows_what_nodes_offer() -> None:
    scene = Scene()
    scene.model.node_register("slinky-0", cpus=8)
    scene.model.node_register("slinky-1")
    await scene.connect()
    scene.parts.pod("slinky-0", containerStatuses=RUNS, phase="Running")
    scene.parts.pod("slinky-1", phase="Pending", containerStatuses=[{"name": "slurmd", "state": {"waiting": {}}}])
    found = scene.seen(autoscaling={"max": 5})
    assert found.registered == {"slinky-0"}
    assert found.scaled.shape is not None
    assert found.scaled.shape.all_cores == 8
    assert found.node.startswith("Sockets=1 CoresPerSocket=8")
    record = {"annotations": {names.AUTOSCALING: applied.text(Applied(1, node="CPUs=6"))}}
    remembered = Scene().seen(record, autoscaling={"max": 5})
    assert remembered.scaled.shape is not None
    assert remembered.scaled.shape.all_cores == 6


async def test_a_node_of_a_pod_that_the_kubelet_has_not_reported_is_registered_and_a_former_pods_is_not() -> None:
    scene = Scene()
    for number, uid in enumerate(("slinky-0", "of-the-former-pod")):
        scene.model.node_register(f"slinky-{number}", extra=encode(PodFacts(uid)))
        waiting = [{"name": "slurmd", "state": {"waiting": {}}}]
        scene.parts.pod(f"slinky-{number}", phase="Pending", containerStatuses=waiting)
    cluster = await scene.connect()
    seen = scene.seen(replicas=2)
    assert seen.registered == {"slinky-0"}
    found = scene.nodes(cluster, seen)
    assert found is not None
    # The pod of slinky-1 is still to come: a job can't have both.
    assert [(it.name, it.nodeset, it.usable) for it in found.nodes] == [
        ("slinky-0", "slinky", True),
        ("slinky-1", "", False),
    ]


async def test_a_node_that_cannot_be_read_is_a_problem_and_what_is_registered_counts() -> None:
    scene = Scene()
    scene.model.node_register("slinky-0", cpus=8)
    await scene.connect()
    scene.parts.pod("slinky-0", containerStatuses=RUNS, phase="Running")
    found = scene.seen(autoscaling={"max": 5, "node": "CPUs=x"})
    assert "spec.autoscaling.node: CPUs=x" in found.problem
    assert found.scaled.shape is not None


async def test_a_node_that_leaves_takes_no_job_and_a_reserved_one_or_one_that_was_just_resumed_stays() -> None:
    scene = Scene()
    for number in range(4):
        scene.model.node_register(f"slinky-{number}")
        scene.parts.pod(f"slinky-{number}", containerStatuses=RUNS, phase="Running")
    now = int(scene.connection.now)
    scene.model.reserve("later", "slinky-1", start=now + 3600, minutes=10)
    scene.model.update_node("slinky-2", "DRAIN", "test")
    cluster = await scene.connect()
    record = {"annotations": {names.AUTOSCALING: applied.text(Applied(3, ("slinky-0",)))}}
    seen = scene.seen(record, replicas=3)
    scene.pass_time(30)
    await cluster.poller.poll()
    found = scene.nodes(cluster, seen)
    assert found is not None
    idle = {it.name: it.idle_since for it in found.nodes}
    assert [it.name for it in found.nodes if not it.usable] == ["slinky-0", "slinky-2"]
    assert [name for name, since in idle.items() if since is not None] == ["slinky-3"]
    scene.pass_time(60)
    scene.model.update_node("slinky-2", "RESUME")
    scene.model.node_responds("slinky-2")
    await cluster.poller.poll()
    scene.memory.facts_at = cluster.poller.now()
    resumed = scene.nodes(cluster, seen)
    assert resumed is not None
    since = {it.name: it.idle_since for it in resumed.nodes}
    assert since["slinky-2"] == EPOCH + 30
    assert since["slinky-3"] == now


async def test_nodes_are_unknown_when_polls_fail_and_when_reservations_were_not_read() -> None:
    scene = Scene()
    scene.model.node_register("slinky-0")
    cluster = await scene.connect()
    assert scene.nodes(cluster) is not None
    scene.memory.facts_at = cluster.poller.now() - 61
    assert scene.nodes(cluster) is None
    scene.memory.facts_at = cluster.poller.now()
    scene.model.fail(Fault.NO_SLURMCTLD)
    for _ in range(3):
        await cluster.poller.poll()
    assert scene.nodes(cluster) is None


async def test_an_empty_slurm_is_known_at_once_unless_a_worker_has_started() -> None:
    scene = Scene()
    cluster = await scene.connect()
    assert not cluster.poller.known
    assert scene.nodes(cluster) is not None
    scene.parts.pod("slinky-0", containerStatuses=RUNS, phase="Running")
    assert scene.nodes(cluster) is None


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes", "reason": "X"}]},
            "0/3 nodes",
        ),
        (
            {"containerStatuses": [{"name": "slurmd", "state": {"waiting": {"reason": "InvalidImageName"}}}]},
            "InvalidImageName",
        ),
        (
            {
                "initContainerStatuses": [
                    {"name": "x", "image": "a/b", "state": {"waiting": {"reason": "ErrImagePull"}}}
                ]
            },
            "the image a/b can't be pulled, see the pod's events",
        ),
        ({"containerStatuses": [{"name": "slurmd", "state": {"waiting": {"reason": "PodInitializing"}}}]}, ""),
    ],
    ids=["not scheduled", "no image", "no image of an init container", "initializing"],
)
async def test_a_pod_that_cannot_start_says_why(status: dict[str, Any], why: str) -> None:
    scene = Scene()
    scene.parts.pod("slinky-0", phase="Pending", meta={"creationTimestamp": timestamp(EPOCH)}, **status)
    stuck = scene.seen().pods.staying["slinky-0"]
    if "PodInitializing" not in str(status):
        assert stuck.stuck_since == EPOCH
    else:
        assert stuck.stuck_since is None
    assert stuck.why == why


def test_pods_with_the_hosts_network_that_kubernetes_has_not_scheduled_are_counted_each() -> None:
    scene = Scene()
    for name in ("slinky-0", "slinky-1"):
        pod = scene.parts.pod(name, phase="Pending")
        spec = msgspec.structs.replace(pod.spec, host_network=True, node_name="")
        scene.parts.runtime.caches.pods.store.put(msgspec.structs.replace(pod, spec=spec))
    assert scene.seen().pods.staying.keys() == {"slinky-0", "slinky-1"}


async def test_after_a_person_has_set_the_number_autoscaling_goes_on_later_and_after_a_program_never() -> None:
    def meta(manager: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
        entry = {"manager": manager, "subresource": "scale", "time": timestamp(EPOCH), "fieldsV1": fields}
        record = applied.text(Applied(2))
        return {"managedFields": [entry], "annotations": {names.AUTOSCALING: record}}

    scene = Scene()
    held = scene.seen(meta("kubectl"), replicas=4)
    assert held.owner is not None
    assert held.until == EPOCH + 300
    assert (held.scaled.min, held.scaled.max) == (4, 4)
    program = scene.seen(meta("kube-controller-manager"), replicas=4)
    scene.pass_time(301)
    assert scene.seen(meta("kubectl"), replicas=4).owner is None
    assert scene.seen(meta("kube-controller-manager"), replicas=4).owner == program.owner
    assert program.until is None


async def test_a_number_without_a_time_is_kept_from_when_it_was_first_seen() -> None:
    def meta(replicas: int) -> dict[str, Any]:
        fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
        entry = {"manager": "kubectl", "subresource": "scale", "fieldsV1": fields}
        return {"managedFields": [entry], "annotations": {names.AUTOSCALING: applied.text(Applied(replicas))}}

    scene = Scene()
    assert scene.seen(meta(2), replicas=4).until == EPOCH + 300
    scene.pass_time(200)
    assert scene.seen(meta(2), replicas=4).until == EPOCH + 300
    assert scene.seen(meta(2), replicas=5).until == EPOCH + 500
    scene.pass_time(300)
    assert scene.seen(meta(2), replicas=5).owner is None
    assert scene.seen(meta(5), replicas=5).owner is None
    assert scene.seen(meta(2), replicas=5).until == EPOCH + 800
