"""How many nodes the pending jobs could use, and for which jobs no node is added."""

import random
from dataclasses import replace
from typing import Any

import pytest

from sidecars.autoscaling.needs import rounded
from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.present import present, reserved
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import Behavior, Nodes, Settings, Shape
from sidecars.slurm.gres import Gres
from sidecars.slurm.records import Node, QueuedJob, Reservation
from tests.unit.autoscaling.builders import (
    GPUS,
    NOW,
    SHAPE,
    busy,
    job,
    node,
    nodeset,
    plan,
    replicas,
    why,
)


@pytest.mark.parametrize(
    ("request_", "nodes"),
    [
        ({}, 1),
        ({"tasks": 8}, 1),
        ({"tasks": 9, "max_nodes": 9, "max_nodes_implied": True}, 2),
        ({"tasks": 3, "min_nodes": 3, "max_nodes": 3}, 3),
        ({"tasks": 4, "min_nodes": 2, "max_nodes": 2, "tasks_per_node": 2}, 2),
        ({"tasks": 2, "cpus_per_task": 8, "max_nodes": 2, "max_nodes_implied": True}, 2),
        ({"tasks": 8, "tasks_per_core": 1, "max_nodes": 8, "max_nodes_implied": True}, 2),
        ({"tasks": 8, "threads_per_core": 1, "max_nodes": 8, "max_nodes_implied": True}, 2),
        ({"tasks": 4, "memory_per_cpu": 4000, "max_nodes": 4, "max_nodes_implied": True}, 2),
        ({"shared": frozenset({"none"})}, 1),
        ({"features": "cpu"}, 1),
        ({"features": "gpu|cpu"}, 1),
        ({"features": "[gpu|cpu]"}, 1),
    ],
    ids=str,
)
def test_a_job_gets_as_many_nodes_as_it_needs(request_: dict[str, Any], nodes: int) -> None:
    found = plan(jobs=[job(**request_)])
    assert replicas(found) == {"cpu": nodes}
    assert [(promise.jobs, promise.nodes) for promise in found.promises] == [((1,), {"cpu": nodes})]
    assert why(found) == {}


def test_a_maximum_of_nodes_that_is_the_number_of_tasks_is_slurms_own() -> None:
    nodes = [node(f"cpu-{number}", idle_since=NOW - 900) for number in range(3)]
    for most, used in ((3, 1), (2, 2)):
        found = plan([nodeset(replicas=3)], [job(tasks=3, max_nodes=most)], nodes)
        assert replicas(found) == {"cpu": used}


def test_jobs_that_fit_together_share_a_node() -> None:
    assert replicas(plan(jobs=[job(i, tasks=2) for i in range(1, 5)])) == {"cpu": 1}
    assert replicas(plan(jobs=[job(i, tasks=2) for i in range(1, 6)])) == {"cpu": 2}


def test_memory_limits_how_many_jobs_share_a_node() -> None:
    assert replicas(plan(jobs=[job(i, memory_per_node=3000) for i in range(1, 5)])) == {"cpu": 2}


def test_a_job_without_a_request_for_memory_gets_all_of_a_node_where_slurm_allocates_memory() -> (
    None
):
    jobs = [job(i, memory_per_node=0) for i in range(1, 4)]
    assert replicas(plan(jobs=jobs)) == {"cpu": 3}
    assert replicas(plan(jobs=jobs, settings=Settings(memory=False))) == {"cpu": 1}


def test_an_exclusive_job_shares_its_node_with_none() -> None:
    jobs = [job(1), job(2, shared=frozenset({"none"})), job(3)]
    assert replicas(plan(jobs=jobs)) == {"cpu": 2}


def test_with_exclusive_jobs_unknown_no_node_is_wasted_and_only_sure_starts_are_promised() -> None:
    jobs = [job(1), job(2), job(3, tasks=8)]
    queue = Queue(jobs, exclusive_known=False)
    found = Autoscaling(Settings()).plan([nodeset()], Jobs(queue, NOW), Nodes([], NOW), {}, NOW)
    assert replicas(found) == {"cpu": 2}
    assert [promise.jobs for promise in found.promises] == [(1, 2)]
    assert why(found) == {"ExclusiveUnknown": 1}


def test_a_node_that_an_exclusive_job_could_use_stays_while_it_is_unknown_which_jobs_are() -> None:
    nodes = [node("cpu-0", idle_since=None, free_cores=3), node("cpu-1", idle_since=NOW - 900)]
    for known, size in ((True, 1), (False, 2)):
        jobs = Jobs(Queue([job(1)], exclusive_known=known), NOW)
        found = Autoscaling(Settings()).plan(
            [nodeset(replicas=2)], jobs, Nodes(nodes, NOW), {}, NOW
        )
        assert replicas(found) == {"cpu": size}


