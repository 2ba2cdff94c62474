"""What `node` does in the life of a worker pod, in virtual time. The edges are in test_edge.py and
test_main.py.
"""

from dataclasses import replace

import pytest

from sidecars.contract.reasons import POD_GONE, POD_LEAVING, kept
from sidecars.node.machine import begin, step
from sidecars.node.records import (
    Claim,
    Delete,
    Down,
    Drain,
    Listening,
    Names,
    Observation,
    Phase,
    Read,
    Settings,
    Undrain,
)
from tests.unit.node.simulation import SCALE_IN, UID, Pod, Slurm, node, running_pod

# ---- before slurmd starts
# ----------------------------------------------------------------------------------------


def test_slurmd_may_start_at_once_when_no_record_of_its_name_exists() -> None:
    pod = Pod(Slurm())
    pod.run(0.1)
    assert pod.record == "none before"
    assert pod.phase is Phase.WATCH


def test_a_record_that_a_dead_predecessor_left_is_deleted_so_that_slurmd_registers_anew() -> None:
    pod = Pod(Slurm(node("IDLE", "NOT_RESPONDING", uid="uid-0")))
    pod.run(0.1)
    assert pod.slurm.record is None
    assert pod.record == "an earlier pod's, deleted"


def test_jobs_of_a_dead_predecessor_go_back_to_the_queue() -> None:
    pod = Pod(Slurm(node("MIXED", uid="uid-0")))
    pod.run(0.1)
    assert pod.slurm.calls == [Read(), Down(POD_GONE), Names(), Delete()]


def test_a_predecessors_record_that_a_job_names_is_taken_over() -> None:
    pod = Pod(Slurm(node("DOWN", uid="uid-0", reason=POD_GONE), named="job 17"))
    pod.run(5)
    assert pod.slurm.calls == [Read(), Names(), Claim()]
    assert pod.record == "an earlier pod's, taken over"


def test_the_jobs_are_not_read_for_a_record_whose_reason_reports_that_a_job_names_it() -> None:
    pod = Pod(Slurm(node("DOWN", "DRAIN", uid="uid-0", reason=kept(SCALE_IN, "job 17"))))
    pod.run(5)
    assert pod.slurm.calls == [Read(), Claim()]


def test_a_predecessors_record_is_taken_over_while_it_is_unknown_who_names_it() -> None:
    pod = Pod(Slurm(node("IDLE", uid="uid-0"), refuse=(Names,)))
    pod.run(120)
    assert Delete() not in pod.slurm.calls
    assert pod.slurm.calls[-1] == Claim()


def test_a_job_that_appears_before_the_deletion_is_queued_again_or_stays_on_the_record() -> None:
    pod = Pod(Slurm(node("IDLE", uid="uid-0"), refuse=(Delete,)))
    pod.run(0.1)
    assert pod.slurm.calls == [Read(), Names(), Delete(), Claim()]


def test_a_predecessor_whose_slurmd_still_answers_keeps_its_jobs() -> None:
    slurm = Slurm(node("MIXED", uid="uid-0"), listening=frozenset({"10.0.0.9"}))
    pod = Pod(slurm)
    pod.run(0.1)
    assert slurm.calls == [Read(), Claim()]
    assert slurm.busy


def test_a_foreign_drain_outlives_the_pod_it_was_put_on() -> None:
    pod = Pod(Slurm(node("MIXED", "DRAIN", uid="uid-0", reason="admin: bad memory")))
    pod.run(5)
    assert pod.slurm.record == replace(node("DOWN", "DRAIN", reason="admin: bad memory"))
    assert pod.record == "an earlier pod's, taken over"


def test_a_record_of_power_saving_is_claimed_whatever_became_of_the_former_pod() -> None:
    for words in (("IDLE", "POWERING_UP"), ("IDLE", "POWERED_DOWN"), ("IDLE",)):
        pod = Pod(Slurm(node("CLOUD", *words, uid="uid-0")))
        pod.run(0.1)
        assert pod.slurm.calls == [Read(), Claim()]


def test_a_job_that_waits_for_the_start_of_its_node_stays_there() -> None:
    pod = Pod(Slurm(node("ALLOCATED", "CLOUD", "POWERING_UP", uid="")))
    pod.run(0.1)
    assert pod.slurm.calls == [Read(), Claim()]
    assert pod.slurm.busy


