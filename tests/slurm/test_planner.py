"""The planner's promises against a real slurmctld: on the nodes that it asks for, Slurm starts
exactly those jobs.
"""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sidecars.autoscaling.ledger import Ledger
from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.present import present, reserved
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Nodes,
    Plan,
    PresentNode,
    ScaledNodeSet,
    Settings,
    Shape,
)
from sidecars.policy.reasons import NotCounted
from sidecars.slurm import protocol
from sidecars.slurm.gres import Gres
from sidecars.slurm.hostlists import compress
from tests.support.real import ports, simulated_nodes
from tests.support.real.simulated_nodes import Slurmctld

EVERYWHERE = frozenset({"all"})
NODESETS = (
    ScaledNodeSet(
        "small",
        Shape(1, 2, 2, 1000, (), frozenset({"small"})),
        EVERYWHERE | {"small"},
        0,
        max=40,
        price=1,
        weight=1,
    ),
    ScaledNodeSet(
        "big",
        Shape(2, 4, 2, 4000, (), frozenset({"big"})),
        EVERYWHERE | {"fast"},
        0,
        max=24,
        price=5,
        weight=5,
    ),
    ScaledNodeSet(
        "gpu",
        Shape(2, 4, 1, 4000, (Gres("gpu", "h100", 4),), frozenset({"gpu"})),
        EVERYWHERE | {"fast"},
        0,
        max=20,
        price=10,
        weight=10,
    ),
)
CONF = """
NodeSet=small Feature=small
NodeSet=big Feature=big
NodeSet=gpu Feature=gpu
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=small Nodes=small State=UP
PartitionName=fast Nodes=big,gpu State=UP PriorityTier=5
"""
GRES = "NodeName=gpu-[0-19] Name=gpu Type=h100 File=/dev/nvidia[0-3]\n"
Job = dict[str, Any]


@dataclass(frozen=True)
class World:
    """NodeSets, and the partitions of their nodes in slurm.conf."""

    nodesets: tuple[ScaledNodeSet, ...]
    conf: str
    gres: str = ""


USUAL = World(NODESETS, CONF, GRES)
SYSTEM = World(
    (
        ScaledNodeSet(
            "limited",
            Shape(2, 4, 1, 4000, (), frozenset({"limited"}), specialized_cores=6),
            frozenset({"limited"}),
            0,
            max=8,
        ),
    ),
    "NodeSet=limited Feature=limited\nPartitionName=limited Nodes=limited Default=YES State=UP\n",
)
"""Workers with a CPU limit: six of eight cores are for the system."""
GPUS = World(
    (
        ScaledNodeSet(
            "cpu",
            Shape(1, 8, 1, 8000, (), frozenset({"cpu"})),
            frozenset({"mixed"}),
            0,
            max=8,
        ),
        ScaledNodeSet(
            "gpu",
            Shape(2, 8, 1, 8000, (Gres("gpu", "h100", 4),), frozenset({"gpu"})),
            frozenset({"mixed", "gpu", "ai"}),
            0,
            max=8,
            price=10,
            weight=10,
        ),
    ),
    """
NodeSet=cpu Feature=cpu
NodeSet=gpu Feature=gpu
PartitionName=mixed Nodes=ALL Default=YES State=UP
PartitionName=gpu Nodes=gpu State=UP
PartitionName=ai Nodes=gpu State=UP DefCpuPerGPU=3 DefMemPerGPU=1500
""",
    "NodeName=gpu-[0-7] Name=gpu Type=h100 File=/dev/nvidia[0-3]\n",
)
"""Cheap workers without GPUs beside those with them."""
RULES = World(
    (
        ScaledNodeSet(
            "small",
            Shape(1, 8, 1, 8000, (), frozenset({"small"})),
            frozenset({"capped", "slow", "narrow", "both"}),
            0,
            max=8,
        ),
        ScaledNodeSet(
            "big",
            Shape(2, 8, 1, 8000, (), frozenset({"big"})),
            frozenset({"fast", "both"}),
            0,
            max=8,
        ),
    ),
    """
NodeSet=small Feature=small
NodeSet=big Feature=big
PartitionName=slow Nodes=small Default=YES State=UP
PartitionName=fast Nodes=big State=DOWN PriorityTier=5
PartitionName=capped Nodes=small State=UP MaxCPUsPerNode=3
PartitionName=narrow Nodes=small State=UP MaxCPUsPerSocket=1
PartitionName=both Nodes=ALL State=UP
Licenses=matlab:2
""",
)
"""Partitions with rules: of `narrow`, the planner doesn't know it."""
QUEUES = 2
"""How many random queues."""


