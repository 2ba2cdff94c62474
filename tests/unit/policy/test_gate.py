"""The conditions that follow from what the slurmctld pods report: `sidecars.policy.gate`."""

from dataclasses import replace

from sidecars.contract.status import Rejection, Stage, StartGate, StartGatePhase, Status
from sidecars.policy import gate
from sidecars.policy.conditions import Condition
from sidecars.policy.gate import Known, Pod, Published
from sidecars.policy.reasons import Ready
from sidecars.slurm.diagnosis import Culprit

A, B = "a" * 64, "b" * 64
PUBLISHED = Published(B, "mark")
POD = Pod("ctl-0", "uid/0/True", "10.0.0.1", askable=True, nudge="mark")


def known(report: Status | None, life: str = POD.life, trouble: str = "") -> dict[str, Known]:
    """What is known of POD."""
    return {POD.name: Known(life, report, trouble, 0.0)}


def conditions(
    *reports: Status | None,
    faults: tuple[str, ...] = (),
    published: Published | None = PUBLISHED,
    pod: Pod = POD,
) -> tuple[Condition, Condition]:
    """The two conditions."""
    have = known(reports[0], trouble="refused") if reports else {}
    accepted, running = gate.conditions(
        published, faults, [pod], have, lambda file, line: f"spec.extraConf line {line}"
    )
    return accepted, running


RUNS = Status(candidate=B, accepted=B, running=B)
REFUSES = Status(
    candidate=B,
    accepted=A,
    running=A,
    rejected=Rejection(B, Stage.DRY_RUN, "slurm.conf", 9, "bad key", True),
)


def test_a_configuration_that_runs_is_accepted_and_running() -> None:
    accepted, running = conditions(RUNS)
    assert (accepted.status, running.status) == ("True", "True")
    assert "bbbbbbbbbbbb" in running.message


def test_a_refused_one_names_file_line_origin_and_reason() -> None:
    accepted, running = conditions(REFUSES)
    assert (accepted.status, accepted.reason) == ("False", "DryRunFailed")
    assert accepted.message.startswith(
        "slurm.conf line 9 (spec.extraConf line 9): bad key; slurmctld continues with the former "
        "configuration"
    )
    assert (running.status, running.reason) == ("False", "DifferentConfiguration")


def test_slurmds_that_ended_are_why_a_configuration_is_refused() -> None:
    reason = "slurmd ended on 2 workers of 2 when it read the configuration: w-0, w-1"
    rejection = Rejection(
        B, Stage.SLURMD, "", None, reason, True, daemon="slurmd", nodes=("w-0", "w-1")
    )
    accepted, running = conditions(Status(candidate=B, accepted=B, running=A, rejected=rejection))
    assert (accepted.status, accepted.reason) == ("False", "SlurmdEnded")
    assert accepted.message == (
        f"{reason}: see the log of its container slurmd; slurmctld continues with the former "
        "configuration"
    )
    assert (running.status, running.reason) == ("False", "DifferentConfiguration")


def test_the_log_of_a_slurmctld_that_ended_is_that_of_its_former_container() -> None:
    ended = Rejection(B, Stage.RECONFIGURE, "", None, "slurmctld ended", True, daemon="slurmctld")
    accepted, _ = conditions(Status(candidate=B, accepted=B, running=A, rejected=ended))
    assert "slurmctld ended: see `kubectl logs ctl-0 -c slurmctld --previous`" in accepted.message


def test_a_daemon_that_ended_is_quoted_with_the_line_that_its_words_name() -> None:
    for daemon, stage in (("slurmd", Stage.SLURMD), ("slurmctld", Stage.RECONFIGURE)):
        rejection = Rejection(
            B, stage, "", None, f"{daemon} ended", True, daemon=daemon, nodes=("w-0",)
        )
        report = Status(candidate=B, accepted=B, running=A, rejected=rejection)
        quotes = {POD.name: Culprit("fatal: mkdir(/nope)", "slurm.conf", 9)}
        accepted, _ = gate.conditions(
            PUBLISHED,
            (),
            [POD],
            known(report),
            lambda _, line: f"spec.extraConf line {line}",
            (),
            quotes,
        )
        assert accepted.message == (
            f'slurm.conf line 9 (spec.extraConf line 9): {daemon} ended; {daemon} logged "fatal: '
            'mkdir(/nope)"; '
            "slurmctld continues with the former configuration"
        )


def test_while_slurmds_may_end_on_it_a_configuration_runs_and_no_other_reader_gets_it() -> None:
    watched = replace(RUNS, watching=True)
    assert [it.status for it in conditions(watched)] == ["True", "True"]
    assert gate.outstanding(PUBLISHED, POD, known(watched)[POD.name])
    assert not gate.is_accepted(B, [POD], known(watched))
    assert gate.is_accepted(B, [POD], known(RUNS))


