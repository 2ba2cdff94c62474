"""Node records that outlive their NodeSet: `sidecars.operator.controller.leftovers`."""

import pytest

from sidecars.contract.extra import PodFacts, encode
from sidecars.contract.reasons import POD_GONE, RECORD_ORPHANED, kept
from sidecars.operator.controller.leftovers import prune
from sidecars.policy.nodeset.node_records import KEPT_SECONDS
from sidecars.simulate import Fault
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts, SlurmConnection

pytestmark = pytest.mark.looptime


class Scene:
    """A Slurm cluster with records of the former NodeSet `gone`, DOWN with the operator's reason."""

    def __init__(self, *names: str, namespaces: tuple[str, ...] = ()) -> None:
        self.slurm = SlurmConnection()
        self.model = self.slurm.model
        self.parts = Parts(connect=lambda *_: self.slurm, namespaces=namespaces)
        for name in names:
            self.record(name)

    def record(
        self, name: str, reason: str = RECORD_ORPHANED, nodeset: str = "uid-of-gone", pod: str = "pod-x"
    ) -> None:
        self.model.node_register(name, extra=encode(PodFacts(pod, f"slurm-{name}", NAMESPACE, nodeset)))
        self.model.update_node(name, "DOWN", reason)

    async def prune(self) -> None:
        cluster = await self.parts.connect()
        await cluster.poller.poll()
        await prune(self.parts.runtime, CONTROLLER)


async def test_a_record_of_a_former_nodeset_goes_once_no_job_names_it() -> None:
    scene = Scene("w-0", "w-1")
    scene.record("w-2", kept(POD_GONE, "job 1"))
    job = scene.model.job_submit(required=["w-1"])
    await scene.prune()
    assert set(scene.model.nodes) == {"w-1"}
    assert CONTROLLER in (await scene.parts.woken(KEPT_SECONDS + 1))["controllers"]
    scene.parts.now = scene.slurm.now = scene.slurm.now + KEPT_SECONDS
    scene.model.job_end(job, state="CANCELLED")
    await scene.prune()
    assert set(scene.model.nodes) == set()


async def test_a_record_that_a_reservation_names_stays() -> None:
    scene = Scene("w-0")
    scene.model.reserve("course", "w-0", start=int(scene.slurm.now) + 3600, minutes=60)
    await scene.prune()
    assert set(scene.model.nodes) == {"w-0"}


async def test_records_of_a_nodeset_or_a_pod_that_exists_and_those_not_down_for_that_reason_stay() -> None:
    scene = Scene()
    scene.record("of-nodeset", nodeset="uid-of-slinky")
    scene.record("of-nobody", nodeset="")
    scene.record("administrators", "bad disk")
    scene.record("capacity", "slurm-operator: no capacity: none")
    scene.record("up")
    scene.model.update_node("up", "RESUME")
    scene.record("of-pod", pod="slurm-worker-0")
    scene.parts.pod("slurm-worker-0")
    scene.parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    before = set(scene.model.nodes)
    await scene.prune()
    assert set(scene.model.nodes) == before


async def test_records_of_a_namespace_that_is_not_watched_stay() -> None:
    scene = Scene("w-0", namespaces=("other",))
    await scene.prune()
    assert set(scene.model.nodes) == {"w-0"}


async def test_nothing_is_deleted_while_the_jobs_can_not_be_read() -> None:
    scene = Scene("w-0")
    scene.model.fail(Fault.SERVER_ERROR, path="jobs/")
    await scene.prune()
    assert set(scene.model.nodes) == {"w-0"}
    assert CONTROLLER in (await scene.parts.woken(KEPT_SECONDS + 1))["controllers"]


async def test_a_node_that_has_a_worker_again_since_it_was_listed_stays() -> None:
    scene = Scene("w-0")
    cluster = await scene.parts.connect()
    await cluster.poller.poll()
    scene.model.node_register("w-0", extra=encode(PodFacts("new", "slurm-w-0", NAMESPACE, "uid-of-gone")))
    await prune(scene.parts.runtime, CONTROLLER)
    assert set(scene.model.nodes) == {"w-0"}
