"""What `node` does when slurmd has stopped, in virtual time: `sidecars.node.departing`."""

import pytest

from sidecars.contract.reasons import POD_GONE, POD_LEAVING, kept
from sidecars.node.records import Delete, Down, Names, Phase, Read, Settings
from tests.unit.node.simulation import SCALE_IN, UID, Pod, Slurm, node, running_pod


def test_the_record_is_deleted_within_a_second_of_slurmds_end() -> None:
    pod = running_pod("IDLE", "DRAIN", reason=POD_LEAVING)
    pod.slurmd_stops()
    assert pod.run(30) < 1
    assert pod.slurm.record is None
    assert pod.log == ["deleted the record"]


@pytest.mark.parametrize(
    "reason",
    ["", POD_LEAVING, "slurm-operator: scale-in", "Not responding", "Node unexpectedly rebooted"],
)
def test_reasons_of_nobody_else_let_the_record_go(reason: str) -> None:
    pod = running_pod("IDLE", reason=reason)
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.record is None


@pytest.mark.parametrize("reason", ["admin: bad memory", "Not responding to my mails"])
def test_a_record_with_a_foreign_reason_is_set_down_and_keeps_the_reason(reason: str) -> None:
    pod = running_pod("IDLE", "DRAIN", reason=reason)
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.record == node("DOWN", "DRAIN", reason=reason)
    assert pod.phase is Phase.DONE


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "DOWN"])
def test_a_record_with_a_foreign_reason_is_drained_so_that_no_successor_returns_it_to_service(
    state: str,
) -> None:
    pod = running_pod(state, reason="bad disk")
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.record == node("DOWN", "DRAIN", reason="bad disk")
    assert pod.phase is Phase.DONE


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "DOWN"])
def test_a_predecessors_record_with_a_foreign_reason_is_drained_before_slurmd_starts(
    state: str,
) -> None:
    pod = Pod(Slurm(node(state, uid="uid-0", reason="bad disk")))
    pod.run(5)
    assert pod.slurm.record is not None
    assert {"DRAIN"} <= pod.slurm.record.states
    assert pod.slurm.record.reason == "bad disk"
    assert pod.record == "an earlier pod's, taken over"


def test_slurmctlds_own_reason_is_not_overwritten_when_jobs_are_given_back() -> None:
    pod = running_pod("MIXED", reason="Not responding", reservation="maintenance")
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.record == node("DOWN", reason="Not responding", reservation="maintenance")


def test_a_reserved_record_is_set_down_and_left() -> None:
    pod = running_pod("IDLE", reservation="maintenance")
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.record == node("DOWN", reason=POD_GONE, reservation="maintenance")


def test_the_record_of_a_successor_is_neither_deleted_nor_set_down() -> None:
    pod = running_pod()
    pod.slurm.record = node("IDLE", uid="uid-2")
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.calls == [Read()]


def test_a_record_without_a_pod_uid_is_nobodys_to_delete() -> None:
    pod = running_pod()
    pod.slurm.record = node("IDLE", uid="")
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.calls == [Read()]


def test_jobs_that_died_with_slurmd_are_given_back_before_the_record_goes() -> None:
    pod = running_pod("MIXED", "DRAIN", reason=POD_LEAVING)
    pod.slurmd_stops()
    pod.run(30)
    assert pod.slurm.calls == [Read(), Down(POD_GONE), Names(), Delete()]
    assert pod.slurm.record is None


def test_after_a_scale_in_the_record_is_deleted_without_another_look_at_the_jobs() -> None:
    pod = running_pod("IDLE", "DRAIN", reason=SCALE_IN)
    pod.hook(0)
    pod.run(5)
    pod.slurmd_stops()
    pod.run(5)
    assert pod.slurm.calls[-2:] == [Read(), Delete()]
    assert Names() not in pod.slurm.calls


def test_after_a_scale_in_the_record_that_a_job_names_stays_down_with_the_operators_reason() -> (
    None
):
    pod = running_pod("IDLE", "DRAIN", reason=kept(SCALE_IN, "job 17"))
    pod.hook(0)
    pod.run(5)
    pod.slurmd_stops()
    pod.run(5)
    assert pod.slurm.record == node("DOWN", "DRAIN", reason=kept(SCALE_IN, "job 17"))