def test_gpus_are_counted_by_type_and_the_remaining_ones_are_shared() -> None:
    sets = [nodeset(), nodeset("gpu", shape=GPUS)]
    jobs = [job(i, tres_per_node="gres/gpu:h100:2") for i in range(1, 4)]
    assert replicas(plan(sets, jobs)) == {"cpu": 0, "gpu": 2}
    assert replicas(plan(sets, [job(1, tres_per_node="gres/gpu:4")])) == {"cpu": 0, "gpu": 1}
    tasks = job(1, tasks=8, max_nodes=8, max_nodes_implied=True, tres_per_task="cpu:1,gres/gpu:1")
    assert replicas(plan(sets, [tasks])) == {"cpu": 0, "gpu": 2}
    total = job(1, tasks=2, max_nodes=2, max_nodes_implied=True, tres_per_job="gres/gpu:h100:6")
    assert replicas(plan(sets, [total])) == {"cpu": 0, "gpu": 2}


@pytest.mark.parametrize(
    ("fields", "count", "nodes"),
    [
        ({"tres_per_node": "gres/gpu:1", "cpus_per_tres": "gpu:5"}, 4, 2),
        ({"tres_per_node": "gres/gpu:2", "cpus_per_tres": "gres/gpu:9"}, 1, 0),
        ({"tres_per_node": "gres/gpu:1", "memory_per_tres": "gpu:30000"}, 3, 2),
        ({"tres_per_task": "gres/gpu:1", "cpus_per_tres": "gpu:4", "tasks": 4}, 2, 2),
        ({"tres_per_task": "gres/gpu:1", "memory_per_tres": "gpu:40000", "tasks": 2}, 1, 0),
        ({"tres_per_job": "gres/gpu:2", "memory_per_tres": "gpu:20000"}, 2, 2),
        ({"tres_per_job": "gres/gpu:3", "cpus_per_tres": "gpu:6", "max_nodes": 0}, 1, 2),
        ({"tres_per_job": "gres/gpu:3", "memory_per_tres": "gpu:40000", "max_nodes": 0}, 1, 3),
    ],
    ids=str,
)
def test_cpus_and_memory_that_come_with_each_gpu_count(
    fields: dict[str, Any], count: int, nodes: int
) -> None:
    memory = 0 if "memory_per_tres" in fields else 1000
    jobs = [job(i, memory_per_node=memory, **fields) for i in range(count)]
    found = plan([nodeset("gpu", shape=GPUS)], jobs)
    assert replicas(found) == {"gpu": nodes}
    assert why(found) == ({} if nodes else {"Impossible": count})


def test_the_memory_of_gpus_is_none_where_slurm_allocates_no_memory() -> None:
    wide = job(1, tres_per_node="gres/gpu:4", memory_per_tres="gpu:99000", memory_per_node=0)
    assert replicas(
        plan([nodeset("gpu", shape=GPUS)], [wide], settings=Settings(memory=False))
    ) == {"gpu": 1}


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({"tres_per_job": "gres/gpu:2", "tasks": 2, "max_nodes": 2}, 1),
        ({"tres_per_job": "gres/gpu:4", "tasks": 4, "max_nodes": 4}, 1),
        ({"tres_per_job": "gres/gpu:6", "tasks": 2, "min_nodes": 2, "max_nodes": 2}, 2),
        ({"tres_per_job": "gres/gpu:8", "max_nodes": 0}, 2),
        ({"tres_per_job": "gres/gpu:h100:12", "max_nodes": 0}, 3),
    ],
    ids=str,
)
def test_gpus_of_the_whole_job_are_not_looked_for_on_nodes_without_gpus(
    fields: dict[str, Any], nodes: int
) -> None:
    sets = [nodeset(), nodeset("gpu", shape=GPUS, price=10.0, weight=10)]
    assert replicas(plan(sets, [job(1, **fields)])) == {"cpu": 0, "gpu": nodes}


def test_a_partition_that_is_down_is_no_candidate() -> None:
    sets = [
        nodeset("big", partitions=frozenset({"fast"})),
        nodeset("small", partitions=frozenset({"slow"}), price=9.0),
    ]
    down = Settings(tiers={"fast": 5}, down=frozenset({"fast"}))
    found = plan(sets, [job(partitions=("fast", "slow"))], settings=down)
    assert replicas(found) == {"big": 0, "small": 1}
    [excluded] = plan(sets, [job(partitions=("fast",))], settings=down).excluded
    assert (excluded.reason.value, excluded.detail) == ("Partition", "fast")


