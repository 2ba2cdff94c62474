"""Cores that Slurm has given to two jobs."""

from sidecars.bridge.core.records import Job, Phase, View
from sidecars.bridge.core.twice import given_twice
from sidecars.contract.bridge import Comment


def job(job_id: int, phase: Phase = Phase.RUNNING, **cpus: int) -> Job:
    return Job(job_id, phase, "ada", Comment("team", f"g{job_id}"), cpus=tuple(cpus.items()))


def found(*jobs: Job, **cpus: int) -> set[str]:
    return set(given_twice(View((), {it.job_id: it for it in jobs}, known=True, cpus=cpus)))


def test_a_node_has_as_many_cpus_as_its_running_jobs_or_more() -> None:
    assert found(job(1, a=4, b=1), job(2, a=4), a=8, b=1) == set()
    assert found(job(1, a=4, b=1), job(2, a=5), a=8, b=1) == {"a"}


def test_jobs_that_are_suspended_wait_or_have_ended_do_not_count() -> None:
    for phase in (Phase.STOPPED, Phase.PENDING, Phase.ENDED):
        assert found(job(1, a=8), job(2, phase, a=8), a=8) == set()
    assert found(job(1, a=8), job(2, Phase.STARTING, a=8), a=8) == {"a"}


def test_a_node_without_a_record_is_not_judged() -> None:
    assert found(job(1, a=4)) == set()