def names(nodeset: ScaledNodeSet, count: int | None = None) -> list[str]:
    return [f"{nodeset.name}-{number}" for number in range(nodeset.max if count is None else count)]


def line(nodeset: ScaledNodeSet) -> str:
    """The nodes of a NodeSet in slurm.conf."""
    shape = nodeset.shape
    assert shape is not None
    gres = f" Gres={','.join(map(str, shape.gres))}" if shape.gres else ""
    return (
        f"NodeName={compress(names(nodeset))} NodeAddr=127.0.0.1 "
        f"CPUs={shape.sockets * shape.cores * shape.threads} Sockets={shape.sockets} "
        f"CoresPerSocket={shape.cores} ThreadsPerCore={shape.threads} RealMemory={shape.memory} "
        f"CoreSpecCount={shape.specialized_cores} Feature={nodeset.name} "
        f"Weight={nodeset.weight}{gres} State=CLOUD"
    )


@contextmanager
def slurmctld(number_: int, world: World = USUAL) -> Iterator[Slurmctld]:
    """With all nodes that the NodeSets may have, in drain: each counts as absent until it is
    undrained.
    """
    lines = "\n".join(map(line, world.nodesets))
    with (
        tempfile.TemporaryDirectory() as home,
        simulated_nodes.running(
            Path(home), f"{lines}\n{world.conf}", world.gres, ports.SIMULATED + 2 * number_
        ) as found,
    ):
        every = [name for nodeset in world.nodesets for name in names(nodeset)]
        # A node that is powered up before a job is on it would be used only when its slurmd
        # registers.
        found.call(protocol.update_nodes(every, state=["DRAIN"], reason="absent"))
        yield found


def number(value: int) -> Job:
    return {"set": True, "number": value}


def submit(slurm: Slurmctld, queue: list[list[Job]]) -> list[int]:
    """All jobs, each a list of its components; their ids."""
    return [
        slurm.submit(*({"tasks": 1, "time_limit": number(60)} | part for part in job))
        for job in queue
    ]


def decide(slurm: Slurmctld, sizes: Mapping[str, int] | None = None, world: World = USUAL) -> Plan:
    """The plan for what slurmrestd reports. `sizes`: the nodes that aren't absent."""
    now = time.time()
    nodesets = [replace(it, replicas=(sizes or {}).get(it.name, 0)) for it in world.nodesets]
    here = {name: it.name for it in nodesets for name in names(it, it.replicas)}
    reservations = slurm.call(protocol.get_reservations())
    reserved_at = reserved(reservations, now)
    # The nodes are powered down, and so not usable for the planner, but can run jobs.
    nodes = [
        replace(
            present(node, here[node.name], reserved_at.get(node.name)),
            usable=True,
            unsettled=False,
            weight=node.weight,
        )
        for node in slurm.nodes()
        if node.name in here
    ]
    partitions = slurm.call(protocol.get_partitions())
    settings = Settings.of(partitions)
    licenses = {it.name: it.free for it in slurm.call(protocol.get_licenses())}
    return Autoscaling(settings).plan(
        nodesets,
        Jobs(Queue(slurm.jobs(), settings), now, licenses),
        Nodes(nodes, now),
        {},
        now,
    )


def sizes_of(plan: Plan) -> dict[str, int]:
    return {name: it.replicas for name, it in plan.wanted.items()}


def promised(plan: Plan) -> Counter[int]:
    """How many tasks of each job."""
    found: Counter[int] = Counter()
    for promise in plan.promises:
        for job in promise.jobs:
            found[job] += promise.count // len(promise.jobs)
    return found