def test_a_partition_gives_each_job_its_fewest_nodes_and_no_more_than_its_most() -> None:
    least = Settings(min_nodes={"all": 2})
    free: dict[str, Any] = {"max_nodes": 0, "tasks": 1}
    assert replicas(plan(jobs=[job(**free)], settings=least)) == {"cpu": 2}
    assert replicas(plan(jobs=[job(min_nodes=3, max_nodes=3, tasks=3)], settings=least)) == {
        "cpu": 3
    }
    assert replicas(plan(jobs=[job(max_nodes=1)], settings=least)) == {"cpu": 0}
    most = Settings(max_nodes={"all": 2})
    wide: dict[str, Any] = {"max_nodes_implied": True, "memory_per_node": 100}
    assert replicas(plan(jobs=[job(tasks=16, max_nodes=16, **wide)], settings=most)) == {"cpu": 2}
    assert replicas(plan(jobs=[job(tasks=17, max_nodes=17, **wide)], settings=most)) == {"cpu": 0}
    idle = [node(f"cpu-{number}", idle_since=NOW - 900) for number in range(4)]
    range_ = job(tasks=5, min_nodes=1, max_nodes=4)
    for settings, used in ((most, 2), (Settings(), 4)):
        found = plan([nodeset(replicas=4)], [range_], idle, settings=settings)
        assert replicas(found) == {"cpu": used}
    # Another partition of the job has no such limit.
    sets = [nodeset(partitions=frozenset({"all", "free"}))]
    either = job(tasks=17, max_nodes=17, partitions=("all", "free"), **wide)
    assert replicas(plan(sets, [either], settings=most)) == {"cpu": 3}


def test_a_job_that_wants_the_fewest_nodes_gets_no_more_than_it_needs() -> None:
    nodes = [node(f"cpu-{number}", idle_since=NOW - 900) for number in range(3)]
    for few, used in ((False, 3), (True, 1)):
        range_ = job(tasks=4, min_nodes=1, max_nodes=3, fewest_nodes=few)
        assert replicas(plan([nodeset(replicas=3)], [range_], nodes)) == {"cpu": used}


def test_a_job_that_is_spread_has_a_part_of_as_many_nodes_as_it_has_tasks() -> None:
    nodes = [node(f"cpu-{number}", idle_since=NOW - 900) for number in range(5)]
    tasks: dict[str, Any] = {"tasks": 4, "max_nodes": 4, "max_nodes_implied": True}
    for spread, used in ((False, 1), (True, 4)):
        found = plan([nodeset(replicas=5)], [job(**tasks, most_nodes=spread)], nodes)
        assert replicas(found) == {"cpu": used}


def test_gpus_of_each_socket_are_counted_on_the_sockets_that_the_job_needs() -> None:
    sets = [nodeset("gpu", shape=GPUS)]
    for count, sockets, nodes in ((1, 1, 1), (2, 2, 2)):
        jobs = [
            job(i, tres_per_socket=f"gres/gpu:{count}", sockets_per_node=sockets) for i in (1, 2)
        ]
        assert replicas(plan(sets, jobs)) == {"gpu": nodes}
    few = job(tres_per_socket="gres/gpu:3", sockets_per_node=2)
    assert why(plan(sets, [few])) == {"Impossible": 1}


def test_a_job_on_one_node_has_consecutive_nodes() -> None:
    assert replicas(plan(jobs=[job(contiguous=True)])) == {"cpu": 1}


def test_jobs_of_a_partition_have_no_more_cpus_of_a_node_than_its_maximum() -> None:
    capped = Settings(max_cpus_per_node={"all": 4})
    assert replicas(plan(jobs=[job(i) for i in range(1, 9)], settings=capped)) == {"cpu": 4}
    assert replicas(plan(jobs=[job(tasks=4)], settings=capped)) == {"cpu": 1}
    assert why(plan(jobs=[job(tasks=5)], settings=capped)) == {"Impossible": 1}
    wide = job(tasks=8, max_nodes=8, max_nodes_implied=True)
    assert replicas(plan(jobs=[wide], settings=capped)) == {"cpu": 2}
    both = nodeset(partitions=frozenset({"all", "free"}))
    more = [*(job(i) for i in range(1, 4)), *(job(i, partitions=("free",)) for i in range(4, 7))]
    assert replicas(plan([both], more, settings=capped)) == {"cpu": 2}


def test_cpus_that_running_jobs_of_the_partition_have_count_towards_its_maximum() -> None:
    capped = Settings(max_cpus_per_node={"all": 4})
    there = [node("cpu-0", free_cores=2, free_memory=7000, idle_since=None)]
    for cpus, size in ((2, 1), (4, 2)):
        states = frozenset({"RUNNING"})
        running = QueuedJob(7, states, partition="all", nodes="cpu-0", cpus=cpus, node_count=1)
        found = plan([nodeset(replicas=1)], [job(), running], there, settings=capped)
        assert replicas(found) == {"cpu": size}


@pytest.mark.parametrize(
    ("licenses", "count", "size"),
    [
        ("matlab:1", 10, 3),
        ("matlab:2", 10, 1),
        ("matlab", 2, 2),
        ("other:9", 4, 4),
        ("a:1|b:1", 4, 4),
    ],
)
def test_no_more_jobs_get_nodes_than_licenses_are_free(
    licenses: str, count: int, size: int
) -> None:
    queue = Queue([job(i, tasks=8, licenses=licenses) for i in range(count)])
    found = Autoscaling(Settings()).plan(
        [nodeset()], Jobs(queue, NOW, {"matlab": 3, "ansys": 0}), Nodes([], NOW), {}, NOW
    )
    assert queue.licensed == ("|" not in licenses)
    assert replicas(found) == {"cpu": size}
    left = count - size
    assert [(it.reason.value, it.detail, it.count) for it in found.excluded] == (
        [("Licenses", "matlab", left)] if left else []
    )


