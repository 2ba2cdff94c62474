"""A partition is removed from slurm.conf only when no job is lost with it."""

import pytest

from sidecars.policy.nodeset.partitions import FINISHED_FOR, blocked, message
from sidecars.slurm.records import Job, Partition

NOW = 1_000_000.0
CLOSED = Partition("gpu", states=frozenset({"INACTIVE"}))


def job(job_id: int, state: str, partition: str = "gpu", ended: float = 0.0) -> Job:
    return Job(job_id, states=frozenset({state}), partition=partition, end_time=int(ended))


def test_a_partition_that_no_job_names_may_go() -> None:
    assert (
        blocked(["gpu"], [CLOSED], [job(1, "RUNNING", "all"), job(2, "PENDING", "cpu")], NOW) == ()
    )


def test_one_that_slurm_does_not_have_may_go() -> None:
    assert blocked(["gpu"], [], [], NOW) == ()


def test_it_has_to_be_closed_first_so_that_no_job_comes_meanwhile() -> None:
    (found,) = blocked(["gpu"], [Partition("gpu", states=frozenset({"UP"}))], [], NOW)
    assert found.why == "Slurm has not closed it yet"


@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "SOMETHING_NEW"]
)
def test_an_unfinished_job_is_named(state: str) -> None:
    (found,) = blocked(["gpu"], [CLOSED], [job(7, state)], NOW)
    assert "1 job (7)" in found.why


def test_a_pending_job_with_another_partition_to_go_to_is_no_obstacle() -> None:
    known = [CLOSED, Partition("all", states=frozenset({"UP"}))]
    assert blocked(["gpu"], known, [job(7, "PENDING", "gpu,all")], NOW) == ()
    assert blocked(["gpu"], known, [job(7, "RUNNING", "gpu,all")], NOW) != ()
    both = blocked(["gpu", "all"], [CLOSED], [job(7, "PENDING", "gpu,all")], NOW)
    assert [it.partition for it in both] == ["gpu", "all"]


def test_a_pending_job_has_no_other_partition_in_one_that_is_closed_or_gone() -> None:
    job_of_both = job(7, "PENDING", "gpu,cpu")
    closed = Partition("cpu", states=frozenset({"INACTIVE"}))
    for known in ([CLOSED, closed], [CLOSED]):
        (found,) = blocked(["gpu"], known, [job_of_both], NOW)
        assert "1 job (7)" in found.why


def test_records_of_finished_jobs_are_waited_for_as_long_as_slurm_keeps_them() -> None:
    (found,) = blocked(["gpu"], [CLOSED], [job(7, "COMPLETED", ended=NOW - FINISHED_FOR + 4)], NOW)
    assert (found.look_again, "1 finished" in found.why) == (4.0, True)
    assert blocked(["gpu"], [CLOSED], [job(7, "COMPLETED", ended=NOW - FINISHED_FOR)], NOW) == ()


def test_the_condition_names_partition_jobs_and_remedy() -> None:
    text = message(
        blocked(["gpu"], [CLOSED], [job(number, "PENDING") for number in range(1, 9)], NOW)
    )
    assert text == (
        "partition gpu is being closed and stays while 8 jobs (1, 2, 3, 4, 5, …) would be lost: "
        "cancel or move them. To remove it with its jobs, set spec.forceRemoval"
    )
