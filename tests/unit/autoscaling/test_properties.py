"""What is true for any queue: bounds, budget, nothing in use removed, a settled decision, few
changes of direction.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Behavior,
    Nodes,
    Past,
    Plan,
    PresentNode,
    ScaledNodeSet,
    Settings,
)
from sidecars.slurm.records import QueuedJob
from tests.unit.autoscaling.builders import (
    GPUS,
    NOW,
    busy,
    job,
    node,
    nodeset,
    plan,
    replicas,
    unusable,
)

REQUEST: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 9),
        "memory_per_node": st.sampled_from([0, 1000, 3000]),
        "priority": st.integers(1, 5),
    },
    optional={
        "tres_per_node": st.sampled_from(["gres/gpu:1", "gres/gpu:h100:3"]),
        "shared": st.just(frozenset({"none"})),
        "array_tasks": st.sampled_from(["1-3", "0-8:2"]),
        "partitions": st.sampled_from([("all",), ("gpu", "all"), ("gpu",)]),
        "reason": st.sampled_from(["Resources", "Licenses"]),
    },
)
WIDE: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"max_nodes": 9, "max_nodes_implied": True},
        {"min_nodes": 2, "max_nodes": 2},
        {"min_nodes": 1, "max_nodes": 4},
    ]
)
QUEUE = st.lists(st.builds(lambda a, b: a | b, REQUEST, WIDE), max_size=8).map(
    lambda found: [job(number, **fields) for number, fields in enumerate(found, 1)]
)


def sets(cpu: int = 0, gpu: int = 0, **more: Any) -> list[ScaledNodeSet]:
    """Two NodeSets of three and two nodes at most."""
    return [
        nodeset(replicas=cpu, max=3, **more),
        nodeset(
            "gpu",
            shape=GPUS,
            partitions=frozenset({"all", "gpu"}),
            replicas=gpu,
            max=2,
            price=4.0,
            **more,
        ),
    ]


def started(found: Plan) -> list[tuple[tuple[int, ...], int]]:
    """The jobs that are promised."""
    return [(it.jobs, it.count) for it in found.promises]


@given(QUEUE, st.integers(0, 5), st.integers(0, 4))
def test_a_plan_never_exceeds_the_maximum_and_never_removes_what_is_in_use(
    jobs: list[QueuedJob], cpu: int, gpu: int
) -> None:
    nodes = [busy(f"cpu-{i}") for i in range(cpu)]
    found = replicas(plan(sets(cpu, gpu), jobs, nodes))
    assert cpu <= found["cpu"] <= max(3, cpu)
    assert gpu <= found["gpu"] <= max(2, gpu)


@given(QUEUE, st.integers(0, 12))
def test_a_plan_never_exceeds_the_budget(jobs: list[QueuedJob], budget: int) -> None:
    found = replicas(plan(sets(), jobs, settings=Settings(budget=float(budget))))
    assert found["cpu"] + 4 * found["gpu"] <= budget


@given(QUEUE)
def test_each_job_is_promised_or_left_out_with_a_reason(jobs: list[QueuedJob]) -> None:
    found = plan(sets(), jobs)
    tasks = {
        it.job_id: {"1-3": 3, "0-8:2": 5}.get(it.pending.array_tasks, 1)
        for it in jobs
        if it.pending
    }
    promised = sum(it.count for it in found.promises)
    assert promised + sum(it.count for it in found.excluded) == sum(tasks.values())


@given(QUEUE)
def test_a_decision_that_is_applied_settles(jobs: list[QueuedJob]) -> None:
    first = replicas(plan(sets(), jobs))
    assert replicas(plan(sets(**first), jobs)) == first


@given(QUEUE)
def test_each_node_that_is_added_is_needed(jobs: list[QueuedJob]) -> None:
    found = plan(sets(), jobs)
    sizes = replicas(found)
    for name in sizes:
        if sizes[name]:
            fewer = [replace(it, max=sizes[it.name] - (it.name == name)) for it in sets()]
            assert started(plan(fewer, jobs)) != started(found)


@given(QUEUE)
def test_a_job_of_low_priority_never_makes_the_cluster_smaller(jobs: list[QueuedJob]) -> None:
    def total(queue: list[QueuedJob]) -> int:
        return sum(replicas(plan([nodeset(max=9)], queue)).values())

    assert total([*jobs, job(99, tasks=8, priority=1, submit_time=9, memory_per_node=0)]) >= total(
        jobs
    )


@given(st.lists(st.tuples(QUEUE, st.floats(1, 400)), max_size=20))
def test_the_direction_changes_at_most_twice_in_each_cool_down(
    steps: list[tuple[list[QueuedJob], float]],
) -> None:
    behavior = Behavior(idle_seconds=1, step_seconds=1, cool_down=300)
    now, size, memory = NOW, 0, dict[str, Past]()
    autoscaling, idle_since = Autoscaling(Settings()), dict[str, float]()
    changes: list[tuple[float, int]] = []
    for jobs, seconds in steps:
        now += seconds
        names = [f"cpu-{i}" for i in range(size)]
        nodes: list[PresentNode] = [
            node(name, idle_since=idle_since.setdefault(name, now)) for name in names
        ]
        found = autoscaling.plan(
            [nodeset(replicas=size, behavior=behavior)],
            Jobs(Queue(jobs), now),
            Nodes(nodes, now),
            memory,
            now,
        )
        memory = dict(found.memory)
        after = found.wanted["cpu"].replicas
        if after != size:
            changes.append((now, 1 if after > size else -1))
        size = after
    downs = [
        (up, down)
        for (up, first), (down, second) in pairwise(changes)
        if (first, second) == (1, -1)
    ]
    assert all(down - up >= 300 for up, down in downs)


@given(QUEUE, st.lists(st.booleans(), max_size=12))
def test_no_worker_is_added_while_most_cannot_run_jobs_and_none_of_those_is_removed(
    jobs: list[QueuedJob], faulty: list[bool]
) -> None:
    nodes = [unusable(f"cpu-{i}") if it else busy(f"cpu-{i}") for i, it in enumerate(faulty)]
    found = plan([nodeset(replicas=len(nodes), max=50)], jobs, nodes).wanted["cpu"]
    assert found.replicas >= len(nodes)
    if sum(faulty) > 3 and sum(faulty) > 0.45 * len(faulty):
        assert (found.replicas, found.reason) == (len(nodes), "WorkersUnusable")


@given(QUEUE, st.integers(1, 9))
def test_a_nodeset_none_of_whose_workers_ever_runs_a_job_gets_few(
    jobs: list[QueuedJob], step: int
) -> None:
    size, memory = 0, dict[str, Past]()
    for turn in range(60):
        found = plan(
            [nodeset(replicas=size, max=50, behavior=Behavior(max_step_up=step, step_seconds=1))],
            jobs,
            [unusable(f"cpu-{i}") for i in range(size)],
            memory=memory,
            now=NOW + 10.0 * turn,
        )
        size, memory = found.wanted["cpu"].replicas, dict(found.memory)
    assert size <= 3 + step
