"""What a decision needs is read, and the decision is taken again: `sidecars.operator.nodeset.answers`."""

import pytest

from sidecars.kube.errors import api_error
from sidecars.operator.nodeset.answers import as_answer
from sidecars.policy.nodeset.needs import Failed, Pending
from sidecars.simulate import Fault
from sidecars.slurm.errors import NotYet, Rejected, Unreachable
from tests.support.virtual_time import run
from tests.support.world.world import world


def test_a_read_that_takes_its_time_is_pending_and_one_that_fails_has_failed() -> None:
    late = NotYet("GET jobs/", "an answer is waited for")
    assert as_answer(late) == Pending(str(late))
    silent = Unreachable("GET jobs/", "no route")
    assert as_answer(silent) == Failed(str(silent), refused=False)
    broken = api_error(500, "InternalError", "x", request="GET pods")
    assert as_answer(broken) == Failed(str(broken), refused=False)


def test_only_a_refusal_is_final() -> None:
    answer = as_answer(Rejected("POST reservation", 200, ()))
    assert isinstance(answer, Failed)
    assert answer.refused


def test_a_mistake_of_the_programs_own_is_no_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        as_answer(ZeroDivisionError())


def test_a_drained_pod_is_not_deleted_while_the_jobs_can_not_be_read() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=2)
            await w.run(20)
            w.slurms["slurm", "slurm"].fail(Fault.SERVER_ERROR, path="jobs/")
            w.change("slinky", {"replicas": 1})
            await w.run(20)
            assert len(w.pods()) == 2
            assert "the jobs can't be read" in w.condition("slinky")["message"]

    run(scenario())


def test_the_time_of_a_pass_does_not_go_on_while_it_reads_so_that_it_needs_each_answer_once() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=1, partition={"enabled": True})
            await w.until("the partition", lambda: "slinky" in w.slurms["slurm", "slurm"].partitions)
            await w.run(20)
            slurm = w.slurms["slurm", "slurm"]
            w.job(1, 60)
            await w.run(5)
            slurm.calls.clear()
            w.change("slinky", {"partition": {"enabled": False}})
            # What a pass reads takes a moment, so a pass that reads again and again asks many times a second.
            await w.run(3)
            assert 0 < len([call for call in slurm.calls if call.path.startswith("partitions")]) <= 8

    run(scenario())
