"""Slurmds that end of a configuration, in virtual time: the former one is restored."""

from dataclasses import replace

import pytest

from sidecars.contract.status import Stage
from sidecars.reconfigure import watch
from sidecars.reconfigure.actions import Looked
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.slurmds import Slurmd
from sidecars.reconfigure.states import Phase
from tests.unit.reconfigure.simulation import Pod, config, workers

A, B, C = config("a"), config("b"), config("c")
W = Slurmd("w-0", "10.0.0.1", 6818, "monday")


def running(*ending: Id, count: int = 3) -> Pod:
    """A pod whose slurmctld and slurmds run A."""
    pod = Pod(candidate=A, ending=set(ending), workers=workers(count))
    pod.settle()
    pod.run(5)
    pod.done.clear()
    return pod


def until_watching(pod: Pod) -> None:
    """Run until its slurmds are watched."""
    for _ in range(1000):
        if pod.state.phase is Phase.WATCH:
            return
        pod.run(0.1)
    raise AssertionError(pod.state)


def test_a_configuration_of_which_slurmds_end_is_reverted_within_seconds_and_they_run_again() -> (
    None
):
    pod = running(B)
    pod.candidate, began = B, pod.now
    pod.settle()
    assert pod.now - began < 20
    assert (pod.folder, pod.reads, pod.good, pod.starts) == (A, A, A, 1)
    assert all(it.listens and it.has == A for it in pod.workers)
    rejected = pod.state.rejected
    assert rejected is not None
    assert (rejected.id, rejected.stage, rejected.final, rejected.daemon) == (
        B,
        Stage.SLURMD,
        True,
        "slurmd",
    )
    assert rejected.nodes == ("w-0", "w-1", "w-2")
    assert (
        str(rejected.culprit)
        == "slurmd ended on 3 workers of 3 when it read the configuration: w-0, w-1, w-2"
    )


def test_it_is_not_tried_again_while_the_values_are_unchanged() -> None:
    pod = running(B)
    pod.candidate = B
    pod.settle()
    assert pod.state.rejected is not None
    refused_at = pod.state.rejected.since
    pod.done.clear()
    pod.run(300)
    for begins_again in (pod.restart_sidecar, pod.restart_pod):
        begins_again()
        pod.run(60)
        assert (pod.reads, pod.good, pod.state.phase) == (A, A, Phase.SETTLED)
        assert pod.state.rejected is not None
        assert (pod.state.rejected.stage, pod.state.rejected.nodes) == (
            Stage.SLURMD,
            ("w-0", "w-1", "w-2"),
        )
        assert pod.state.rejected.since == refused_at
    assert "Check" not in pod.done
    pod.candidate = replace_keys(B)
    pod.run(60)
    assert pod.reads == A


def replace_keys(which: Id) -> Id:
    """The same configuration with other keys."""
    return Id(which.config, "other")


def test_another_configuration_ends_the_refusal() -> None:
    pod = running(B)
    pod.candidate = B
    pod.settle()
    pod.candidate = C
    pod.run(40)
    assert (pod.reads, pod.good, pod.refused, pod.state.rejected) == (C, C, None, None)
    pod.ending.clear()  # As with another image of the workers.
    pod.candidate = B
    pod.run(40)
    assert (pod.reads, pod.good) == (B, B)


def test_the_former_configuration_ends_the_refusal() -> None:
    pod = running(B)
    pod.candidate = B
    pod.settle()
    pod.candidate = A
    pod.run(2)
    assert (pod.refused, pod.state.rejected) == (None, None)


def test_slurmds_that_take_a_configuration_are_watched_only_until_they_have_registered() -> None:
    pod = running()
    pod.candidate = B
    pod.run(1)
    assert (pod.state.phase, pod.state.running, pod.good) == (Phase.WATCH, B, A)
    pod.run(3)
    assert (pod.state.phase, pod.good, pod.reads) == (Phase.SETTLED, B, B)


def test_one_slurmd_of_many_is_enough() -> None:
    pod = running(count=5)
    pod.candidate = B
    until_watching(pod)
    pod.workers[3].listens, pod.workers[3].has = False, B
    pod.settle()
    assert (pod.reads, pod.good) == (A, A)
    assert pod.state.rejected is not None
    assert pod.state.rejected.nodes == ("w-3",)


@pytest.mark.parametrize("field", ["mute", "out", "gone"])
def test_what_is_not_known_of_a_slurmd_is_no_evidence(field: str) -> None:
    pod = running(B)
    pod.candidate = B
    until_watching(pod)
    for worker in pod.workers:
        setattr(worker, field, True)
    pod.run(60)
    assert (pod.reads, pod.good, pod.state.rejected) == (B, B, None)


def test_a_slurmd_that_had_ended_before_is_no_evidence() -> None:
    pod = running(B)
    for worker in pod.workers:
        worker.listens = False
    pod.candidate = B
    pod.run(60)
    assert (pod.reads, pod.good, pod.state.rejected) == (B, B, None)


def test_a_slurmd_that_is_started_again_for_another_cause_is_no_evidence() -> None:
    pod = running()
    pod.candidate = B
    until_watching(pod)
    pod.workers[0].listens = False
    pod.run(watch.ENDED - 1)
    pod.workers[0].listens = True
    pod.run(60)
    assert (pod.reads, pod.good, pod.state.rejected) == (B, B, None)


