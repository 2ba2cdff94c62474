"""Which slurmctld is the primary, how the label gets there, and whether each started through its
gate.
"""

import pytest

from sidecars.contract.status import StartGate, StartGatePhase, Status
from sidecars.policy.conditions import Condition
from sidecars.policy.failover import labels, primary, start_gated
from sidecars.policy.gate import Known, Pod


def test_the_one_that_reports_it_is_the_primary() -> None:
    assert primary({"c-0": False, "c-1": True}, None, "c-0") == "c-1"


def test_slurmrestds_ping_decides_where_the_pods_cannot_be_asked() -> None:
    assert primary({"c-0": None, "c-1": None}, [("c-0", False), ("c-1", True)], "c-0") == "c-1"


def test_of_two_that_claim_it_ping_decides() -> None:
    assert primary({"c-0": True, "c-1": True}, [("c-0", False), ("c-1", True)], None) == "c-1"


def test_while_nobody_knows_the_label_stays() -> None:
    assert primary({"c-0": None, "c-1": None}, None, "c-1") == "c-1"
    assert primary({"c-0": False, "c-1": False}, [("c-0", False), ("c-1", False)], "c-1") == "c-1"


def test_before_anybody_answered_it_is_the_first() -> None:
    assert primary({"c-0": None, "c-1": None}, None, None) == "c-0"
    assert primary({}, None, "c-0") is None


def test_the_new_primary_gets_the_label_before_the_old_one_loses_it() -> None:
    assert list(labels({"c-0": True, "c-1": False}, "c-1").items()) == [
        ("c-1", True),
        ("c-0", False),
    ]
    assert labels({"c-0": False, "c-1": True}, "c-1") == {}
    assert labels({"c-0": True}, None) == {}


PODS = [Pod(f"ctl-{i}", "uid/0/True", f"10.0.0.{i}", askable=True, nudge="") for i in range(2)]
PASSED = StartGate(StartGatePhase.PASSED)


def condition(first: StartGate | None, second: StartGate | None = PASSED) -> Condition:
    """The condition of two pods that report these gates."""
    gates = zip(PODS, (first, second), strict=True)
    return start_gated(
        PODS, {pod.name: Known(pod.life, Status(start_gate=it), "", 0.0) for pod, it in gates}
    )


def test_starts_that_passed_the_gate_are_gated() -> None:
    assert (condition(PASSED).status, condition(PASSED).reason) == ("True", "Passed")


def test_a_start_that_did_not_ask_the_gate_is_named_with_pod_and_remedy() -> None:
    found = condition(StartGate(StartGatePhase.ASKED), StartGate(StartGatePhase.NOT_ASKED))
    assert (found.status, found.reason) == ("False", "NotAsked")
    assert "slurmctld in ctl-1 started without asking the start gate" in found.message
    assert "delete pod ctl-1" in found.message
    assert "spec.slurmctld.command" in found.message


def test_a_start_beside_a_standby_that_led_is_named_with_the_reason() -> None:
    found = condition(StartGate(StartGatePhase.PASSED, "ctl-1 led for 20 s"))
    assert (found.status, found.reason) == ("False", "StandbyLed")
    assert (
        "slurmctld in ctl-0 started, perhaps on old state, although ctl-1 led for 20 s"
        in found.message
    )
    assert "port 6816" in found.message


@pytest.mark.parametrize(
    ("gate", "reason", "message"),
    [
        (
            StartGate(StartGatePhase.ASKED),
            "Waiting",
            "slurmctld in ctl-0 waits until no standby leads",
        ),
        (
            StartGate(StartGatePhase.ASKED, "no slurm.conf"),
            "Waiting",
            "until no standby leads: no slurm.conf",
        ),
        (StartGate(StartGatePhase.CLOSED), "NotRunning", "slurmctld in ctl-0 does not run"),
        (None, "NoStartGate", "reconfigure of ctl-0 reports no start gate"),
    ],
)
def test_a_start_that_is_not_over_leaves_it_unknown_with_the_step(
    gate: StartGate | None, reason: str, message: str
) -> None:
    found = condition(gate)
    assert (found.status, found.reason) == ("Unknown", reason)
    assert message in found.message


def test_pods_that_are_not_there_or_do_not_answer_leave_it_unknown() -> None:
    assert (start_gated([], {}).status, start_gated([], {}).reason) == ("Unknown", "NoPod")
    silent = start_gated(PODS, {"ctl-0": Known("uid/0/True", None, "refused", 0.0)})
    assert (silent.status, silent.reason) == ("Unknown", "NoAnswer")