def test_one_that_runs_in_one_pod_is_accepted_unless_another_pod_refuses_it() -> None:
    other = replace(POD, name="ctl-1")
    down = {other.name: Known(other.life, None, "refused", 0.0)}
    assert gate.is_accepted(B, [POD, other], known(RUNS) | down)
    assert not gate.is_accepted(B, [POD], known(REFUSES))
    assert not gate.is_accepted(
        B, [POD, other], known(RUNS) | {other.name: Known(other.life, REFUSES, "", 0.0)}
    )
    assert not gate.is_accepted(B, [POD], known(Status(candidate=B, accepted=B, running=None)))
    assert not gate.is_accepted(B, [], known(RUNS))


def test_ready_keeps_its_status_and_reports_that_the_newest_configuration_is_refused() -> None:
    rollout = Condition("Ready", "True", Ready.READY, "1 of 1 pods are ready")
    assert gate.ready(rollout, conditions(RUNS)) == rollout
    assert gate.ready(rollout, conditions(None)) == rollout
    found = gate.ready(rollout, conditions(REFUSES))
    assert (found.status, found.reason) == ("True", "ConfigurationRefused")
    assert found.message.startswith(
        "1 of 1 pods are ready; configuration refused: slurm.conf line 9"
    )


def test_one_with_faults_is_not_published_and_reports_which() -> None:
    accepted, running = conditions(
        RUNS, faults=("slurm.conf (spec.extraConf line 1): Fooo: unknown",)
    )
    assert (accepted.status, accepted.reason) == ("False", "Invalid")
    assert "Fooo: unknown" in accepted.message
    assert running.status == "False"


def test_what_cannot_be_asked_is_unknown() -> None:
    accepted, running = conditions(None)
    assert (accepted.status, accepted.reason) == ("Unknown", "NoAnswer")
    assert "refused" in running.message
    sleeping = Pod("ctl-0", "uid", "", askable=False, nudge="")
    assert [it.reason for it in conditions(pod=sleeping)] == ["PodNotStarted", "PodNotStarted"]


def test_a_restart_is_reported_with_its_reason() -> None:
    _, running = conditions(
        Status(candidate=B, accepted=B, running=B, restart="SlurmctldPort (1 → 2)")
    )
    assert running.message.endswith("slurmctld was restarted for SlurmctldPort (1 → 2)")


def test_a_settled_pod_is_not_asked() -> None:
    for report in (RUNS, REFUSES):
        assert not gate.outstanding(PUBLISHED, POD, known(report)[POD.name])
    assert not gate.outstanding(PUBLISHED, Pod("ctl-0", "x", "", askable=False, nudge=""), None)


def test_a_pod_is_asked_while_something_is_not_done_or_not_known() -> None:
    pending = (
        None,
        known(None)[POD.name],
        known(RUNS, life="another")[POD.name],
        known(Status(candidate=A, accepted=A, running=A))[POD.name],
        known(Status(candidate=B, accepted=B, running=None))[POD.name],
        known(Status(candidate=B, rejected=Rejection(B, Stage.DRY_RUN, "", None, "later", False)))[
            POD.name
        ],
    )
    assert all(gate.outstanding(PUBLISHED, POD, it) for it in pending)


def test_a_pod_is_asked_until_its_slurmctld_has_passed_the_start_gate_and_then_watched() -> None:
    due, watched = set(), set()
    for phase in StartGatePhase:
        about = known(replace(RUNS, start_gate=StartGate(phase)))[POD.name]
        due |= {phase} if gate.outstanding(PUBLISHED, POD, about) else set()
        watched |= {phase} if gate.watched(POD, about) else set()
    assert due == {StartGatePhase.CLOSED, StartGatePhase.ASKED}
    assert watched == set(StartGatePhase)
    assert not gate.watched(POD, known(RUNS)[POD.name])
    assert not gate.watched(POD, None)


def test_with_recreate_an_accepted_configuration_is_all_there_is_to_know() -> None:
    waiting = Status(candidate=B, accepted=B, running=A)
    assert not gate.outstanding(Published(B, "mark", live=False), POD, known(waiting)[POD.name])


def test_a_change_nudges_each_pod_once_and_again_only_while_it_is_behind() -> None:
    behind = known(Status(candidate=A, accepted=A, running=A))[POD.name]
    old = Pod("ctl-0", "x", "10.0.0.1", askable=True, nudge="other")
    assert gate.nudge(PUBLISHED, old, behind, 0) == "mark"
    assert gate.nudge(PUBLISHED, POD, behind, gate.NUDGE_AGAIN / 2) is None
    assert gate.nudge(PUBLISHED, POD, behind, gate.NUDGE_AGAIN) == "mark.2"
    second = Pod("ctl-0", "x", "10.0.0.1", askable=True, nudge="mark.2")
    assert gate.nudge(PUBLISHED, second, behind, gate.NUDGE_AGAIN) is None
    last = Pod("ctl-0", "x", "10.0.0.1", askable=True, nudge=f"mark.{gate.NUDGES}")
    assert gate.nudge(PUBLISHED, last, behind, 1000) is None
    assert gate.nudge(PUBLISHED, POD, known(RUNS)[POD.name], 1000) is None


def test_questions_become_rare() -> None:
    pauses = [gate.pause(since, trouble=False) for since in (0, 30, 300, 3000)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.5
    assert gate.pause(0, trouble=True) > pauses[0]