def test_a_pod_that_has_replaced_another_is_no_evidence() -> None:
    pod = running(B)
    pod.candidate = B
    until_watching(pod)
    for worker in pod.workers:
        worker.record = replace(worker.record, address="10.1.0.1")
    pod.run(60)
    assert (pod.reads, pod.good) == (B, B)


def test_a_correction_that_comes_while_slurmds_end_is_tried_after_the_former_one_is_restored() -> (
    None
):
    pod = running(B)
    pod.candidate = B
    until_watching(pod)
    pod.run(3)
    pod.candidate = C
    pod.run(60)
    assert (pod.reads, pod.good, pod.state.rejected, pod.refused) == (C, C, None, None)
    assert pod.installed[1:] == [B, A, C]
    assert all(it.listens for it in pod.workers)


def test_a_change_that_follows_one_of_unknown_outcome_is_reverted_to_the_last_good_one() -> None:
    pod = running(B, C)
    pod.candidate = B
    until_watching(pod)
    pod.candidate = C
    pod.run(60)
    assert pod.installed[1:] == [B, C, A]
    assert (pod.reads, pod.good) == (A, A)
    assert pod.state.rejected is not None
    assert pod.state.rejected.id == C


def test_one_that_is_refused_while_another_is_watched_leaves_that_watched() -> None:
    pod = running(B)
    pod.candidate, pod.bad = B, {C}
    until_watching(pod)
    pod.candidate = C
    pod.run(60)
    assert pod.installed[1:] == [B, A]


def test_one_that_restarted_slurmctld_is_reverted_by_another_restart() -> None:
    pod = running(B)
    pod.candidate, pod.needs_restart = B, {B}
    pod.settle()
    assert (pod.reads, pod.good, pod.starts) == (A, A, 3)
    assert "Reconfigure" not in pod.done


def test_a_slurmctld_that_ends_while_the_former_one_is_restored_starts_with_it() -> None:
    pod = running(B)
    pod.candidate = B
    until_watching(pod)
    while not pod.state.restoring:
        pod.run(0.1)
    pod.end_slurmctld()
    pod.settle()
    assert (pod.folder, pod.reads, pod.good) == (A, A, A)
    assert pod.state.rejected is not None
    assert pod.state.rejected.stage is Stage.SLURMD


def test_a_slurmctld_that_refuses_the_former_one_is_started_with_it() -> None:
    pod = running(B)
    pod.candidate, pod.refused_live = B, {A}
    pod.settle()
    pod.run(10)
    assert (pod.folder, pod.reads, pod.good, pod.starts) == (A, A, A, 2)


def test_a_standby_goes_back_to_the_last_good_one_when_the_primary_has_refused_it() -> None:
    pod = running(count=0)  # A standby lists no nodes.
    pod.candidate = B
    pod.settle()
    assert pod.good == B
    primary = running(B)
    primary.candidate = B
    primary.settle()
    pod.refused, pod.good = primary.refused, A
    pod.run(5)
    assert (pod.folder, pod.reads, pod.good) == (A, A, A)
    assert pod.state.rejected is not None
    assert pod.state.rejected.stage is Stage.SLURMD


def test_a_standby_that_lags_does_not_forget_what_the_primary_has_refused() -> None:
    pod = running(count=0)
    primary = running(B)
    primary.candidate = B
    primary.settle()
    pod.refused = primary.refused
    pod.run(10)
    pod.candidate = B
    pod.run(10)
    assert pod.refused is not None
    assert pod.reads == A


def test_a_sidecar_that_ends_before_it_could_restore_the_former_one_does_so_later() -> None:
    pod = running(B)
    pod.candidate = B
    until_watching(pod)
    while pod.refused is None:
        pod.run(0.1)
    pod.folder = pod.reads = B
    pod.folder_at = pod.now
    pod.restart_sidecar()
    pod.settle()
    assert (pod.folder, pod.reads, pod.good) == (A, A, A)


def test_without_a_last_good_one_a_refused_configuration_is_tried() -> None:
    pod = running(B)
    pod.candidate = B
    pod.settle()
    pod.good = None
    pod.restart_pod()
    pod.settle()
    assert pod.reads == B


def test_many_nodes_are_counted_and_some_are_named() -> None:
    names = tuple(f"w-{number}" for number in range(7))
    found = watch.culprit(names, 9)
    assert found.reason.endswith(
        "ended on 7 workers of 9 when it read the configuration: w-0, w-1, w-2, w-3, w-4 and 2 more"
    )
    assert watch.culprit(names[:5], 9).reason.endswith(": w-0, w-1, w-2, w-3, w-4")
    assert "on 1 worker of 1" in watch.culprit(("w",), 1).reason


def test_the_first_look_at_a_silent_slurmd_is_when_it_began() -> None:
    seen = Looked((W,), {"w-0": False})
    left, silent = watch.looked((W,), {}, seen, 10.0)
    assert (left, silent) == ((W,), {"w-0": 10.0})
    left, silent = watch.looked(left, silent, seen, 14.0)
    assert silent == {"w-0": 10.0}
    assert watch.ended(silent, 14.9) == ()
    assert watch.ended(silent, 15.0) == ("w-0",)
    assert watch.looked(left, silent, Looked((W,), {"w-0": True}), 14.0) == ((W,), {})
