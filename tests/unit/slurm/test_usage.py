"""What the exporter reads: nodes and jobs with their loads, as recorded and as damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.errors import Malformed
from sidecars.slurm.streaming import JobsReader
from sidecars.slurm.usage import JobUsage, JobUsages

FIXTURES = Path(__file__).parent / "fixtures"
REQUEST = protocol.get_job_usage()


def answer(*jobs: dict[str, Any]) -> bytes:
    return json.dumps(
        {"jobs": jobs, "last_update": {"set": True, "infinite": False, "number": 7}}
    ).encode()


def decoded(*jobs: dict[str, Any]) -> tuple[JobUsage, ...]:
    found = protocol.decode(REQUEST, 200, answer(*jobs))
    assert isinstance(found, JobUsages)
    assert found.last_update == 7
    return found.jobs


def test_a_recorded_pending_job_of_slurm_is_read() -> None:
    (job,) = decoded(json.loads((FIXTURES / "v0.0.45-job_pending.json").read_text()))
    assert job == JobUsage(
        job_id=1,
        states=frozenset({"PENDING"}),
        reason="JobHeldUser",
        released=False,
        name="bench",
        partition="all",
        user="root",
        submit_time=1795278297,
        cpus=1,
        node_count=1,
    )


def test_a_user_without_a_name_has_the_number() -> None:
    (job,) = decoded({"job_id": 1, "user_name": "", "user_id": 4711})
    assert (job.user, job.user_id) == ("4711", 4711)


@pytest.mark.parametrize(
    ("indexes", "tasks"),
    [
        ("", 1),
        ("5", 1),
        ("0-9", 10),
        ("1-10000%50", 10_000),
        ("0-99:2,200", 51),
        ("1,3,5,...", 3),
        ("9-1", 1),
    ],
)
def test_the_tasks_of_an_array_are_counted(indexes: str, tasks: int) -> None:
    assert decoded({"job_id": 1, "array_task_string": indexes})[0].tasks == tasks


@pytest.mark.parametrize(
    ("tres", "mebibytes"),
    [
        ("cpu=2,mem=24105M,node=1", 24105),
        ("mem=1.5G", 1536),
        ("cpu=1", 0),
        ("mem=2T,node=1", 2 * 2**20),
        ("mem=x", 0),
    ],
)
def test_allocated_memory_is_read_in_slurms_units(tres: str, mebibytes: int) -> None:
    assert decoded({"job_id": 1, "tres_alloc_str": tres})[0].memory == mebibytes


def test_jobs_read_as_they_arrive_are_the_same_as_read_as_a_whole() -> None:
    jobs = [
        {"account": "a", "job_id": n, "gres_detail": [f"gpu:{n}"], "cpus": n} for n in range(1, 30)
    ]
    text = answer(*jobs)
    reader = JobsReader(REQUEST.all_jobs) if REQUEST.all_jobs is not None else JobsReader()
    for start in range(0, len(text), 17):
        reader.feed(text[start : start + 17])
    found = protocol.decode(REQUEST, 200, reader.start, parse=lambda _: reader.finish())
    assert found is not None
    assert found.jobs == decoded(*jobs)


def test_no_news_is_none_and_a_wrong_field_is_reported_with_its_place() -> None:
    unchanged = json.dumps({"jobs": [], "last_update": 0}).encode()
    assert protocol.decode(protocol.get_job_usage(5), 200, unchanged) is None
    assert protocol.decode(protocol.get_node_usage(5), 304, b"") is None
    with pytest.raises(Malformed, match=r"jobs\[0\]\.cpus"):
        decoded({"job_id": 1, "cpus": "many"})


def test_a_load_that_slurmd_has_not_reported_is_unknown() -> None:
    node = {"name": "a", "state": ["IDLE"], "cpus": 4, "real_memory": 100, "specialized_memory": 10}
    body = json.dumps({"nodes": [{**node, "cpu_load": 0xFFFFFFFE}], "last_update": 1}).encode()
    found = protocol.decode(protocol.get_node_usage(), 200, body)
    assert found is not None
    (usage,) = found.nodes
    assert (usage.load, usage.free_memory, usage.effective_cpus, usage.effective_memory) == (
        None,
        None,
        4,
        90,
    )