def started(
    slurm: Slurmctld, sizes: Mapping[str, int], ids: list[int], world: World = USUAL
) -> list[int]:
    """How many tasks of each job run when so many nodes of each NodeSet exist."""
    there = [
        name for nodeset in world.nodesets for name in names(nodeset, sizes.get(nodeset.name, 0))
    ]
    if there:
        slurm.call(protocol.update_nodes(there, state=["UNDRAIN"]))
    slurm.settle()
    running = Counter(
        job.array_job_id or job.job_id for job in slurm.jobs() if "RUNNING" in job.states
    )
    return [running[it] for it in ids]


def outcome(
    number_: int, queue: list[list[Job]], sizes: Mapping[str, int], world: World
) -> list[int]:
    """Of a slurmctld of its own."""
    with slurmctld(number_, world) as slurm:
        return started(slurm, sizes, submit(slurm, queue), world)


def check(queue: list[list[Job]], world: World = USUAL) -> Plan:
    """Slurm starts what is promised on the nodes that are asked for, and not all of it on one fewer
    of any NodeSet.
    """
    with slurmctld(0, world) as slurm, ThreadPoolExecutor(len(world.nodesets)) as others:
        ids = submit(slurm, queue)
        plan = decide(slurm, world=world)
        sizes = sizes_of(plan)
        fewer = {name: sizes | {name: count - 1} for name, count in sizes.items() if count}
        # Side by side, because each waits for the schedulers most of the time.
        outcomes = {
            name: others.submit(outcome, at, queue, wanted, world)
            for at, (name, wanted) in enumerate(fewer.items(), 1)
        }
        expected = [promised(plan)[it] for it in ids]
        assert started(slurm, sizes, ids, world) == expected, (sizes, queue)
        for name, found in outcomes.items():
            assert found.result() != expected, (
                f"{sizes} is one more of {name} than needed for {queue}"
            )
        return plan


def job(random_: random.Random) -> Job:
    """Any job that some NodeSet can run."""
    found: Job = {
        "partition": random_.choice(
            ["all", "all", "all", "small", "fast", "small,fast", "all,small"]
        )
    }
    kind = random_.choice(
        ["tasks", "tasks", "threads", "cpus", "nodes", "nodes", "many", "gpus", "features", "array"]
    )
    if kind == "tasks":
        found["tasks"] = random_.randint(1, 4)
    elif kind == "threads":
        found["threads_per_core"] = 1
    elif kind == "cpus":
        found |= {"tasks": random_.randint(1, 2), "cpus_per_task": random_.randint(1, 4)}
    elif kind == "nodes":
        nodes, tasks = random_.randint(1, 3), random_.randint(1, 2)
        found |= {"nodes": str(nodes), "tasks": nodes * tasks}
        found |= random_.choice([{}, {"tasks_per_node": tasks}])
    elif kind == "many":
        found["tasks"] = random_.choice([5, 8, 12])
    elif kind == "gpus":
        found |= {
            "tres_per_node": random_.choice(["gres/gpu:1", "gres/gpu:h100:2", "gres/gpu:h100:3"]),
            "partition": "fast",
        }
    elif kind == "features":
        found |= {
            "constraints": random_.choice(["small", "big", "big|gpu", "[small|big]"]),
            "partition": "all",
        }
    else:
        found["array"] = f"0-{random_.randint(1, 6)}{random_.choice(['', '%2'])}"
    if random_.random() < 0.2:
        found["shared"] = ["none"]
    if random_.random() < 0.6:
        found["memory_per_cpu"] = number(random_.choice([50, 100, 200]))
    elif random_.random() < 0.9:
        found["memory_per_node"] = number(random_.choice([100, 300, 600, 900]))
    return found


@pytest.mark.parametrize("seed", range(QUEUES))
def test_slurm_starts_exactly_the_promised_jobs_of_a_random_queue(seed: int) -> None:
    random_ = random.Random(seed)  # noqa: S311 - no secret
    check([[job(random_)] for _ in range(random_.randint(5, 15))])