def test_jobs_of_a_dead_pod_under_power_saving_are_queued_again_and_its_record_stays() -> None:
    pod = Pod(Slurm(node("ALLOCATED", "CLOUD", uid="uid-0")))
    pod.run(0.1)
    assert pod.slurm.calls == [Read(), Down(POD_GONE), Claim()]


def test_a_drain_that_a_predecessor_put_on_itself_is_lifted_where_its_record_must_stay() -> None:
    pod = Pod(
        Slurm(node("IDLE", "DRAIN", uid="uid-0", reason=POD_LEAVING, reservation="maintenance"))
    )
    pod.run(5)
    assert pod.slurm.record == node("IDLE", reservation="maintenance")


def test_the_record_of_this_pod_is_left_as_it_is_when_node_alone_is_restarted() -> None:
    pod = Pod(Slurm(node("MIXED")), slurmd_may_run=True)
    pod.run(5)
    assert pod.slurm.calls == [Read()]
    assert pod.record == "this pod's"


def test_a_drain_left_by_a_node_that_died_during_the_hook_is_lifted_when_slurmd_runs_on() -> None:
    pod = Pod(Slurm(node("IDLE", "DRAIN", reason=POD_LEAVING)), slurmd_may_run=True)
    pod.run(5)
    assert pod.slurm.record == node("IDLE")


def test_slurmd_starts_though_slurm_is_silent_and_the_record_is_taken_over_later() -> None:
    slurm = Slurm(node("IDLE", uid="uid-0"), silent=True)
    pod = Pod(slurm)
    pod.run(0.1)
    assert pod.record == "not known, Slurm doesn't answer"
    pod.run(600)
    assert len(slurm.calls) < 30
    slurm.silent = False
    pod.run(61)
    assert slurm.calls[-2:] == [Read(), Claim()]
    assert slurm.record == node("IDLE")


def test_a_record_is_never_deleted_once_slurmd_may_use_it() -> None:
    pod = Pod(Slurm(node("IDLE", uid="uid-0")), slurmd_may_run=True)
    pod.run(5)
    assert pod.slurm.calls == [Read(), Claim()]


def test_a_predecessors_record_is_left_alone_when_slurmd_was_released_during_the_read() -> None:
    claiming = replace(begin(0.0), record=node("MIXED", uid="uid-0"))
    seen = Observation(slurmd_may_run=True, answer=Listening(False))
    _, actions = step(Settings(pod_uid=UID, grace=100), claiming, seen, 1.0)
    assert actions == (Claim(),)


# ---- while nothing happens
# ---------------------------------------------------------------------------------------


def test_slurm_is_asked_nothing_while_nothing_happens() -> None:
    pod = running_pod("MIXED")
    pod.run(3600)
    assert pod.slurm.calls == []
    assert pod.log == []


# ---- slurmd is to be stopped
# -------------------------------------------------------------------------------------


def test_the_hook_waits_until_the_last_step_has_ended_and_slurm_reports_drained() -> None:
    pod = running_pod("MIXED")
    pod.hook(2)
    pod.run(30)
    assert pod.slurm.record == node("MIXED", "DRAIN", reason=POD_LEAVING)
    pod.steps = 0
    pod.slurm.record = node("IDLE", "DRAIN", "COMPLETING", reason=POD_LEAVING)
    pod.run(20)
    assert not pod.released
    pod.slurm.end_jobs()
    assert pod.run(30, until=lambda: pod.released) <= 6


def test_slurmd_runs_on_while_a_step_is_left_though_slurm_reports_the_node_as_drained() -> None:
    """The node of a suspended job is IDLE (scontrol, suspend)."""
    pod = running_pod("IDLE")
    pod.hook(1)
    pod.run(60)
    assert pod.slurm.record == node("IDLE", "DRAIN", reason=POD_LEAVING)
    assert not pod.released
    pod.steps = 0
    assert pod.run(30, until=lambda: pod.released) <= 6


def test_an_idle_node_is_released_at_once() -> None:
    pod = running_pod("IDLE")
    pod.hook(0)
    pod.run(5, until=lambda: pod.released)
    assert pod.released_at == pytest.approx(1001, abs=1.2)


def test_slurm_is_not_asked_while_steps_run() -> None:
    pod = running_pod("MIXED", grace=3600)
    pod.hook(3)
    pod.run(400)
    assert pod.slurm.calls == [Read(), Drain(POD_LEAVING), Read()]


