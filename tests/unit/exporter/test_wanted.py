"""The wanted replicas of NodeSets, from the records of one collection."""

from dataclasses import replace

import pytest

from sidecars.autoscaling.misfits import ENOUGH
from sidecars.autoscaling.records import Shape
from sidecars.contract import reasons
from sidecars.exporter import families
from sidecars.exporter.declared import Declared
from sidecars.exporter.samples import Samples
from sidecars.exporter.wanted import Cluster, Wanted, read
from sidecars.policy.nodeset.drain import drain_reason
from sidecars.simulate import ModelCarrier, SlurmModel
from sidecars.simulate.records import Fault
from sidecars.slurm.errors import ServerFault
from sidecars.slurm.records import Node, Partition, QueuedJobs
from tests.unit.autoscaling.builders import NOW, job
from tests.unit.exporter.exposition import parsed
from tests.unit.policy.nodeset.builders import worker

METRICS = [families.WANTED_REPLICAS, families.NOT_COUNTED]
SHAPE = Shape(1, 4, 2, 8000, features=frozenset({"cpu"}))
CPU = Declared("cpu", max=5, feature="cpu", shape=SHAPE)
PARTITIONS = (Partition("all", node_sets="ALL"),)
NODE = Node(
    "w-0",
    frozenset({"IDLE"}),
    features=("cpu",),
    partitions=("all",),
    cpus=8,
    sockets=1,
    cores=4,
    threads=2,
    real_memory=8000,
    last_busy=int(NOW) - 900,
)


def decided(wanted: Wanted, cluster: Cluster) -> dict[str, dict[tuple[str, ...], float]]:
    samples = Samples(METRICS)
    wanted.decide(cluster, samples, NOW)
    return parsed(b"".join(samples.blocks().values()))


def cluster(*nodes: Node, jobs: int = 0, tasks: int = 8) -> Cluster:
    queue = QueuedJobs(tuple(job(number, tasks=tasks) for number in range(1, jobs + 1)), 0)
    return Cluster(queue, nodes, PARTITIONS, ())


def test_an_empty_nodeset_is_wanted_as_large_as_the_queue_needs_within_its_bounds() -> None:
    wanted = Wanted([CPU])
    for jobs, size in ((0, 0), (3, 3), (9, 5)):
        decided(wanted, cluster(jobs=jobs))
        assert wanted.replicas == {"cpu": size}
    low = Wanted([replace(CPU, min=2)])
    decided(low, cluster())
    assert low.replicas == {"cpu": 2}


def test_cores_for_the_system_are_none_for_jobs() -> None:
    wanted = Wanted([CPU])
    limited = replace(NODE, specialized_cores=3, states=frozenset({"ALLOCATED"}), alloc_cpus=2)
    decided(wanted, cluster(limited, jobs=3, tasks=2))
    assert wanted.replicas == {"cpu": 4}


def test_a_job_that_slurm_does_not_start_on_free_nodes_is_wanted_no_more() -> None:
    wanted = Wanted([CPU])
    for seconds, size in ((0, 2), (60, 2), (130, 2), (190, 0)):
        samples = Samples(METRICS)
        wanted.decide(cluster(NODE, jobs=2), samples, NOW + seconds)
        assert wanted.replicas == {"cpu": size}
    found = parsed(b"".join(samples.blocks().values()))
    assert found["slurm_autoscaling_jobs_not_counted"] == {("NotStarted",): 2.0}


def test_nodes_that_came_for_a_job_and_can_not_run_it_are_followed_by_no_more() -> None:
    wanted = Wanted([replace(CPU, max=9)])
    busy = replace(NODE, states=frozenset({"ALLOCATED"}), alloc_cpus=8, alloc_memory=8000)
    queue = QueuedJobs((job(1, memory_per_node=7500),), 0)
    nodes, sizes = [busy], []
    for minute in range(12):
        now = NOW + 60 * minute
        samples = Samples(METRICS)
        wanted.decide(Cluster(queue, tuple(nodes), PARTITIONS, ()), samples, now)
        sizes.append(wanted.replicas["cpu"])
        new = replace(NODE, real_memory=7000, last_busy=int(now), slurmd_start_time=int(now))
        nodes += [replace(new, name=f"w-{it}") for it in range(len(nodes), wanted.replicas["cpu"])]
    found = parsed(b"".join(samples.blocks().values()))
    assert found["slurm_autoscaling_jobs_not_counted"] == {("Misfit",): 1.0}
    assert max(sizes) <= 1 + ENOUGH