def test_a_job_that_lacks_a_license_keeps_none_from_others() -> None:
    both = job(1, tasks=8, licenses="matlab:1,ansys:1")
    queue = Queue([both, *(job(i, tasks=8, licenses="matlab:1") for i in range(2, 5))])
    found = Autoscaling(Settings()).plan(
        [nodeset()], Jobs(queue, NOW, {"matlab": 2, "ansys": 0}), Nodes([], NOW), {}, NOW
    )
    assert [it.jobs for it in found.promises] == [(2, 3)]
    assert {it.detail: it.count for it in found.excluded} == {"matlab, ansys": 1, "matlab": 1}


def test_the_cheapest_nodeset_that_fits_is_extended_first() -> None:
    sets = [nodeset("dear", price=5.0), nodeset("cheap", price=1.0, max=1)]
    assert replicas(plan(sets, [job(1, tasks=8)])) == {"dear": 0, "cheap": 1}
    assert replicas(plan(sets, [job(1, tasks=8), job(2, tasks=8)])) == {"dear": 1, "cheap": 1}


def test_a_job_in_several_partitions_counts_once() -> None:
    sets = [nodeset("a", partitions=frozenset({"a"})), nodeset("b", partitions=frozenset({"b"}))]
    assert sum(replicas(plan(sets, [job(partitions=("a", "b"))])).values()) == 1


def test_an_array_counts_with_its_pending_tasks() -> None:
    found = plan(jobs=[job(tasks=4, array_job_id=1, array_tasks="0-9:2,20,21")])
    assert replicas(found) == {"cpu": 4}
    assert [(promise.jobs, promise.count) for promise in found.promises] == [((1,), 7)]


def test_an_array_counts_no_more_tasks_than_its_limit_lets_run() -> None:
    array = job(10, tasks=8, array_job_id=10, array_tasks="3-9", array_max_running=3)
    running = QueuedJob(11, frozenset({"RUNNING"}), array_job_id=10)
    found = plan([nodeset(replicas=1)], [array, running], [busy("cpu-0")])
    assert replicas(found) == {"cpu": 3}
    assert why(found) == {"ArrayLimit": 5}


def test_ten_thousand_tasks_are_counted_without_a_record_for_each() -> None:
    found = plan(
        [nodeset(max=10_000)],
        [job(tasks=8, array_job_id=1, array_tasks="0-9999")],
        settings=Settings(),
    )
    assert replicas(found) == {"cpu": 100}
    assert why(found) == {"NextStep": 9900}


def test_the_components_of_a_heterogeneous_job_count_together() -> None:
    sets = [nodeset(max=1), nodeset("gpu", shape=GPUS)]
    parts = [
        job(1, het_job_id=1, het_job_ids="1-2", tasks=8),
        job(2, het_job_id=1, het_job_ids="1-2", tres_per_node="gres/gpu:1", memory_per_node=0),
    ]
    found = plan(sets, parts)
    assert replicas(found) == {"cpu": 1, "gpu": 1}
    assert [(promise.jobs, promise.count) for promise in found.promises] == [((1,), 1)]
    taken = [job(9, priority=900, tasks=8, memory_per_node=0), *parts]
    assert replicas(plan([sets[0], nodeset("gpu", shape=GPUS, max=1)], taken)) == {
        "cpu": 1,
        "gpu": 0,
    }
    assert why(plan(sets, parts[:1])) == {"HetJobPartMissing": 1}


def test_free_parts_of_present_nodes_are_used_before_nodes_are_added() -> None:
    half = node("cpu-0", idle_since=None, free_cores=2, free_memory=4000)
    sets = [nodeset(replicas=1)]
    assert replicas(plan(sets, [job(tasks=4)], [half])) == {"cpu": 1}
    assert replicas(plan(sets, [job(tasks=5)], [half])) == {"cpu": 2}


def test_a_job_may_ask_for_as_many_sockets_and_cores_as_a_node_has_and_not_for_more() -> None:
    def placed(sockets: int, cores: int) -> bool:
        asked = job(sockets_per_node=sockets, cores_per_socket=cores)
        return replicas(plan([nodeset(shape=Shape(2, 4, 1, 8000))], [asked])) == {"cpu": 1}

    assert placed(2, 4)
    assert not placed(3, 4)
    assert not placed(2, 5)