def test_an_allocation_without_a_step_delays_the_hook_and_asks_slurm_ever_less_often() -> None:
    pod = running_pod("ALLOCATED", grace=3600)
    pod.hook(0)
    pod.run(1000)
    assert not pod.released
    assert len(pod.slurm.calls) < 300


def test_the_hook_ends_twenty_seconds_before_the_grace_does() -> None:
    pod = running_pod("MIXED", grace=100)
    pod.hook(1)
    assert pod.run(200, until=lambda: pod.released) == pytest.approx(80, abs=1)
    assert "1 slurmstepd left" in pod.log[-1]


def test_half_of_a_short_grace_is_kept_for_slurmds_end() -> None:
    pod = running_pod("MIXED", grace=30)
    pod.hook(1)
    assert pod.run(200, until=lambda: pod.released) == pytest.approx(15, abs=1)


def test_a_silent_slurm_delays_the_hook_only_while_steps_run_and_ten_seconds_more() -> None:
    pod = running_pod("MIXED", grace=3600)
    pod.slurm.silent = True
    pod.hook(1)
    pod.run(300)
    assert not pod.released
    pod.steps = 0
    assert pod.run(60, until=lambda: pod.released) == pytest.approx(10, abs=1)


def test_a_slurm_that_falls_silent_is_given_ten_seconds_from_its_last_word() -> None:
    pod = running_pod("ALLOCATED", grace=3600)
    pod.hook(0)
    pod.run(100)
    pod.slurm.silent = True
    assert 5 <= pod.run(60, until=lambda: pod.released) <= 11


def test_a_node_that_slurm_will_not_drain_is_released_without_steps() -> None:
    pod = running_pod("IDLE", grace=3600)
    pod.slurm.refuse = (Drain,)
    pod.hook(0)
    assert pod.run(60, until=lambda: pod.released) == pytest.approx(10, abs=1)


@pytest.mark.parametrize(
    "reason", ["admin: bad memory", "slurm-operator: scale-in", "Kill task failed"]
)
def test_a_drain_that_is_there_keeps_its_reason(reason: str) -> None:
    pod = running_pod("IDLE", "DRAIN", reason=reason)
    pod.hook(0)
    pod.run(5)
    assert pod.released
    assert pod.slurm.record == node("IDLE", "DRAIN", reason=reason)


@pytest.mark.parametrize("reason", ["bad disk", "Not responding", "Node unexpectedly rebooted"])
@pytest.mark.parametrize("state", ["IDLE", "DOWN"])
def test_a_reason_of_someone_else_is_kept_when_the_node_is_drained(state: str, reason: str) -> None:
    pod = running_pod(state, reason=reason)
    pod.hook(0)
    pod.run(5)
    assert pod.released
    assert pod.slurm.record == node(state, "DRAIN", reason=reason)


def test_a_node_that_an_administrator_failed_takes_no_jobs_and_is_not_drained() -> None:
    pod = running_pod("IDLE", "FAIL", reason="bad disk")
    pod.hook(0)
    pod.run(5)
    assert pod.released
    assert pod.slurm.record == node("IDLE", "FAIL", reason="bad disk")


def test_the_record_of_another_pod_is_not_drained() -> None:
    pod = running_pod("IDLE")
    pod.slurm.record = node("MIXED", uid="uid-2")
    pod.hook(0)
    pod.run(5)
    assert pod.released
    assert pod.slurm.record == node("MIXED", uid="uid-2")


def test_a_node_without_a_record_is_released_when_no_step_is_left() -> None:
    pod = running_pod()
    pod.slurm.record = None
    pod.hook(1)
    pod.run(30)
    assert not pod.released
    pod.steps = 0
    pod.run(5)
    assert pod.released


def test_a_hook_that_was_cut_off_reports_nothing_about_steps() -> None:
    pod = running_pod("IDLE")
    pod.slurm.silent = True
    pod.hook(0)
    pod.run(1)
    pod.hook_cut = True
    pod.run(60)
    assert not pod.released


@pytest.mark.parametrize("change", [60, -60])
def test_a_stop_file_of_another_time_drains_nothing(change: float) -> None:
    pod = running_pod("MIXED")
    pod.hook(0)
    pod.clock_change = change
    pod.run(60)
    assert pod.slurm.calls == []


