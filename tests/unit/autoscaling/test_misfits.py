"""NodeSets whose new nodes don't run the jobs for which they were added: `misfits`."""

from dataclasses import replace

from sidecars.autoscaling.misfits import ENOUGH, RETRY, Misfits
from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Nodes,
    Plan,
    PresentNode,
    ScaledNodeSet,
    Settings,
)
from sidecars.slurm.records import QueuedJob
from tests.unit.autoscaling.builders import NOW, SHAPE, busy, job, node, nodeset, why

SMALL = replace(SHAPE, memory=7000)


class Scene:
    """A NodeSet whose largest node is busy, and whose others have less memory."""

    def __init__(self, *jobs: QueuedJob, most: int = 10) -> None:
        self.misfits, self.queue, self.most = Misfits(), Queue(jobs), most
        self.autoscaling, self.now = Autoscaling(Settings()), NOW
        self.nodes: list[PresentNode] = [busy("cpu-0")]
        self.others: list[ScaledNodeSet] = []
        self.sizes: list[int] = []

    def plan(self) -> Plan:
        """A plan, after which the nodes that it adds register."""
        self.queue.avoid(self.misfits.avoided(self.now))
        size = len(self.nodes)
        found = self.autoscaling.plan(
            [nodeset(max=self.most, replicas=size), *self.others],
            Jobs(self.queue, self.now),
            Nodes(self.nodes, self.now),
            {},
            self.now,
        )
        if self.misfits.observe(found, self.queue, {"cpu": self.most}, self.now):
            return self.plan()
        wanted = found.wanted["cpu"]
        self.nodes = [it for it in self.nodes if it.name not in wanted.removable]
        self.now += 60
        for number in range(wanted.replicas - size):
            name = f"cpu-{self.now:.0f}-{number}"
            here = {"idle_since": self.now, "started_at": self.now}
            self.nodes.append(node(name, shape=SMALL, free_memory=7000, **here))
        self.sizes.append(len(self.nodes))
        return found


def test_a_nodeset_whose_nodes_are_too_small_for_a_job_gets_few_for_it_and_no_saw_tooth() -> None:
    scene = Scene(job(1, memory_per_node=7500))
    for _ in range(30):
        found = scene.plan()
    assert max(scene.sizes) == 1 + ENOUGH
    assert scene.sizes[-1] == 1
    [excluded] = found.excluded
    assert (excluded.reason.value, excluded.detail) == ("Misfit", "NodeSet cpu")


def test_other_requests_still_get_their_nodes() -> None:
    scene = Scene(job(1, memory_per_node=7500))
    for _ in range(10):
        scene.plan()
    scene.queue.update([job(it, tasks=8) for it in range(2, 8)])
    assert [it.jobs for it in scene.plan().promises] == [(2, 3, 4, 5, 6, 7)]


def test_the_next_nodeset_that_fits_is_used() -> None:
    scene = Scene(job(1, memory_per_node=7500))
    scene.others = [nodeset("dear", price=9.0)]
    for _ in range(10):
        found = scene.plan()
    assert (found.wanted["dear"].replicas, why(found)) == (1, {})


def test_a_small_maximum_is_enough_to_see_it() -> None:
    scene = Scene(job(1, memory_per_node=7500), most=2)
    for _ in range(40):
        scene.plan()
    assert (
        sum(after > before for before, after in zip(scene.sizes, scene.sizes[1:], strict=False))
        <= 2
    )
    assert scene.sizes[-1] == 1


def test_it_is_tried_again_after_an_hour_and_forgotten_with_the_last_such_job() -> None:
    scene = Scene(job(1, memory_per_node=7500))
    for _ in range(10):
        scene.plan()
    assert why(scene.plan()) == {"Misfit": 1}
    scene.now += RETRY
    assert why(scene.plan()) == {}
    scene.queue.update([], [1])
    scene.plan()
    assert scene.misfits.avoided(scene.now) == {}


def test_idle_nodes_that_are_older_or_that_a_job_would_use_are_no_misfits() -> None:
    scene = Scene(job(1, tasks=8), job(2, tasks=8), job(3, tasks=8, min_nodes=1))
    scene.nodes += [node(f"old-{it}", shape=SMALL, free_cores=1) for it in range(5)]
    for _ in range(5):
        assert "Misfit" not in why(scene.plan())