def test_a_pod_that_somebody_deletes_while_it_drains_for_a_scale_in_has_the_jobs_read() -> None:
    pod = running_pod("MIXED", "DRAIN", reason=SCALE_IN)
    pod.hook(1)
    pod.run(30)
    pod.steps = 0
    pod.slurm.end_jobs()
    pod.slurm.named = "job 17"
    pod.run(10)
    pod.slurmd_stops()
    pod.run(5)
    assert pod.slurm.record == node("DOWN", "DRAIN", reason=kept(POD_GONE, "job 17"))


def test_a_record_that_a_job_names_is_set_down_with_a_reason_that_names_the_job() -> None:
    pod = running_pod("IDLE")
    pod.slurm.named = "job 17"
    pod.slurmd_stops()
    pod.run(5)
    assert pod.slurm.record == node("DOWN", reason=kept(POD_GONE, "job 17"))
    assert pod.phase is Phase.DONE


def test_a_record_stays_down_for_the_operator_while_it_is_unknown_who_names_it() -> None:
    pod = running_pod("IDLE")
    pod.slurm.refuse = (Names,)
    pod.slurmd_stops()
    assert pod.run(60) == pytest.approx(15, abs=4)
    assert pod.slurm.record == node("DOWN", reason=POD_GONE)


def test_a_deletion_that_is_refused_is_tried_again_after_setting_the_node_down() -> None:
    pod = running_pod("IDLE")
    pod.slurm.refuse = (Delete,)
    pod.slurmd_stops()
    pod.run(2)
    pod.slurm.refuse = ()
    pod.run(10)
    refused = [Read(), Down(POD_GONE), Names(), Delete(), Down(POD_GONE), Names()]
    assert pod.slurm.calls[:6] == refused
    assert pod.slurm.calls[-1] == Delete()
    assert pod.slurm.record is None


def test_a_sigterm_while_slurmd_still_listens_leaves_the_record_alone() -> None:
    pod = running_pod("MIXED")
    pod.terminating = True
    assert pod.run(30) < 4
    assert pod.slurm.calls == []
    assert pod.phase is Phase.DONE


def test_a_silent_slurm_is_tried_until_the_bound_and_left_to_the_operator() -> None:
    pod = running_pod("IDLE", grace=3600)
    pod.slurm.silent = True
    pod.slurmd_stops()
    assert pod.run(120) == pytest.approx(15, abs=4)
    assert len(pod.slurm.calls) < 20
    assert "the operator prunes it" in pod.log[-1]


def test_an_outage_shorter_than_the_bound_only_delays_the_deletion() -> None:
    pod = running_pod("IDLE", grace=3600)
    pod.slurm.silent = True
    pod.slurmd_stops()
    pod.run(10)
    pod.slurm.silent = False
    pod.run(10)
    assert pod.slurm.record is None


def test_a_hook_cut_off_by_a_short_grace_still_gets_its_record_deleted() -> None:
    pod = running_pod("MIXED", grace=2)
    pod.hook(1)
    pod.run(0.6)
    pod.hook_cut = True
    pod.slurmd_stops()
    assert pod.run(30) < 1
    assert pod.slurm.record is None


@pytest.mark.parametrize("phase", ["claim", "drain", "released", "lift"])
def test_sigterm_is_heeded_in_every_phase(phase: str) -> None:
    slurm = Slurm(node("IDLE"))
    pod = Pod(slurm, Settings(pod_uid=UID, grace=3600), slurmd_may_run=True)
    if phase == "claim":
        slurm.silent = True
    elif phase in ("drain", "released", "lift"):
        pod.run(1)
        pod.hook(1 if phase == "drain" else 0)
        pod.run(5)
    if phase == "lift":
        slurm.silent = True
        pod.slurmd_starts_again()
    pod.run(1)
    assert pod.phase is Phase(phase)
    slurm.silent = False
    pod.slurmd_stops()
    assert pod.run(30) < 1
    assert slurm.record is None