def test_nodes_that_slurm_gives_to_other_jobs_are_replaced_by_those_that_a_job_can_use() -> None:
    # Slurm starts the small jobs on added nodes, which have a lower weight than the present one.
    present = node("old-0", nodeset="", shape=Shape(1, 8, 1, 8000), weight=5, free_cores=8)
    sets = [nodeset(price=2), nodeset("small", shape=Shape(1, 1, 1, 1000), weight=9)]
    small = [job(number, priority=200) for number in range(8)]
    jobs = [*small, job(8, tasks=8, features="cpu")]
    assert replicas(plan(sets, jobs, [present])) == {"cpu": 3, "small": 0}


def test_a_node_that_is_drained_is_no_room() -> None:
    drained = node("cpu-0", usable=False, idle_since=None)
    assert replicas(plan([nodeset(replicas=1)], [job()], [drained])) == {"cpu": 2}


def test_a_node_whose_pod_starts_is_room() -> None:
    assert replicas(plan([nodeset(replicas=1)], [job(tasks=8)], [])) == {"cpu": 1}


def test_a_node_that_the_job_excludes_is_no_room() -> None:
    found = plan([nodeset(replicas=1)], [job(excluded_nodes="cpu-[0-1]")], [node("cpu-0")])
    assert replicas(found) == {"cpu": 2}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"priority": 0}, "NotReleased"),
        ({"reason": "JobHeldUser"}, "NotReleased"),
        ({"dependency": "afterok:7(unfulfilled)", "reason": "Dependency"}, "Dependency"),
        (
            {"dependency": "afterok:7(failed)", "reason": "DependencyNeverSatisfied"},
            "DependencyNeverSatisfied",
        ),
        ({"eligible_time": int(NOW) + 60, "reason": "BeginTime"}, "BeginTime"),
        ({"reason": "QOSMaxJobsPerUserLimit"}, "Limit"),
        ({"reason": "AssocGrpCpuLimit"}, "Limit"),
        ({"reason": "MaxCpuPerAccount"}, "Limit"),
        ({"reason": "Licenses"}, "Licenses"),
        ({"reason": "PartitionDown"}, "Partition"),
        ({"reason": "PartitionTimeLimit"}, "Partition"),
        ({"reservation": "maint"}, "Reservation"),
        ({"required_nodes": "cpu-7"}, "NamedNodes"),
        ({"external": True}, "External"),
        ({"constraints": "zone=a"}, "NotModelled"),
        ({"specialized": True}, "NotModelled"),
        ({"contiguous": True, "tasks": 2, "min_nodes": 2, "max_nodes": 2}, "NotModelled"),
        ({"features": "cpu*2"}, "NotModelled"),
        ({"features": "(cpu"}, "NotModelled"),
        ({"tres_per_node": "gres/?"}, "NotModelled"),
        ({"cpus_per_tres": "gpu:h100:2"}, "NotModelled"),
        ({"memory_per_tres": "shard:2"}, "NotModelled"),
        ({"reason": "BurstBufferResources"}, "Other"),
        ({"partitions": ("none",)}, "NotScaled"),
        ({"features": "tpu"}, "Impossible"),
        ({"tres_per_node": "gres/gpu:b200:1"}, "Impossible"),
        ({"memory_per_node": 9000}, "Impossible"),
        ({"tasks": 9}, "Impossible"),
        ({"tmp_disk": 5}, "Impossible"),
        ({"tasks": 11, "min_nodes": 11, "max_nodes": 11}, "TooLarge"),
        ({"tasks": 81, "max_nodes": 0}, "TooLarge"),
        ({"tasks": 24, "min_nodes": 2, "max_nodes": 2}, "TooLarge"),
    ],
    ids=str,
)
def test_a_job_that_no_node_helps_is_left_out_with_the_reason(
    fields: dict[str, Any], reason: str
) -> None:
    found = plan(jobs=[job(**fields)])
    assert replicas(found) == {"cpu": 0}
    assert why(found) == {reason: 1}
    assert found.promises == ()


@pytest.mark.parametrize(
    "reason", ["None", "Priority", "Resources", "ReqNodeNotAvail", "PartitionConfig", "BeginTime"]
)
def test_a_job_that_waits_for_nodes_counts(reason: str) -> None:
    assert replicas(plan(jobs=[job(reason=reason)])) == {"cpu": 1}


def test_an_impossible_job_gets_what_is_missing() -> None:
    sets = [nodeset("gpu", shape=GPUS)]
    [excluded] = plan(sets, [job(7, tres_per_node="gres/gpu:b200:1")]).excluded
    assert (excluded.detail, excluded.jobs) == ("gpu:b200:1 of a node that has 0", (7,))


def test_an_impossible_job_is_compared_with_the_node_with_the_most_cpus() -> None:
    sets = [
        nodeset("wide", shape=Shape(1, 5, 1, 8000)),
        nodeset("deep", shape=Shape(1, 4, 2, 8000)),
    ]
    [excluded] = plan(sets, [job(tasks=9)]).excluded
    assert "a node with 8 CPUs" in excluded.detail


def test_a_nodeset_of_unknown_shape_gets_no_node() -> None:
    assert why(plan([nodeset(shape=None)], [job()])) == {"ShapeUnknown": 1}


