"""The queue: its order, and that changes of single jobs give the same as a new queue."""

from collections.abc import Sized
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.autoscaling.queue import MOST_REQUESTS, Look, Queue, index_count
from sidecars.autoscaling.records import Settings
from sidecars.slurm.records import QueuedJob, QueuedJobs
from tests.unit.autoscaling.builders import NOW, job

FIELDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "tasks": st.integers(1, 3),
        "priority": st.integers(0, 3),
        "submit_time": st.integers(0, 2),
        "eligible_time": st.sampled_from([0, int(NOW) - 1, int(NOW) + 50]),
        "reason": st.sampled_from(["Resources", "Licenses"]),
        "dependency": st.sampled_from(["", "", "after:1"]),
    },
    optional={
        "array_tasks": st.sampled_from(["1-4", "7"]),
        "array_max_running": st.integers(1, 3),
        "het_job_id": st.integers(1, 3),
    },
)


def made(job_id: int, fields: dict[str, Any], kind: str) -> QueuedJob:
    fields = dict(fields)
    if kind == "running":
        return QueuedJob(job_id, frozenset({"RUNNING"}), array_job_id=job_id % 3)
    if kind == "ended":
        return QueuedJob(job_id, frozenset({"COMPLETED"}), array_job_id=job_id % 3)
    if "array_tasks" in fields or "array_max_running" in fields:
        fields.pop("het_job_id", None)
        fields["array_job_id"] = job_id % 3
    if "het_job_id" in fields:
        fields["het_job_ids"] = "1-2"
    return job(job_id, **fields)


JOBS = st.tuples(
    st.integers(1, 12), FIELDS, st.sampled_from(["pending", "pending", "running", "ended"])
)


def comparable(look: Look) -> Any:
    runs = [
        ([id(it) for it in run.bundle] and len(run.bundle), run.jobs, run.counts)
        for run in look.runs
    ]
    return runs, sorted((it.reason, it.detail, it.count, it.jobs) for it in look.excluded)


@given(
    st.lists(JOBS, max_size=12),
    st.lists(st.lists(JOBS | st.integers(1, 12), max_size=4), max_size=5),
)
def test_a_changed_queue_is_what_a_new_queue_of_the_same_jobs_is(before: Any, steps: Any) -> None:
    present = {job_id: made(job_id, fields, kind) for job_id, fields, kind in before}
    queue, replaced = Queue(present.values()), Queue()
    now = NOW - 60
    for step in steps:
        now += 40
        removed = [it for it in step if isinstance(it, int)]
        changed = {it[0]: made(*it) for it in step if not isinstance(it, int)}
        for job_id in removed:
            present.pop(job_id, None)
        present |= changed
        queue.update(changed.values(), removed)
        fresh = Queue(present.values())
        assert comparable(queue.look(now)) == comparable(fresh.look(now))
        replaced.replace(QueuedJobs(tuple(present.values()), 0))
        assert comparable(replaced.look(now)) == comparable(fresh.look(now))


def test_a_list_that_does_not_show_exclusive_jobs_is_counted_so() -> None:
    jobs = (job(1), job(2))
    queue = Queue(jobs)
    for known in (True, False, True):
        queue.replace(QueuedJobs(jobs, 0, exclusive_known=known))
        (run,) = queue.look(NOW).runs
        assert (run.bundle[0].alone is None) == known


def test_jobs_are_taken_by_tier_then_priority_then_age_then_id() -> None:
    jobs = [
        job(1, priority=5, tasks=1),
        job(2, priority=9, tasks=2, submit_time=7),
        job(3, priority=9, tasks=3, submit_time=6),
        job(4, priority=9, tasks=4, submit_time=6),
        job(5, priority=1, tasks=5, partitions=("all", "fast")),
    ]
    assert [run.jobs for run in Queue(jobs, Settings(tiers={"fast": 2})).look(NOW).runs] == [
        (5,),
        (3,),
        (4,),
        (2,),
        (1,),
    ]


def test_jobs_in_a_row_that_request_the_same_are_one_run() -> None:
    jobs = [job(i, priority=10 - i, tasks=1 + (i == 3)) for i in range(1, 6)]
    assert [run.jobs for run in Queue(jobs).look(NOW).runs] == [(1, 2), (3,), (4, 5)]


def test_a_job_counts_from_its_begin_time_on() -> None:
    queue = Queue([job(eligible_time=int(NOW) + 10, reason="BeginTime")])
    assert not queue.look(NOW).runs
    assert [run.jobs for run in queue.look(NOW + 10).runs] == [(1,)]
    assert not queue.look(NOW + 10).excluded