def test_slurm_starts_exactly_the_promised_jobs_of_a_queue_of_all_kinds() -> None:
    plan = check(
        [
            [{"partition": "fast", "tres_per_node": "gres/gpu:3", "memory_per_node": number(100)}],
            [
                {"partition": "small", "tasks": 4, "memory_per_cpu": number(100)},
                {"partition": "fast", "tasks": 2},
            ],
            [{"partition": "all,small", "tasks": 6, "nodes": "3", "memory_per_node": number(600)}],
            [{"array": "0-6%3", "memory_per_cpu": number(100)}],
            [{"hold": True}],
            [{"begin_time": number(int(time.time()) + 3600)}],
            [{"dependency": "afterok:1"}],
            [
                {
                    "tasks": 2,
                    "tres_per_task": "gres/gpu:1",
                    "partition": "fast",
                    "memory_per_cpu": number(100),
                }
            ],
            [{"constraints": "big&gpu|small", "memory_per_node": number(100)}],
            [{"partition": "small", "shared": ["none"], "memory_per_node": number(100)}],
            [{"tasks": 3, "shared": ["none"], "memory_per_node": number(100)}],
        ]
    )
    reasons = {it.reason for it in plan.excluded}
    assert {
        NotCounted.NOT_RELEASED,
        NotCounted.BEGIN_TIME,
        NotCounted.DEPENDENCY,
        NotCounted.ARRAY_LIMIT,
    } <= reasons


def test_a_job_that_would_not_end_before_a_reservation_begins_is_promised_another_node() -> None:
    few = {"partition": "small", "memory_per_node": number(300)}
    queue: list[list[Job]] = [[{**few, "time_limit": number(5)}], [{**few, "tasks": 4}]]
    for at, size in enumerate((2, 1)):
        with slurmctld(at) as slurm:
            # small-0 stays drained until the plan is computed: Slurm would start a job there before
            # it is read.
            begin = int(time.time()) + 1800
            later = protocol.save_reservation(
                "later", start_time=begin, minutes=60, nodes=["small-0"], users=["root"]
            )
            slurm.call(later)
            ids = submit(slurm, queue)
            plan = decide(slurm, {"small": 1})
            assert sizes_of(plan) == {"small": 2, "big": 0, "gpu": 0}
            assert [promised(plan)[it] for it in ids] == [1, 1]
            assert started(slurm, {"small": size}, ids) == [1, size - 1]


def test_slurm_gives_jobs_no_core_that_is_for_the_system() -> None:
    plan = check([[{"memory_per_node": number(100)}] for _ in range(5)], SYSTEM)
    assert sizes_of(plan) == {"limited": 3}
    # One of two nodes has room for one more job.
    with slurmctld(0, SYSTEM) as slurm:
        begun = submit(slurm, [[{"memory_per_node": number(100)}] for _ in range(3)])
        assert started(slurm, {"limited": 2}, begun, SYSTEM) == [1, 1, 1]
        more = submit(slurm, [[{"shared": ["none"], "memory_per_node": number(100)}]])
        assert sizes_of(decide(slurm, {"limited": 2}, SYSTEM)) == {"limited": 3}
        more += submit(slurm, [[{"memory_per_node": number(100)}]])
        assert started(slurm, {"limited": 3}, more, SYSTEM) == [1, 1]
        assert [it.free_cores for it in present_nodes(slurm)[:3]] == [0, 0, 0]


def test_slurm_starts_jobs_on_nodes_that_it_powers_up_before_others_are_added() -> None:
    with slurmctld(0, RULES) as slurm:
        saving = [f"small-{number}" for number in range(3)]
        ids = submit(slurm, [[{"partition": "both", "shared": ["none"], **FEW}]] * 5)
        # Drained until the plan is computed: Slurm would start a job before it is read.
        nodes = [
            present(replace(it, states=it.states - {"DRAIN"}), "")
            for it in slurm.nodes()
            if it.name in saving
        ]
        now = time.time()
        plan = Autoscaling(Settings()).plan(
            [RULES.nodesets[1]], Jobs(Queue(slurm.jobs()), now), Nodes(nodes, now), {}, now
        )
        assert sizes_of(plan) == {"big": 2}
        assert plan.startable == ()
        slurm.call(protocol.update_nodes(saving, state=["UNDRAIN"]))
        assert sum(started(slurm, {"big": 2}, ids, RULES)) == len(ids)