def test_jobs_beyond_the_maximum_are_left_out() -> None:
    found = plan([nodeset(max=2)], [job(i, tasks=8) for i in range(1, 6)])
    assert replicas(found) == {"cpu": 2}
    assert why(found) == {"BeyondMax": 3}


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"tasks": 3, "min_nodes": 3, "max_nodes": 3}, "3 nodes of 2: NodeSet gpu"),
        ({"tasks": 40, "max_nodes": 0}, "40 CPUs of 32: NodeSet gpu"),
        ({"tres_per_job": "gres/gpu:9", "max_nodes": 0}, "gpu:9 of 8: NodeSet gpu"),
    ],
    ids=str,
)
def test_a_job_that_needs_more_than_the_maximum_is_named_at_once(
    fields: dict[str, Any], detail: str
) -> None:
    found = plan([nodeset("gpu", shape=GPUS, max=2)], [job(**fields), job(2, tasks=16)])
    assert [(it.reason.value, it.detail) for it in found.excluded] == [("TooLarge", detail)]
    assert found.excluded[0].concerns("gpu")
    assert replicas(found) == {"gpu": 1}
    [excluded] = plan([nodeset("gpu", shape=GPUS, max=2, most=3)], [job(**fields)]).excluded
    assert excluded.reason.value == "BeyondMax"


def test_other_nodes_count_for_a_job_that_needs_more_than_the_maximum() -> None:
    wide = job(tasks=3, min_nodes=3, max_nodes=3)
    foreign = [node("x", nodeset="", free_cores=0, idle_since=None)]
    assert why(plan([nodeset(max=2)], [wide], foreign)) == {"BeyondMax": 1}
    drained = [replace(foreign[0], usable=False)]
    assert why(plan([nodeset(max=2)], [wide], drained)) == {"BeyondMax": 1}
    assert why(plan([nodeset(max=1)], [wide], drained)) == {"TooLarge": 1}


def test_a_job_that_only_nodes_without_autoscaling_could_run_is_none_of_autoscalings() -> None:
    other = frozenset({"other"})
    foreign = [node("x", nodeset="", partitions=other, free_cores=0, idle_since=None)]
    found = plan([nodeset()], [job(partitions=("other",))], foreign).excluded
    assert [(it.reason.value, it.detail) for it in found] == [("NotScaled", "other")]
    large = [node("y", nodeset="", shape=GPUS, free_cores=0, idle_since=None)]
    assert why(plan([nodeset()], [job(tasks=16)], large)) == {"NotScaled": 1}


def test_the_jobs_with_the_highest_priority_get_the_nodes() -> None:
    found = plan([nodeset(max=1)], [job(1, tasks=8, priority=1), job(2, tasks=8, priority=2)])
    assert [promise.jobs for promise in found.promises] == [(2,)]


def test_a_partition_with_a_higher_tier_goes_first() -> None:
    sets = [nodeset(max=1, partitions=frozenset({"all", "fast"}))]
    jobs = [job(1, tasks=8, priority=900), job(2, tasks=8, priority=1, partitions=("fast",))]
    found = plan(sets, jobs, settings=Settings(tiers={"fast": 2}))
    assert [promise.jobs for promise in found.promises] == [(2,)]


def test_the_budget_is_not_exceeded() -> None:
    sets = [nodeset(price=2.0, replicas=1)]
    jobs = [job(i, tasks=8) for i in range(1, 6)]
    found = plan(sets, jobs, [busy("cpu-0")], settings=Settings(budget=7.0))
    assert replicas(found) == {"cpu": 3}
    assert why(found) == {"Budget": 3}


def test_a_nodeset_whose_pods_cannot_be_scheduled_makes_room_for_the_next_one() -> None:
    stuck = nodeset(replicas=2, unschedulable=2, unschedulable_since=NOW - 60)
    other = nodeset("other", price=9.0)
    jobs = [job(1, tasks=8), job(2, tasks=8)]
    assert replicas(plan([stuck, other], jobs)) == {"cpu": 2, "other": 0}
    late = nodeset(replicas=2, unschedulable=2, unschedulable_since=NOW - 600)
    assert replicas(plan([late, other], jobs)) == {"cpu": 2, "other": 2}
    assert why(plan([late], jobs)) == {"NoCapacity": 2}


def test_many_jobs_are_taken_in_slices_of_their_priority() -> None:
    jobs = [job(i, tasks=8, priority=10_000 - i) for i in range(1, 2001)]
    found = plan([nodeset(max=50)], jobs)
    assert sum(promise.count for promise in found.promises) == 50
    assert max(max(promise.jobs) for promise in found.promises) <= 64
    assert why(found) == {"BeyondMax": 1950}


