"""What a job requests, by its record."""

import pytest

from sidecars.bridge.core.placeholder import asked_of
from sidecars.bridge.core.records import Asked
from sidecars.slurm.external import ExternalJob


@pytest.mark.parametrize(("tasks", "memory"), [(1, 1000), (2, 500)])
def test_what_a_job_requests_is_by_its_record(tasks: int, memory: int) -> None:
    record = ExternalJob(
        *(7, frozenset({"PENDING"})),
        partition="p,q",
        tasks=tasks,
        memory_per_task=memory,
        gres_per_task="gres/gpu:1",
    )
    assert asked_of(record) == Asked(("p", "q"), tasks, 1, memory, "gres/gpu:1")
