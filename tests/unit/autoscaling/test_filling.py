"""A long queue of which a part has changed is placed as if it was placed for the first time."""

from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.autoscaling.filling import EVERY
from sidecars.autoscaling.order import EXACT, Bundle
from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import Nodes, Plan, PresentNode, ScaledNodeSet, Settings
from sidecars.autoscaling.room import Room
from sidecars.slurm.records import QueuedJob, QueuedJobs
from tests.unit.autoscaling.builders import NOW, job, node, nodeset

JOBS = 1000
"""With their many kinds they are more than EXACT runs."""
KINDS: list[dict[str, Any]] = [
    {"memory_per_node": memory, **kind}
    for memory in (500, 1000, 3000)
    for kind in (
        {},
        {"tasks": 3},
        {"tasks": 4, "min_nodes": 2, "max_nodes": 2},
        {"shared": frozenset({"none"})},
        {"excluded_nodes": "cpu-[0-3]"},
    )
]


def some(number: int, kind: int) -> QueuedJob:
    return job(number, priority=number, **KINDS[kind])


def sets(more: int) -> list[ScaledNodeSet]:
    return [nodeset(replicas=6, max=60 + more), nodeset("dear", price=3.0, max=9)]


def present(busy: int) -> list[PresentNode]:
    return [node(f"cpu-{number}", free_cores=4 - number % (busy + 1)) for number in range(6)]


CHANGE = st.tuples(st.integers(1, JOBS + 20), st.integers(0, len(KINDS) - 1) | st.none())
STEP = st.tuples(
    st.lists(CHANGE, max_size=3), st.sampled_from([0, 0, 0, 1]), st.sampled_from([0, 0, 0, 2])
)


def decision(autoscaling: Autoscaling, queue: Queue, more: int, busy: int) -> Plan:
    return autoscaling.plan(sets(more), Jobs(queue, NOW), Nodes(present(busy), NOW), {}, NOW)


@given(st.lists(STEP, max_size=4))
def test_the_plan_for_a_changed_queue_is_that_of_a_planner_that_has_seen_no_other(
    steps: Any,
) -> None:
    jobs = {number: some(number, crc32(b"%d" % number) % len(KINDS)) for number in range(1, JOBS)}
    queue, autoscaling = Queue(), Autoscaling(Settings())
    for changes, more, busy in [([], 0, 0), *steps]:
        for number, kind in changes:
            if kind is None:
                jobs.pop(number, None)
            else:
                jobs[number] = some(number, kind)
        queue.replace(QueuedJobs(tuple(jobs.values()), 0))
        fresh = decision(Autoscaling(Settings()), Queue(jobs.values()), more, busy)
        assert decision(autoscaling, queue, more, busy) == fresh


def test_what_comes_before_a_change_is_not_placed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [some(number, crc32(b"%d" % number) % len(KINDS)) for number in range(1, JOBS)]
    queue, autoscaling = Queue(jobs), Autoscaling(Settings())
    runs = len(queue.look(NOW).runs)
    assert runs > EXACT
    decision(autoscaling, queue, 0, 0)
    placed, place = list[int](), Room.place

    def counted(room: Room, bundle: Bundle, count: int) -> int:
        placed.append(count)
        return place(room, bundle, count)

    monkeypatch.setattr(Room, "place", counted)
    last = max(jobs, key=lambda it: -it.pending.priority if it.pending else 0)
    queue.update([some(last.job_id, 4)])
    decision(autoscaling, queue, 0, 0)
    assert len(placed) <= EVERY + 2 * len(KINDS)


def test_jobs_that_are_as_many_and_request_more_are_placed_again() -> None:
    each = len(KINDS) // 3
    small, large = (
        [some(number, first + crc32(b"%d" % number) % each) for number in range(1, 2 * JOBS)]
        for first in (0, 2 * each)
    )
    queue, autoscaling = Queue(small), Autoscaling(Settings())
    assert len(queue.look(NOW).runs) > EXACT
    decision(autoscaling, queue, 0, 0)
    queue.replace(QueuedJobs(tuple(large), 0))
    assert decision(autoscaling, queue, 0, 0) == decision(
        Autoscaling(Settings()), Queue(large), 0, 0
    )