def test_nodes_in_use_stay_and_idle_ones_are_no_longer_wanted() -> None:
    wanted = Wanted([CPU])
    busy = replace(NODE, name="w-1", states=frozenset({"ALLOCATED"}), alloc_cpus=8)
    found = decided(wanted, cluster(NODE, busy))
    assert found == {"slurm_nodeset_wanted_replicas": {("cpu",): 1.0}}
    decided(wanted, cluster(NODE, busy, jobs=2))
    assert wanted.replicas == {"cpu": 3}


@pytest.mark.parametrize(
    "reason", [drain_reason(worker(0), "slurm", "scale-in"), reasons.POD_LEAVING]
)
def test_a_node_without_work_whose_pod_is_to_be_deleted_is_no_longer_wanted(
    reason: str | None,
) -> None:
    wanted = Wanted([CPU])
    leaving = replace(NODE, states=frozenset({"IDLE", "DRAIN"}), reason=reason or "")
    working = replace(
        NODE, name="w-1", states=frozenset({"MIXED", "DRAIN"}), alloc_cpus=1, reason=reason or ""
    )
    cordoned = replace(
        leaving, name="w-2", reason=reasons.of_operator("Pod (slurm/w-2) was cordoned")
    )
    for nodes, size in (
        ((leaving,), 0),
        ((leaving, working), 1),
        ((leaving, working, cordoned), 2),
    ):
        decided(wanted, cluster(*nodes))
        assert wanted.replicas == {"cpu": size}
    decided(wanted, cluster(leaving, jobs=1))
    assert wanted.replicas == {"cpu": 1}


def test_a_nodeset_whose_nodes_are_unknown_has_no_number_until_one_has_registered() -> None:
    wanted = Wanted([replace(CPU, shape=None)])
    found = decided(wanted, cluster(jobs=2))
    assert wanted.replicas == {}
    assert found == {"slurm_autoscaling_jobs_not_counted": {("ShapeUnknown",): 2.0}}
    decided(wanted, cluster(NODE, jobs=2))
    decided(wanted, cluster(jobs=2))
    assert wanted.replicas == {"cpu": 2}


def test_more_nodes_than_the_maximum_are_not_wanted() -> None:
    wanted = Wanted([replace(CPU, max=1)])
    nodes = [
        replace(NODE, name=f"w-{number}", states=frozenset({"ALLOCATED"})) for number in range(3)
    ]
    decided(wanted, cluster(*nodes))
    assert wanted.replicas == {"cpu": 1}


def test_a_job_for_two_nodes_gets_a_second_one_although_slurm_reports_a_partition_limit() -> None:
    wide = job(1, reason="PartitionNodeLimit", min_nodes=2, max_nodes=2, tasks=2)
    wanted = Wanted([CPU])
    for partition, size in (
        (Partition("all", node_sets="ALL"), 2),
        (Partition("all", node_sets="ALL", max_nodes=1), 0),
    ):
        decided(wanted, Cluster(QueuedJobs((wide,), 0), (NODE,), (partition,), ()))
        assert wanted.replicas == {"cpu": size}


def test_memory_counts_only_where_slurm_allocates_it() -> None:
    wanted = Wanted([CPU])
    jobs = QueuedJobs(
        (job(1, tasks=2, memory_per_node=7000), job(2, tasks=2, memory_per_node=7000)), 0
    )
    for words, size in (
        ((), 2),
        (("CR_CORE_MEMORY",), 2),
        (("CR_CORE",), 1),
        (("CR_Core_Memory", "CR_LLN"), 2),
    ):
        decided(wanted, Cluster(jobs, (), PARTITIONS, (), words))
        assert wanted.replicas == {"cpu": size}, words


async def test_what_slurm_allocates_is_read_with_the_queue_where_it_reports_it() -> None:
    for release, words in (((26, 5, 5), ("CR_CORE",)), ((25, 11, 7), ())):
        model = SlurmModel(lambda: NOW)
        model.release = release
        model.select_type_parameters = ("CR_CORE",)
        found = await read(ModelCarrier(model), None)
        assert found.select_type_parameters == words


async def test_a_fault_of_slurm_is_not_taken_for_its_default() -> None:
    model = SlurmModel(lambda: NOW)
    model.fail(Fault.SERVER_ERROR, path="conf")
    with pytest.raises(ServerFault):
        await read(ModelCarrier(model), None)
