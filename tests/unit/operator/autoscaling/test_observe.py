"""What a pass looks at: `sidecars.operator.autoscaling.observe`."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from sidecars.autoscaling.records import Nodes, Settings
from sidecars.contract import autoscaling
from sidecars.contract.autoscaling import Applied
from sidecars.contract.extra import PodFacts, encode
from sidecars.operator.autoscaling import observe
from sidecars.operator.autoscaling.memory import Memory
from sidecars.operator.autoscaling.observe import Seen
from sidecars.operator.runtime.clusters import Cluster
from sidecars.policy.conditions import timestamp
from sidecars.simulate import Fault
from sidecars.simulate.records import SimLicense
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
        return observe.seen(
            self.parts.runtime, self.memory, manifest, read(NodeSet, manifest), nodes
        )

    def nodes(self, cluster: Cluster, *seen: Seen) -> Nodes | None:
        return observe.nodes(
            self.parts.runtime, CONTROLLER, cluster, self.memory, *observe.by_node(seen)
        )


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


async def test_licenses_are_read_while_a_pending_job_requests_one() -> None:
    scene = Scene()
    cluster = await scene.connect()
    scene.model.licenses = [SimLicense("matlab", 5, used=2)]

    async def free() -> Mapping[str, int]:
        scene.pass_time(5)
        found = await observe.jobs(scene.parts.runtime, cluster, scene.memory, Settings())
        assert found is not None
        return found.licenses

    assert await free() == {}
    scene.model.jobs[scene.model.job_submit()].licenses = "matlab:1"
    scene.memory.changed = False
    assert await free() == {"matlab": 3}
    assert scene.memory.changed
    scene.memory.changed = False
    scene.model.fail(Fault.NO_SLURMCTLD, path="licenses")
    assert await free() == {"matlab": 3}
    assert not scene.memory.changed


async def test_a_started_pod_whose_node_is_in_slurm_is_registered_and_shows_what_nodes_offer() -> (
    None
):
    scene = Scene()
    scene.model.node_register("slinky-0", cpus=8)
    scene.model.node_register("slinky-1")
    await scene.connect()
    scene.parts.pod("slinky-0", containerStatuses=RUNS, phase="Running")
    scene.parts.pod(
        "slinky-1",
        phase="Pending",
        containerStatuses=[{"name": "slurmd", "state": {"waiting": {}}}],
    )
    found = scene.seen(autoscaling={"max": 5})
    assert found.registered == {"slinky-0"}
    assert found.scaled.shape is not None
    assert found.scaled.shape.all_cores == 8
    assert found.node.startswith("Sockets=1 CoresPerSocket=8")
    record = {"annotations": {names.AUTOSCALING: autoscaling.encode(Applied(1, node="CPUs=6"))}}
    remembered = Scene().seen(record, autoscaling={"max": 5})
    assert remembered.scaled.shape is not None
    assert remembered.scaled.shape.all_cores == 6


async def test_a_pods_node_is_registered_without_a_kubelets_report_and_a_former_pods_not() -> None:
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


async def test_what_a_worker_has_registered_counts_more_than_what_is_declared() -> None:
    scene = Scene()
    scene.model.node_register("slinky-0", cpus=8)
    await scene.connect()
    scene.parts.pod("slinky-0", containerStatuses=RUNS, phase="Running")

    def cores(declared: str, node: str = "", of: str = "") -> int:
        record = {
            "annotations": {
                names.AUTOSCALING: autoscaling.encode(Applied(0, node=node, declared=of))
            }
        }
        shape = Scene().seen(record, autoscaling={"max": 5, "node": declared}).scaled.shape
        return shape.all_cores if shape is not None else 0

    found = scene.seen(autoscaling={"max": 5, "node": "CPUs=16"})
    assert found.scaled.shape is not None
    assert found.scaled.shape.all_cores == 8
    assert "cores 8 instead of 16" in found.differs
    # It is remembered as long as the same is declared.
    assert cores("CPUs=16", found.node, found.declared) == 8
    assert cores("CPUs=32", found.node, found.declared) == 32
    assert cores("CPUs=x", found.node, found.declared) == 8
    assert cores("CPUs=16") == 16


async def test_a_terminating_node_takes_no_job_and_a_reserved_or_just_resumed_one_stays() -> None:
    scene = Scene()
    for number in range(4):
        scene.model.node_register(f"slinky-{number}")
        scene.parts.pod(f"slinky-{number}", containerStatuses=RUNS, phase="Running")
    now = int(scene.connection.now)
    scene.model.reserve("later", "slinky-1", start=now + 3600, minutes=10)
    scene.model.update_node("slinky-2", "DRAIN", "test")
    cluster = await scene.connect()
    record = {"annotations": {names.AUTOSCALING: autoscaling.encode(Applied(3, ("slinky-0",)))}}
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
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "message": "0/3 nodes",
                        "reason": "X",
                    }
                ]
            },
            "0/3 nodes",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "slurmd", "state": {"waiting": {"reason": "InvalidImageName"}}}
                ]
            },
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
        (
            {
                "containerStatuses": [
                    {"name": "slurmd", "state": {"waiting": {"reason": "PodInitializing"}}}
                ]
            },
            "",
        ),
    ],
    ids=["not scheduled", "no image", "no image of an init container", "initializing"],
)
async def test_a_pod_that_cannot_start_reports_why(status: dict[str, Any], why: str) -> None:
    scene = Scene()
    scene.parts.pod(
        "slinky-0", phase="Pending", meta={"creationTimestamp": timestamp(EPOCH)}, **status
    )
    stuck = scene.seen().pods.staying["slinky-0"]
    if "PodInitializing" not in str(status):
        assert stuck.stuck_since == EPOCH
    else:
        assert stuck.stuck_since is None
    assert stuck.why == why


def scheduled(*conditions: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(EPOCH)},
        *conditions,
    ]


NETWORK = {"type": "PodReadyToStartContainers", "status": "False"}
CREATING = [{"name": "slurmd", "state": {"waiting": {"reason": "ContainerCreating"}}}]
INITIALIZING = [{"name": "slurmd", "state": {"waiting": {"reason": "PodInitializing"}}}]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running", "containerStatuses": RUNS}, "is not in Slurm, see its log"),
        ({"conditions": scheduled()}, "the kubelet has not reported its containers"),
        (
            {"conditions": scheduled(NETWORK), "containerStatuses": CREATING},
            "its volumes or its network are not ready, see the pod's events",
        ),
        (
            {
                "conditions": scheduled(NETWORK | {"status": "True"}),
                "containerStatuses": INITIALIZING,
                "initContainerStatuses": [
                    {"name": "x", "state": {"running": {"startedAt": timestamp(EPOCH)}}}
                ],
            },
            "an init container has not ended, see its log",
        ),
    ],
    ids=["runs", "no kubelet", "no network", "init container"],
)
async def test_a_pod_that_does_not_register_in_time_has_failed(
    status: dict[str, Any], why: str
) -> None:
    scene = Scene()
    await scene.connect()
    scene.parts.pod("slinky-0", **({"phase": "Pending"} | status))
    scene.parts.now = EPOCH + 900
    assert scene.seen().pods.stuck == []
    scene.pass_time(1)
    [stuck] = scene.seen().pods.stuck
    assert (stuck.failed, stuck.stuck_since) == (True, EPOCH)
    assert stuck.why.endswith(why)
    assert scene.seen().scaled.closed_until == EPOCH + 901 + 300


@pytest.mark.parametrize("own", [CREATING, INITIALIZING], ids=["slurmd", "init container"])
async def test_a_pod_whose_image_is_being_pulled_is_waited_for(own: list[dict[str, Any]]) -> None:
    scene = Scene()
    await scene.connect()
    init = [{"name": "x", "state": {"waiting": {"reason": "PodInitializing"}}}]
    scene.parts.pod(
        "slinky-0",
        phase="Pending",
        conditions=scheduled(NETWORK | {"status": "True"}),
        containerStatuses=own,
        initContainerStatuses=init if own is INITIALIZING else [],
    )
    scene.parts.now = EPOCH + 9999
    assert scene.seen().pods.stuck == []


async def test_a_pod_whose_node_was_in_slurm_has_its_time_again_when_it_is_not() -> None:
    scene = Scene()
    scene.model.node_register("slinky-0")
    await scene.connect()
    scene.parts.pod("slinky-0", containerStatuses=RUNS, phase="Running")
    scene.parts.now = EPOCH + 5000
    assert scene.seen().pods.stuck == []
    manifest = nodeset(scene.parts)

    def without() -> list[float | None]:
        gone = observe.seen(
            scene.parts.runtime, scene.memory, manifest, read(NodeSet, manifest), {}
        )
        return [it.stuck_since for it in gone.pods.stuck]

    assert without() == []
    scene.parts.now += 901
    assert without() == [EPOCH + 5000]


def test_pods_with_the_hosts_network_that_kubernetes_has_not_scheduled_are_counted_each() -> None:
    scene = Scene()
    for name in ("slinky-0", "slinky-1"):
        pod = scene.parts.pod(name, phase="Pending")
        spec = msgspec.structs.replace(pod.spec, host_network=True, node_name="")
        scene.parts.runtime.caches.pods.store.put(msgspec.structs.replace(pod, spec=spec))
    assert scene.seen().pods.staying.keys() == {"slinky-0", "slinky-1"}


async def test_autoscaling_resumes_after_a_person_set_the_number_and_not_after_a_program() -> None:
    def meta(manager: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
        entry = {
            "manager": manager,
            "subresource": "scale",
            "time": timestamp(EPOCH),
            "fieldsV1": fields,
        }
        record = autoscaling.encode(Applied(2))
        return {"managedFields": [entry], "annotations": {names.AUTOSCALING: record}}

    scene = Scene()
    blocked = scene.seen(meta("kubectl"), replicas=4)
    assert blocked.owner is not None
    assert blocked.until == EPOCH + 300
    assert (blocked.scaled.min, blocked.scaled.max) == (4, 4)
    program = scene.seen(meta("kube-controller-manager"), replicas=4)
    scene.pass_time(301)
    assert scene.seen(meta("kubectl"), replicas=4).owner is None
    assert scene.seen(meta("kube-controller-manager"), replicas=4).owner == program.owner
    assert program.until is None


async def test_a_number_without_a_time_is_kept_from_when_it_was_first_seen() -> None:
    def meta(replicas: int) -> dict[str, Any]:
        fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
        entry = {"manager": "kubectl", "subresource": "scale", "fieldsV1": fields}
        return {
            "managedFields": [entry],
            "annotations": {names.AUTOSCALING: autoscaling.encode(Applied(replicas))},
        }

    scene = Scene()
    assert scene.seen(meta(2), replicas=4).until == EPOCH + 300
    scene.pass_time(200)
    assert scene.seen(meta(2), replicas=4).until == EPOCH + 300
    assert scene.seen(meta(2), replicas=5).until == EPOCH + 500
    scene.pass_time(300)
    assert scene.seen(meta(2), replicas=5).owner is None
    assert scene.seen(meta(5), replicas=5).owner is None
    assert scene.seen(meta(2), replicas=5).until == EPOCH + 800
