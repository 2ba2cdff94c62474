"""Whether slurmctld runs with the described configuration."""

from sidecars.explain.core import config as subject
from sidecars.explain.core.records import Answer, Level
from tests.unit.explain.core.building import condition, controller, event, seen

ACCEPTED = condition("ConfigurationAccepted", "True", "Accepted")
RUNNING = condition("ConfigurationRunning", "True", "Running")


def explained(*conditions: dict[str, object], name: str = "") -> Answer:
    return subject.explain(seen(kube={"controllers": (controller(*conditions),)}), name)


def test_an_accepted_configuration_that_runs_has_no_finding() -> None:
    answer = explained(ACCEPTED, RUNNING)
    assert answer.findings == ()
    assert (
        answer.state
        == "ConfigurationAccepted is True (Accepted), ConfigurationRunning is True (Running)"
    )


def test_a_refused_line_is_quoted_and_blocks() -> None:
    message = "slurm.conf line 12 (spec.extraConf line 3): unknown key Foo"
    answer = explained(condition("ConfigurationAccepted", "False", "Rejected", message), RUNNING)
    assert answer.findings[0].cause == message
    assert answer.findings[0].level is Level.BLOCKS
    assert answer.findings[0].about == "Controller slurm/slurm"


def test_a_slurmd_that_ended_is_quoted_with_the_remedy() -> None:
    message = 'slurmd ended on 2 workers of 2; slurmd logged "fatal: mkdir(/nope)"'
    [finding] = explained(
        condition("ConfigurationAccepted", "False", "SlurmdEnded", message), RUNNING
    ).findings
    assert (finding.code, finding.level, finding.cause) == ("SlurmdEnded", Level.BLOCKS, message)
    assert "revert the change" in finding.remedy


def test_a_configuration_that_is_being_checked_waits() -> None:
    [finding] = explained(
        condition("ConfigurationAccepted", "Unknown", "Checking", "the dry run runs"), RUNNING
    ).findings
    assert (finding.level, finding.cause) == (Level.WAITS, "the dry run runs")


def test_the_timeline_has_the_events_of_configurations_alone() -> None:
    events = (
        event("Controller", "slurm", "ConfigurationRejected", "line 12", -20),
        event("Controller", "slurm", "SlurmKey", "rotated", -10),
    )
    answer = subject.explain(seen(kube={"events": events}), "")
    assert [it.what for it in answer.timeline] == ["ConfigurationRejected: line 12"]


def test_an_unknown_controller_is_not_known_and_an_unread_one_not_absent() -> None:
    assert not explained(name="other").known
    assert "could not be read" in subject.explain(seen(kube={"controllers": None}), "").state