def present_nodes(slurm: Slurmctld) -> list[PresentNode]:
    return [present(it, it.name.partition("-")[0]) for it in slurm.nodes()]


FEW = {"memory_per_node": number(100)}


@pytest.mark.parametrize(
    "queue",
    [
        # CPUs and memory that come with each GPU, by the partition or by the job.
        [
            *[{"partition": "ai", "tres_per_node": "gres/gpu:1"}] * 5,
            {"partition": "ai", "tres_per_node": "gres/gpu:2", **FEW},
            {"partition": "ai", "tres_per_task": "gres/gpu:1", "tasks": 3},
            {
                "partition": "gpu",
                "tres_per_node": "gres/gpu:2",
                "cpus_per_tres": "gres/gpu:7",
                **FEW,
            },
            {
                "partition": "gpu",
                "tres_per_node": "gres/gpu:1",
                "memory_per_tres": "gres/gpu:5000",
            },
            {
                "partition": "gpu",
                "tasks": 3,
                "tres_per_job": "gres/gpu:3",
                "cpus_per_tres": "gres/gpu:2",
                "memory_per_tres": "gres/gpu:1000",
            },
        ],
        # GPUs of the whole job.
        [
            {"partition": "mixed", "tres_per_job": "gres/gpu:2", "tasks": 2, **FEW},
            {"partition": "mixed", "tres_per_job": "gres/gpu:4", "tasks": 4, **FEW},
            {"partition": "mixed", "tres_per_job": "gres/gpu:6", "nodes": "2", "tasks": 2, **FEW},
            {"partition": "gpu", "tres_per_job": "gres/gpu:8", **FEW},
            {"partition": "mixed", "tasks": 3, **FEW},
        ],
    ],
    ids=["per GPU", "totals"],
)
def test_slurm_starts_exactly_the_promised_jobs_with_gpus(queue: list[Job]) -> None:
    check([[job] for job in queue], GPUS)


def test_slurm_starts_exactly_the_promised_jobs_of_partitions_with_rules_and_of_licenses() -> None:
    plan = check(
        [
            *[[{"partition": "capped", **FEW}]] * 5,
            [{"partition": "capped", "tasks": 2, **FEW}],
            [{"partition": "fast,slow", "tasks": 8, **FEW}],
            [{"partition": "fast", **FEW}],
            *[[{"partition": "slow", "licenses": "matlab:1", "shared": ["none"], **FEW}]] * 5,
        ],
        RULES,
    )
    assert sizes_of(plan) == {"small": 6, "big": 0}
    assert {NotCounted.PARTITION, NotCounted.LICENSES} == {it.reason for it in plan.excluded}


def test_running_jobs_of_a_partition_that_limits_cpus_leave_no_room_for_more() -> None:
    with slurmctld(0, RULES) as slurm:
        first = submit(slurm, [[{"partition": "capped", "tasks": 3, **FEW}]])
        assert started(slurm, {"small": 1}, first, RULES) == [1]
        more = submit(slurm, [[{"partition": "capped", **FEW}]])
        assert sizes_of(decide(slurm, {"small": 1}, RULES)) == {"small": 2, "big": 0}
        assert started(slurm, {"small": 2}, more, RULES) == [1]


def test_a_job_that_slurm_does_not_start_by_an_unknown_rule_gets_no_more_nodes() -> None:
    with slurmctld(0, RULES) as slurm:
        ids = submit(slurm, [[{"partition": "narrow", "tasks": 4, **FEW}]])
        assert sizes_of(decide(slurm, world=RULES)) == {"small": 1, "big": 0}
        assert started(slurm, {"small": 1}, ids, RULES) == [0]
        plan, queue, ledger = decide(slurm, {"small": 1}, RULES), Queue(slurm.jobs()), Ledger()
        assert plan.startable == tuple(ids)
        assert not ledger.observe(plan.startable, queue, 0.0, 50.0)
        assert ledger.observe(plan.startable, queue, 50.0, 50.0)
        [reason] = ledger.refused(50.0).values()
        queue.refuse(ledger.refused(50.0))
        [excluded] = queue.look(time.time()).excluded
        assert (excluded.reason, excluded.detail) == (NotCounted.NOT_STARTED, reason)