def test_gres_of_the_nodes_shape_may_have_several_types() -> None:
    mixed = nodeset(
        "mixed", shape=GPUS.__class__(1, 8, 1, 64000, (Gres("gpu", "a", 1), Gres("gpu", "b", 1)))
    )
    assert replicas(plan([mixed], [job(tres_per_node="gres/gpu:2")])) == {"mixed": 1}
    assert why(plan([mixed], [job(tres_per_node="gres/gpu:a:2")])) == {"Impossible": 1}
    assert SHAPE.all_cores == 4


@pytest.mark.parametrize(("no_consume", "nodes"), [(True, 1), (False, 2)])
def test_jobs_on_one_node_use_the_same_of_what_they_dont_use_up(
    no_consume: bool, nodes: int
) -> None:
    shared = nodeset(shape=replace(SHAPE, gres=(Gres("bandwidth", "lustre", 4, no_consume),)))
    jobs = [job(it, tres_per_node="gres/bandwidth:4") for it in (1, 2)]
    assert replicas(plan([shared], jobs)) == {"cpu": nodes}
    assert why(plan([shared], [job(tres_per_node="gres/bandwidth:5")])) == {"Impossible": 1}


def test_only_jobs_that_end_before_a_reservation_begins_use_its_node() -> None:
    nodes = [node("cpu-0", reserved_at=NOW + 3700)]
    for minutes, size in ((60, 1), (61, 2), (None, 2)):
        found = plan([nodeset(replicas=1)], [job(time_limit=minutes)], nodes)
        assert replicas(found) == {"cpu": size}
    assert replicas(plan([nodeset(replicas=1)], [job(time_limit=60)], nodes, now=NOW + 200)) == {
        "cpu": 2
    }


def test_a_long_queue_is_planned_again_as_a_reservation_comes_near() -> None:
    jobs = [job(number, time_limit=60, tasks=1 + number % 2) for number in range(1, 700)]
    nodes = [node("cpu-0", reserved_at=NOW + 3700)]
    autoscaling, queue = Autoscaling(Settings()), Queue(jobs)
    for now, used in ((NOW, True), (NOW + 200, False)):
        found = autoscaling.plan(
            [nodeset(replicas=1)], Jobs(queue, now), Nodes(nodes, now), {}, now
        )
        new = sum(sum(promise.nodes.values()) for promise in found.promises)
        assert (new, sum(promise.count for promise in found.promises) > 4 * new) == (9, used)


@pytest.mark.parametrize("minutes", [0, 1, 7, 8, 9, 60, 61, 10_000])
def test_a_time_limit_is_rounded_up_by_less_than_a_tenth(minutes: int) -> None:
    assert minutes <= rounded(minutes) <= minutes * 1.1


def test_a_node_with_a_reservation_is_reserved_from_the_first_begin_on_and_stays() -> None:
    reservations = [
        Reservation("past", node_list="w-[0-9]", start_time=10, end_time=20),
        Reservation("later", node_list="w-[1-2]", start_time=90, end_time=99),
        Reservation("now", node_list="w-2", start_time=30, end_time=60),
        Reservation("licences", start_time=30, end_time=60),
    ]
    found = reserved(reservations, 50.0)
    assert found == {"w-1": 90.0, "w-2": 30.0}
    idle = Node("w-1", frozenset({"IDLE"}), cpus=4, last_busy=7)
    assert present(idle, "w").idle_since == 7.0
    kept = present(idle, "w", found["w-1"])
    assert (kept.idle_since, kept.reserved_at, kept.usable) == (None, 90.0, True)


def test_a_node_that_is_declared_with_millions_of_cpus_gets_all_jobs() -> None:
    huge = Shape(1, 1 << 24, 1, 1 << 40)
    array = job(array_job_id=1, array_tasks="0-999", memory_per_node=1)
    assert replicas(plan([nodeset(shape=huge)], [array])) == {"cpu": 1}


def test_jobs_on_thousands_of_nodes_that_may_all_be_added_at_once_are_planned() -> None:
    wide = nodeset(max=65536, behavior=Behavior(max_step_up=65536))
    jobs = [
        job(it, memory_per_node=it, min_nodes=2, max_nodes=65000, tasks=60000) for it in range(1, 6)
    ]
    assert 7500 <= replicas(plan([wide], jobs))["cpu"] <= 65536


