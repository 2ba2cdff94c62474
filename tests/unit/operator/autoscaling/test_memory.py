"""What is remembered of a queue: `sidecars.operator.autoscaling.memory`."""

from sidecars.autoscaling.records import Settings
from sidecars.operator.autoscaling.memory import QueueMemory
from sidecars.slurm.records import QueuedJobs
from tests.unit.autoscaling.builders import job


def waiting(memory: QueueMemory) -> set[int]:
    assert memory.queue is not None
    return {number for run in memory.queue.look(0.0).runs for number in run.jobs}


def test_a_list_of_jobs_changes_the_queue_by_what_differs() -> None:
    memory, one, two, three = QueueMemory(), job(1), job(2), job(3)
    queue = memory.update(QueuedJobs((one, two), 1), Settings())
    assert waiting(memory) == {1, 2}
    assert memory.update(QueuedJobs((two, three), 2), Settings()) is queue
    assert waiting(memory) == {2, 3}
    assert memory.update(QueuedJobs((job(2, reason="JobHeldUser"), three), 3), Settings()) is queue
    assert waiting(memory) == {3}


def test_other_settings_begin_anew() -> None:
    memory, listed = QueueMemory(), QueuedJobs((job(1),), 1)
    queue, planner = memory.update(listed, Settings()), memory.planner
    assert memory.update(listed, Settings(tiers={"all": 5})) is not queue
    assert memory.planner is not planner
    assert waiting(memory) == {1}
