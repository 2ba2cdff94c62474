"""What a decision needs is read, and the decision is taken again:
`sidecars.operator.nodeset.answers`.
"""

from itertools import count, pairwise

import msgspec
import pytest

from sidecars.kube import NotFound
from sidecars.kube.errors import api_error
from sidecars.operator.nodeset import answers
from sidecars.operator.nodeset.answers import as_answer
from sidecars.policy.nodeset.decide import Decision, decide
from sidecars.policy.nodeset.maintenance import name_of
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.needs import (
    Answer,
    Failed,
    IsHidden,
    IsLost,
    Known,
    NodeRecords,
    Pending,
    SlurmctldStart,
)
from sidecars.policy.nodeset.records import Desired, Observed
from sidecars.simulate import Fault
from sidecars.slurm.errors import NotYet, Rejected, ServerFault, Unreachable
from tests.support.operator_parts import EPOCH, Parts, SlurmConnection
from tests.support.virtual_time import run
from tests.support.world.world import Broken, world
from tests.unit.operator.nodeset.builders import begin


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


def test_a_decision_that_never_ends_is_an_error_and_does_not_stop_the_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = count()

    def endless(*_: object) -> Decision:
        return Decision(Memory(), needs=(NodeRecords(float(next(numbers))),))

    async def scenario() -> None:
        async with world(1) as w:
            w.nodeset(replicas=1)
            monkeypatch.setattr(answers, "decide", endless)
            await w.run(10)

    with pytest.raises(Broken, match="still needs"):
        run(scenario())


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


def test_reservations_that_can_not_be_read_delay_nothing_else_of_a_nodeset() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.slurms["slurm", "slurm"].reserve(name_of("slinky"), "n[3-1]", start=2**32, minutes=60)
            strategy = {
                "type": "ScheduledUpdate",
                "scheduledUpdate": {"startTime": "2026-12-24T12:00:00Z"},
            }
            w.nodeset(replicas=2, updateStrategy=strategy)
            await w.run(90)
            w.change("slinky", {"replicas": 3})
            await w.until("3 pods", lambda: len(w.pods()) == 3)
            shown = w.condition("slinky", "ReservationCreated")
            assert (shown["status"], "'n[3-1]'" in shown["message"]) == ("Unknown", True)

    run(scenario())


def test_the_time_of_a_pass_does_not_go_on_while_it_reads_so_that_it_needs_each_answer_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[tuple[float, int]] = []

    def watched(desired: Desired, observed: Observed, memory: Memory, now: float) -> Decision:
        steps.append((observed.clock, len(observed.answers)))
        return decide(desired, observed, memory, now)

    monkeypatch.setattr(answers, "decide", watched)

    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=1, partition={"enabled": True})
            await w.until(
                "the partition", lambda: "slinky" in w.slurms["slurm", "slurm"].partitions
            )
            await w.run(20)
            w.change("slinky", {"partition": {"enabled": False}})
            await w.run(3)

    run(scenario())
    repeated = [(before[0], after[0]) for before, after in pairwise(steps) if after[1] > before[1]]
    assert repeated
    assert all(before == after for before, after in repeated)


@pytest.mark.looptime
async def test_kubernetes_reports_when_slurmctld_started_and_a_reconfigure_is_no_start() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    await parts.connect()
    parts.slurmctld_pod(started=slurm.now - 600)
    slurm.model.versions = ("v0.0.44",)
    slurm.model.fail(Fault.SERVER_ERROR, path="conf")
    slurm.model.reconfigure()
    this = begin(parts)
    assert await answers._answer(this, SlurmctldStart()) == Known(slurm.now - 600)
    # The cache is behind: its container has started again.
    cached = parts.runtime.caches.slurmctld_pods.store.values()
    parts.slurmctld_pod(started=slurm.now)
    for pod in cached:
        parts.runtime.caches.slurmctld_pods.store.put(pod)
    assert await answers._answer(this, SlurmctldStart()) == Known(slurm.now)
    parts.slurmctld_pod(started=None)
    assert isinstance(await answers._answer(this, SlurmctldStart()), Failed)
    parts.requests.stored.clear()
    with pytest.raises(NotFound):
        await answers._answer(this, SlurmctldStart())


