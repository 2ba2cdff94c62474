"""Benchmark `autoscale`: a decision for 50,000 pending jobs on 5,000 nodes, and one after a single
job has changed.

The jobs have 40 different requests, in no order, as users submit them; half of them find no room.
The ceiling does the least that could be done with the jobs: sorting them, and counting those that
request the same.

The job that changes then requests something that no other job does, so that the jobs behind it are
placed again. Its row begins with a whole list of jobs, in which the unchanged ones are the same
objects, as `get_queue` gives it.

Then follows what the operator spends on decisions, and on nothing else, while jobs and nodes stay
as they are.

The last rows are a trace of the model of Lublin and Feitelson in virtual time, beside a plan that
knows all jobs before.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Behavior,
    Nodes,
    PresentNode,
    ScaledNodeSet,
    Settings,
    Shape,
)
from sidecars.operator.autoscaling.reconcile import PLAN_EVERY
from sidecars.slurm.gres import Gres
from sidecars.slurm.records import JobRequest, Pending, QueuedJob, QueuedJobs
from tests.bench.figures import Figure, figure, median
from tests.bench.following import clairvoyant, followed
from tests.bench.workload import trace

JOBS, NODES, REQUESTS, TIMES = 50_000, 5_000, 40, 9
TRACE, PROCESSORS, MOST = 1000, 256, 32
"""Jobs of the trace, the processors of the largest ones, and the most nodes."""
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
                    free_gres=tuple(
                        Gres(it.name, it.type, int(it.count * share)) for it in shape.gres
                    ),
                )
            )
    return found


def bench() -> list[Figure]:
    """The figures."""
    listed, sets, present = jobs(), nodesets(), Nodes(nodes(), NOW)
    least = median(lambda: _seconds(lambda: _least(listed)), TIMES)
    queue, autoscaling = Queue(), Autoscaling(Settings())

    def decision(found: QueuedJobs, queue: Queue, autoscaling: Autoscaling) -> None:
        queue.replace(found)
        autoscaling.plan(sets, Jobs(queue, NOW), present, {}, NOW)

    whole = median(
        lambda: _seconds(
            lambda: decision(QueuedJobs(tuple(listed), 0), Queue(), Autoscaling(Settings()))
        ),
        TIMES,
    )
    decision(QueuedJobs(tuple(listed), 0), queue, autoscaling)
    settled = median(
        lambda: _seconds(lambda: autoscaling.plan(sets, Jobs(queue, NOW), present, {}, NOW)), TIMES
    )
    order = sorted(range(JOBS), key=lambda at: _place(listed[at]))
    rows = []
    for where, first in (("first", 0), ("in the middle", JOBS // 2), ("last", JOBS - TIMES - 1)):
        numbers = iter(order[first : first + TIMES + 1])

        def one(numbers: Iterator[int] = numbers) -> float:
            at = next(numbers)
            listed[at] = _other_request(listed[at], listed[at - 1])
            found = QueuedJobs(tuple(listed), 0)
            return _seconds(lambda: decision(found, queue, autoscaling))

        rows.append(
            figure(
                f"one job that is {where} has changed: lists compared, decision",
                median(one, TIMES) * 1e3,
                "ms",
                against=("sorting and counting all", least * 1e3),
                most=50,
            )
        )
    share = figure(
        f"decisions while nothing changes, one each {PLAN_EVERY:g} s",
        settled / PLAN_EVERY * 100,
        "% of a core",
    )
    of_all = f"decision for {JOBS} jobs, {NODES} nodes"
    return [
        figure(of_all, whole, "s", against=("sorting and counting them", least), most=1),
        *rows,
        share,
        *followed_trace(),
    ]


def followed_trace() -> list[Figure]:
    """The figures of the trace."""
    drawn = trace(1, TRACE, PROCESSORS)
    found, best = followed(drawn, MOST), clairvoyant(drawn, MOST)
    name = "a plan that knows all jobs before"
    return [
        figure(
            f"node hours by the work of {TRACE} jobs",
            found.per_work(drawn),
            "",
            against=(name, best.per_work(drawn)),
        ),
        figure("their mean wait", found.mean_wait, "s", against=(name, best.mean_wait)),
        figure(
            "turns of direction per 10 jobs",
            found.turns * 10 / TRACE,
            "",
            most=1,
        ),
    ]


def _place(job: QueuedJob) -> tuple[int, int]:
    assert job.pending is not None
    return -job.pending.priority, job.submit_time


def _other_request(job: QueuedJob, other: QueuedJob) -> QueuedJob:
    """The job with other needs, so that it and those behind it may be placed elsewhere."""
    assert job.pending is not None
    assert other.pending is not None
    request = replace(other.pending.request, memory_per_cpu=1500)
    return replace(job, pending=replace(job.pending, request=request))


def _least(queue: list[QueuedJob]) -> None:
    pending = [
        (-job.pending.priority, job.job_id, id(job.pending.request))
        for job in queue
        if job.pending is not None
    ]
    pending.sort()
    Counter(request for _, _, request in pending)


def _seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start
