"""Benchmark `autoscale`: a decision for 50,000 pending jobs on 5,000 nodes, and one after a single job has changed.

The jobs have 40 different requests, in no order, as users submit them; half of them find no room. The ceiling does the
least that could be done with the jobs: sorting them, and counting those that request the same.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from sidecars.policy.autoscaling.plan import Autoscaling, Jobs
from sidecars.policy.autoscaling.queue import Queue
from sidecars.policy.autoscaling.records import Behavior, Nodes, PresentNode, ScaledNodeSet, Settings, Shape
from sidecars.slurm.gres import Gres
from sidecars.slurm.records import JobRequest, Pending, QueuedJob
from tests.bench.figures import Figure, figure, median

JOBS, NODES, REQUESTS, TIMES = 50_000, 5_000, 40, 9
NOW = 1_000_000.0
CPU = Shape(2, 32, 2, 256_000)
GPU = Shape(2, 48, 2, 1_000_000, (Gres("gpu", "h100", 8),))
BEHAVIOR = Behavior(max_step_up=NODES)


def jobs() -> list[QueuedJob]:
    """The queue."""
    random_ = random.Random(1)  # noqa: S311 - no secret
    requests = [_request(random_) for _ in range(REQUESTS)]
    return [
        QueuedJob(
            number,
            frozenset({"PENDING"}),
            submit_time=number,
            pending=Pending(random_.choice(requests), "Priority", random_.randint(1, 1_000_000)),
        )
        for number in range(1, JOBS + 1)
    ]


def _request(random_: random.Random) -> JobRequest:
    tasks, cpus = random_.choice([1, 1, 4, 16, 64]), random_.choice([1, 2, 4])
    gpus, nodes = random_.choice([0, 0, 1, 4]), random_.choice([1, 1, 1, 2, 4])
    return JobRequest(
        partitions=("all",),
        min_nodes=nodes,
        max_nodes=nodes,
        tasks=tasks * nodes,
        cpus=tasks * nodes * cpus,
        cpus_per_task=cpus,
        memory_per_cpu=random_.choice([500, 1000, 2000]),
        tres_per_node=f"gres/gpu:{gpus}" if gpus else "",
    )


def nodesets() -> list[ScaledNodeSet]:
    """Two NodeSets, half of whose nodes exist."""
    half = NODES // 2
    partitions = frozenset({"all"})
    return [
        ScaledNodeSet("cpu", CPU, partitions, half // 2, 0, half, 1.0, behavior=BEHAVIOR),
        ScaledNodeSet("gpu", GPU, partitions, half // 2, 0, half, 9.0, 9, behavior=BEHAVIOR),
    ]


def nodes() -> list[PresentNode]:
    """Those that exist, with different parts of them free."""
    random_ = random.Random(2)  # noqa: S311 - no secret
    found = []
    for nodeset in nodesets():
        shape = nodeset.shape
        assert shape is not None
        for number in range(nodeset.replicas):
            share = random_.choice([0, 0, 0.25, 0.5])
            found.append(
                PresentNode(
                    f"{nodeset.name}-{number}",
                    nodeset.name,
                    shape,
                    nodeset.partitions,
                    nodeset.weight,
                    free_cores=int(shape.all_cores * share),
                    free_memory=int(shape.memory * share),
                    free_gres=tuple(Gres(it.name, it.type, int(it.count * share)) for it in shape.gres),
                )
            )
    return found


def bench() -> list[Figure]:
    """The figures."""
    queue, sets, present = jobs(), nodesets(), Nodes(nodes(), NOW)
    least = median(lambda: _seconds(lambda: _least(queue)), TIMES)

    def whole() -> None:
        Autoscaling(Settings()).plan(sets, Jobs(Queue(queue), NOW), present, {}, NOW)

    held, autoscaling = Queue(queue), Autoscaling(Settings())
    autoscaling.plan(sets, Jobs(held, NOW), present, {}, NOW)
    numbers = iter(range(JOBS))

    def one() -> None:
        job = queue[next(numbers)]
        assert job.pending is not None
        held.update([replace(job, pending=replace(job.pending, priority=job.pending.priority + 1))])
        autoscaling.plan(sets, Jobs(held, NOW), present, {}, NOW)

    against = "sorting and counting them", least
    return [
        figure(
            f"decision for {JOBS} jobs, {NODES} nodes",
            median(lambda: _seconds(whole), TIMES),
            "s",
            against=against,
            most=1,
        ),
        figure(
            "decision after one job changed",
            median(lambda: _seconds(one), TIMES) * 1e3,
            "ms",
            against=(against[0], least * 1e3),
            most=50,
        ),
    ]


def _least(queue: list[QueuedJob]) -> None:
    pending = [(-job.pending.priority, job.job_id, id(job.pending.request)) for job in queue if job.pending is not None]
    pending.sort()
    Counter(request for _, _, request in pending)


def _seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start