@pytest.mark.looptime
async def test_without_a_pod_of_slurmctld_its_start_is_unknown() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    await parts.connect()
    assert isinstance(await answers._answer(begin(parts), SlurmctldStart()), Failed)


@pytest.mark.looptime
async def test_with_standbys_the_take_over_of_the_primary_is_a_start() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    await parts.connect()
    parts.controller(ha={"enabled": True})
    this, long_ago = begin(parts), "2023-11-14T22:00:00Z"

    async def start() -> Answer:
        return await answers._answer(this, SlurmctldStart())

    parts.slurmctld_pod(0, started=slurm.now - 600, active_since=long_ago)
    parts.slurmctld_pod(1, started=slurm.now - 300)
    assert await start() == Known(slurm.now - 600)
    parts.slurmctld_pod(0, started=None)
    assert isinstance(await start(), Failed)  # none is labelled
    parts.slurmctld_pod(1, started=slurm.now - 300, active_since="2023-11-14T22:13:00Z")
    assert await start() == Known(EPOCH - 20)
    parts.slurmctld_pod(0, started=slurm.now - 10, active_since=long_ago)
    assert isinstance(await start(), Failed)  # two are
    parts.slurmctld_pod(1, started=None)
    parts.slurmctld_pod(0, started=slurm.now - 10, active_since="unreadable")
    assert isinstance(await start(), Failed)


@pytest.mark.looptime
async def test_an_external_slurmctlds_start_is_unknown_only_if_it_does_not_report_it() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    await parts.connect()
    parts.controller(external=True)
    this = begin(parts)
    assert await answers._answer(this, SlurmctldStart()) == Known(slurm.now)
    slurm.model.fail(Fault.EMPTY, path="conf")
    assert isinstance(await answers._answer(this, SlurmctldStart()), Failed)
    slurm.model.heal()
    slurm.model.fail(Fault.SERVER_ERROR, path="conf")
    with pytest.raises(ServerFault):
        await answers._answer(this, SlurmctldStart())
    slurm.model.heal()
    slurm.model.versions = ("v0.0.44",)
    assert await answers._answer(this, SlurmctldStart()) == Known(None)


async def test_a_pod_is_hidden_while_the_cache_lacks_it_and_one_that_is_gone_is_not() -> None:
    parts = Parts()
    this = begin(parts)
    assert await answers._answer(this, IsHidden("slinky-0")) == Known(False)
    pod = parts.pod("slinky-0")
    parts.requests.stored["Pod", "slinky-0"] = {
        "metadata": {"namespace": "slurm", "name": "slinky-0", "uid": "slinky-0"}
    }
    assert await answers._answer(this, IsHidden("slinky-0")) == Known(False)
    former = msgspec.structs.replace(pod.metadata, uid="former")
    parts.runtime.caches.pods.store.put(msgspec.structs.replace(pod, metadata=former))
    assert await answers._answer(this, IsHidden("slinky-0")) == Known(True)


async def test_a_node_that_is_gone_or_marked_out_of_service_is_lost_whatever_is_cached() -> None:
    parts = Parts()
    this = begin(parts)
    parts.kube_node("kube-1")
    assert await answers._answer(this, IsLost("kube-1")) == Known(True)
    node = {"metadata": {"name": "kube-1"}, "spec": {}}
    parts.requests.stored["Node", "kube-1"] = node
    assert await answers._answer(this, IsLost("kube-1")) == Known(False)
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    parts.requests.stored["Node", "kube-1"] = node | {"spec": {"taints": [taint]}}
    assert await answers._answer(this, IsLost("kube-1")) == Known(True)