@pytest.mark.parametrize("count", [40, 900])
@pytest.mark.parametrize("budget", [None, 30.0])
def test_jobs_that_have_one_place_only_are_placed_as_those_for_which_others_are_looked_at_too(
    count: int, budget: float | None
) -> None:
    for seed in range(3):
        random_ = random.Random(seed)  # noqa: S311 - no secret
        there = [
            node(
                f"w-{number}",
                free_cores=random_.randint(0, 4),
                free_memory=random_.randint(0, 8000),
                idle_since=None,
            )
            for number in range(count // 4)
        ]
        requests = [
            (random_.choice([1, 2, 3]), random_.choice([1, 1, 2]), random_.choice([500, 1500]))
            for _ in "123456"
        ]
        chosen = [random_.choice(requests) for _ in range(count)]
        found = []
        for partitions in (("all",), ("all", "nowhere")):
            jobs = [
                job(
                    number,
                    priority=number * 7919 % 9 + 1,
                    partitions=partitions,
                    min_nodes=nodes,
                    max_nodes=nodes,
                    tasks=tasks * nodes,
                    memory_per_node=memory,
                )
                for number, (tasks, nodes, memory) in enumerate(chosen, 1)
            ]
            sets = [
                nodeset(replicas=len(there), max=len(there) + 60, behavior=Behavior(max_step_up=60))
            ]
            found.append(
                plan(sets, jobs, there, settings=Settings(budget=budget and budget + len(there)))
            )
        one, several = found
        assert replicas(one) == replicas(several)
        assert one.promises == several.promises
        assert one.promises


def test_jobs_that_exclude_other_users_share_nodes_with_those_of_their_own_user() -> None:
    def jobs(*users: str, **more: Any) -> list[QueuedJob]:
        return [job(number, user_name=it, **more) for number, it in enumerate(users, 1)]

    exclusive: dict[str, Any] = {"shared": frozenset({"user"})}
    assert replicas(plan(jobs=jobs("ada", "ada", "ada", **exclusive))) == {"cpu": 1}
    assert replicas(plan(jobs=jobs("ada", "bob", "ada", **exclusive))) == {"cpu": 2}
    # Others don't get such a node, and such a job no node of others.
    others = [*jobs("ada", **exclusive), job(2, user_name="bob"), job(3, user_name="ada")]
    assert replicas(plan(jobs=others)) == {"cpu": 2}
    assert replicas(plan(jobs=others[::2])) == {"cpu": 1}
    several = [
        job(1, user_name="bob"),
        job(2, user_name="ada"),
        job(3, user_name="ada", **exclusive),
    ]
    assert replicas(plan(jobs=several)) == {"cpu": 2}
    # A partition may require it of all of its jobs.
    partition = Settings(exclusive={"all": "USER"})
    assert replicas(plan(jobs=jobs("ada", "bob", "bob"), settings=partition)) == {"cpu": 2}
    assert replicas(plan(jobs=jobs("ada", "bob", "bob"))) == {"cpu": 1}


def test_a_node_of_a_user_who_excludes_others_has_room_for_that_user_alone() -> None:
    owned = node("cpu-0", idle_since=None, free_cores=3, free_memory=7000, owner="ada")
    exclusive: dict[str, Any] = {"shared": frozenset({"user"})}
    for user, count in (("ada", 1), ("bob", 2)):
        found = plan([nodeset(replicas=1)], [job(user_name=user, **exclusive)], [owned])
        assert replicas(found) == {"cpu": count}
    assert replicas(plan([nodeset(replicas=1)], [job(user_name="bob")], [owned])) == {"cpu": 2}


def test_a_job_has_whole_nodes_only_in_the_partitions_that_give_them() -> None:
    settings = Settings(tiers={"all": 2}, exclusive={"whole": "NODE"})
    sets = [nodeset(partitions=frozenset({"all", "whole"}))]
    # Slurm reports the job as it is in one of its partitions.
    for shared in (frozenset[str](), frozenset({"none"})):
        jobs = [job(i, partitions=("all", "whole"), shared=shared) for i in range(1, 4)]
        assert replicas(plan(sets, jobs, settings=settings)) == {"cpu": 1}
    alone = [job(i, partitions=("whole",)) for i in range(1, 4)]
    assert replicas(plan(sets, alone, settings=settings)) == {"cpu": 3}
    own = [job(i, shared=frozenset({"none"})) for i in range(1, 4)]
    assert replicas(plan(sets, own, settings=settings)) == {"cpu": 3}


def test_jobs_that_share_cores_and_others_never_have_the_same_node() -> None:
    settings = Settings(oversubscribe={"forced": "FORCE", "asked": "YES"})
    sets = [nodeset(partitions=frozenset({"all", "forced", "asked"}))]

    def nodes(*jobs: QueuedJob) -> int:
        return replicas(plan(sets, [*jobs], settings=settings))["cpu"]

    forced, usual = job(1, partitions=("forced",)), job(2)
    asks = job(3, partitions=("asked",), shared=frozenset({"oversubscribe"}))
    assert nodes(forced, usual) == 2
    assert nodes(asks, usual) == 2
    assert nodes(forced, asks) == 1
    assert nodes(job(1, partitions=("asked",)), usual) == 1


def test_a_node_without_room_for_the_tasks_of_a_socket_is_none_for_the_job() -> None:
    nodes = [node("cpu-0", idle_since=None, free_cores=1)]
    few: dict[str, Any] = {
        "tasks": 3,
        "max_nodes": 3,
        "max_nodes_implied": True,
        "threads_per_core": 1,
    }
    found = plan([nodeset(replicas=1)], [job(**few, tasks_per_socket=2)], nodes)
    assert replicas(found) == {"cpu": 3}
    assert replicas(plan([nodeset(replicas=1)], [job(**few)], nodes)) == {"cpu": 2}