def test_the_numbers_of_a_list_are_counted() -> None:
    counts = {
        "": 0,
        "5": 1,
        "0-9": 10,
        "0-9:2": 5,
        "1,3,5-7": 5,
        "1-3,...": 3,
        "0-9999": 10_000,
        "x": 1,
        "9-1": 1,
    }
    assert {text: index_count(text) for text in counts} == counts


def test_a_queue_is_worn_when_it_remembers_too_many_requests_of_former_jobs() -> None:
    queue = Queue()
    for memory in range(1, MOST_REQUESTS + 2):
        assert not queue.worn
        queue.update([job(1, memory_per_node=memory)])
        queue.update([], [1])
    assert queue.worn


def remembered(queue: Queue) -> dict[str, int]:
    """How many things the queue has of each sort."""
    return {name: len(it) for name, it in vars(queue).items() if isinstance(it, Sized)}


@given(st.lists(st.lists(JOBS, max_size=8), max_size=6))
def test_nothing_of_jobs_that_are_gone_is_remembered_but_their_requests(steps: Any) -> None:
    queue = Queue()
    queue.look(NOW)
    empty = remembered(queue)
    for number, step in enumerate(steps):
        queue.update([made(100 * number + it[0], *it[1:]) for it in step])
        queue.look(NOW)
    queue.update([], [100 * number + it[0] for number, step in enumerate(steps) for it in step])
    queue.look(NOW)
    assert remembered(queue) | {"_needs": 0} == empty


def test_a_year_of_arrays_and_heterogeneous_jobs_leaves_nothing_behind() -> None:
    queue = Queue([job(1)])
    queue.look(NOW)
    before = remembered(queue)
    for number in range(1000, 6000, 5):
        array: dict[str, Any] = {
            "array_job_id": number,
            "array_tasks": "1-9",
            "array_max_running": 2,
        }
        queue.update(
            [
                job(number, **array),
                QueuedJob(number + 1, frozenset({"RUNNING"}), array_job_id=number),
                job(number + 2, het_job_id=number + 2, het_job_ids=f"{number + 2}-{number + 3}"),
                QueuedJob(number + 4, frozenset({"COMPLETED"}), array_job_id=number),
            ]
        )
        queue.look(NOW)
        queue.update([], range(number, number + 5))
    queue.look(NOW)
    assert remembered(queue) == before


@pytest.mark.parametrize(
    ("max_nodes", "counts"), [({}, True), ({"all": 2}, True), ({"all": 1}, False)]
)
def test_a_job_for_more_nodes_than_the_partition_has_counts_unless_its_maximum_is_lower(
    max_nodes: dict[str, int], counts: bool
) -> None:
    wide = job(1, reason="PartitionNodeLimit", min_nodes=2, max_nodes=2, tasks=2)
    look = Queue([wide], Settings(max_nodes=max_nodes)).look(NOW)
    assert [run.jobs for run in look.runs] == ([(1,)] if counts else [])
    assert bool(look.excluded) is not counts


def test_a_job_that_may_have_fewer_nodes_than_the_least_of_its_partition_does_not_count() -> None:
    settings = Settings(min_nodes={"all": 2})
    for most, counts in ((1, False), (2, True), (0, True)):
        few = job(1, reason="PartitionNodeLimit", max_nodes=most)
        assert bool(Queue([few], settings).look(NOW).runs) is counts


def test_jobs_that_request_the_same_as_one_at_a_limit_of_the_same_user_are_left_out() -> None:
    first = job(1, reason="QOSMaxGRESPerUser", qos="normal", user_name="ada")
    rest = [job(i, reason="Priority", qos="normal", user_name="ada") for i in range(2, 9)]
    others = [
        job(9, reason="Priority", qos="normal", user_name="bob"),
        job(10, reason="Priority", qos="high", user_name="ada"),
        job(11, reason="Priority", qos="normal", user_name="ada", tasks=2),
        job(12, reason="Resources", qos="normal", user_name="ada"),
    ]
    queue = Queue([first, *rest, *others])
    look = queue.look(NOW)
    assert sorted(it for run in look.runs for it in run.jobs) == [9, 10, 11, 12]
    [excluded] = look.excluded
    assert (excluded.reason.value, excluded.detail) == ("Limit", "QOSMaxGRESPerUser")
    assert excluded.count == 8
    queue.update([], [1])
    assert queue.look(NOW).excluded == ()
    queue.update([first])
    assert queue.look(NOW).excluded[0].count == 8
