"""When the jobs of a Slurm cluster end."""

import pytest

from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.deadlines import DEADLINES_FOR, refresh_deadlines
from sidecars.simulate import Fault
from sidecars.slurm.pending import Answer
from sidecars.slurm.records import Job, Jobs
from tests.support.operator_parts import CONTROLLER, EPOCH, NAMESPACE, Parts, SlurmConnection

pytestmark = pytest.mark.looptime


class Scene:
    """A Slurm with a job on each of two nodes, and the two pods."""

    def __init__(self) -> None:
        self.slurm = SlurmConnection()
        self.parts = Parts(connect=lambda *_: self.slurm)
        for name in ("slinky-0", "slinky-1"):
            self.slurm.model.node_register(name)
            self.slurm.model.job_start(name, time_limit=10)
            self.parts.pod(name)

    @property
    def reads(self) -> int:
        """How often the jobs were read."""
        return sum(sent.startswith("GET jobs/") for sent in self.slurm.sent)

    def pass_seconds(self, seconds: float) -> None:
        self.parts.now += seconds
        self.slurm.now += seconds

    async def refresh(self, cluster: Cluster, *busy: str) -> bool:
        return await refresh_deadlines(self.parts.runtime, CONTROLLER, cluster, busy)


async def test_jobs_are_read_again_after_a_while_or_for_a_node_without_a_known_deadline() -> None:
    scene = Scene()
    cluster = await scene.parts.connect()
    assert await scene.refresh(cluster, "slinky-0")
    assert cluster.deadlines == {"slinky-0": EPOCH + 600, "slinky-1": EPOCH + 600}
    scene.pass_seconds(DEADLINES_FOR - 1)
    assert await scene.refresh(cluster, "slinky-0")
    assert scene.reads == 1
    assert await scene.refresh(cluster, "slinky-2")
    assert scene.reads == 2
    scene.pass_seconds(DEADLINES_FOR)
    assert await scene.refresh(cluster)
    assert scene.reads == 3


async def test_the_pods_whose_deadline_has_changed_are_woken_and_no_others() -> None:
    scene = Scene()
    cluster = await scene.parts.connect()
    await scene.refresh(cluster)
    await scene.parts.woken()
    scene.slurm.model.job_start("slinky-1", time_limit=20)
    scene.pass_seconds(DEADLINES_FOR)
    await scene.refresh(cluster)
    assert (await scene.parts.woken(0.0))["pods"] == {(NAMESPACE, "slinky-1")}


async def test_a_slow_read_of_jobs_delays_nothing_and_wakes_everything_once_it_is_done() -> None:
    scene = Scene()
    parts = scene.parts
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    cluster = await parts.connect()
    scene.slurm.model.fail(Fault.SLOW, path="jobs/", seconds=10.0)
    assert not await scene.refresh(cluster)
    assert cluster.deadlines == {}
    assert "nodesets" in await parts.woken(15.0)
    assert await scene.refresh(cluster)
    assert set(cluster.deadlines) == {"slinky-0", "slinky-1"}


@pytest.mark.parametrize("fault", ["no answer", "nodes that are no hostlist"])
async def test_jobs_that_can_not_be_read_leave_the_deadlines_as_they_were(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()
    cluster = await scene.parts.connect()
    await scene.refresh(cluster)
    before = cluster.deadlines
    if fault == "no answer":
        scene.slurm.model.fail(Fault.RESET, path="jobs/")
    else:
        malformed = Job(9, states=frozenset({"RUNNING"}), nodes="slinky-[1-0]")

        async def jobs() -> Answer[Jobs]:
            return Answer(Jobs((malformed,), 1), scene.parts.now, scene.parts.now)

        monkeypatch.setattr(cluster.poller, "jobs", jobs)
    scene.pass_seconds(DEADLINES_FOR)
    assert await scene.refresh(cluster)
    assert cluster.deadlines is before