def test_what_the_hook_did_not_write_drains_nothing_and_releases_nothing() -> None:
    pod = running_pod("IDLE", grace=3600)
    pod.invalid = True
    pod.run(60)
    assert pod.slurm.calls == []
    pod.invalid = False
    pod.hook(1)
    pod.run(5)
    pod.invalid = True
    pod.run(600)
    assert pod.phase is Phase.DRAIN
    assert not pod.released


def test_the_log_reports_once_what_is_waited_for() -> None:
    pod = running_pod("MIXED", grace=3600)
    pod.hook(2)
    pod.run(300)
    pod.steps = 1
    pod.run(300)
    assert pod.log[1:] == [
        f"drained the Slurm node: {POD_LEAVING}",
        "waiting for 2 slurmstepd to end",
        "waiting for 1 slurmstepd to end",
    ]


def test_a_hook_that_is_already_running_when_node_starts_is_served() -> None:
    pod = Pod(Slurm(node("IDLE")), slurmd_may_run=True)
    pod.hook(0)
    pod.run(5)
    assert pod.released


# ---- slurmd comes back in the same pod
# ---------------------------------------------------------------------------


def test_the_pods_own_drain_is_lifted_when_slurmd_runs_again() -> None:
    pod = running_pod("IDLE")
    pod.hook(0)
    pod.run(5)
    pod.slurmd_starts_again()
    pod.run(2)
    assert pod.slurm.record == node("IDLE")
    assert pod.phase is Phase.WATCH


def test_a_drain_of_the_operator_is_not_lifted_when_slurmd_runs_again() -> None:
    pod = running_pod("IDLE", "DRAIN", reason="slurm-operator: scale-in")
    pod.hook(0)
    pod.run(5)
    pod.slurmd_starts_again()
    pod.run(2)
    assert Undrain() not in pod.slurm.calls


def test_the_drain_is_lifted_after_an_outage_too() -> None:
    pod = running_pod("IDLE")
    pod.hook(0)
    pod.run(5)
    pod.slurmd_starts_again()
    pod.slurm.silent = True
    pod.run(100)
    pod.slurm.silent = False
    pod.run(61)
    assert pod.slurm.record == node("IDLE")


def test_a_second_hook_waits_again_with_its_own_bound() -> None:
    pod = running_pod("MIXED", grace=100)
    pod.hook(1)
    pod.run(81)
    assert pod.released
    pod.slurmd_starts_again()
    pod.run(50)
    pod.hook(1)
    assert pod.run(200, until=lambda: pod.released) == pytest.approx(80, abs=1)


def test_a_second_hook_waits_too_when_slurmd_was_not_seen_between_them() -> None:
    pod = running_pod("MIXED", grace=100)
    pod.hook(1)
    pod.run(81)
    pod.released = False
    pod.hook_name += 1
    pod.run(5)
    assert pod.phase is Phase.DRAIN
    pod.steps = 0
    pod.slurm.end_jobs()
    pod.run(5)
    assert pod.released


# ---- Slurm's power saving
# -----------------------------------------------------------------------------------------


def test_a_powered_down_node_is_released_without_a_drain_and_its_record_stays() -> None:
    for words in (("IDLE", "POWERING_DOWN"), ("IDLE", "POWERED_DOWN")):
        pod = running_pod("CLOUD", *words)
        pod.hook(0)
        pod.run(3)
        assert pod.released
        pod.slurmd_stops()
        pod.run(5)
        assert pod.phase is Phase.DONE
        assert pod.slurm.record is not None
        assert not {type(call) for call in pod.slurm.calls} & {Drain, Down, Delete}


def test_a_powered_down_node_with_a_slurmstepd_is_not_released() -> None:
    pod = running_pod("IDLE", "CLOUD", "POWERED_DOWN")
    pod.hook(1)
    pod.run(60)
    assert not pod.released


def test_a_node_that_is_being_powered_up_again_keeps_its_record_when_the_former_pod_ends() -> None:
    pod = running_pod("ALLOCATED", "CLOUD", "POWERING_UP")
    pod.slurmd_stops()
    pod.run(5)
    assert pod.slurm.record is not None
    assert pod.slurm.busy


def test_a_deleted_pod_of_a_node_that_is_up_drains_it_and_deletes_its_record() -> None:
    pod = running_pod("IDLE", "CLOUD")
    pod.hook(0)
    pod.run(3)
    assert Drain(POD_LEAVING) in pod.slurm.calls
    pod.slurmd_stops()
    pod.run(5)
    assert pod.slurm.record is None
