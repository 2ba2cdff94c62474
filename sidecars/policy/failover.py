"""Several slurmctld: which is the primary, which pods carry the label that its Service follows, and
how they started.

Pure.
"""

from collections.abc import Mapping, Sequence

from sidecars.contract.status import StartGatePhase
from sidecars.policy.conditions import Condition
from sidecars.policy.gate import Known, Pod, report_of
from sidecars.policy.reasons import StartGated

START_GATED = "StartGated"
"""The condition: whether each slurmctld asked the start gate of its pod, and no standby led when it
started.
"""

ACTIVE = "controller.slinky.slurm.net/active"
"""Label of the primary's pod; its value is `true`."""

ACTIVE_SINCE = "controller.slinky.slurm.net/active-since"
"""Annotation of the primary's pod: when the operator gave it the label."""


def primary(
    ready: Mapping[str, bool | None], pings: Sequence[tuple[str, bool]] | None, present: str | None
) -> str | None:
    """Return the primary's pod, or `present` while it is not known.

    `ready`: by pod, whether its slurmctld reports on /readyz that it is the primary; None without
    an answer. `pings`: hostname and whether it responds, in order of SlurmctldHost, as slurmrestd
    reports; None without a report.
    """
    leading = [name for name, yes in sorted(ready.items()) if yes]
    if len(leading) == 1:
        return leading[0]
    for hostname, responds in pings or ():
        if responds and hostname in ready and (not leading or hostname in leading):
            return hostname
    if present in ready:
        return present
    # As Slurm does at its first start: the first of SlurmctldHost.
    return min(ready, default=None)


def labels(carrying: Mapping[str, bool], active: str | None) -> dict[str, bool]:
    """Return the pods whose label changes, and whether they get it. The new primary comes first, so
    that one always has it.
    """
    if active is None:
        return {}
    wanted = {name: name == active for name in carrying}
    return {
        name: wanted[name]
        for name in sorted(carrying, key=lambda name: (name != active, name))
        if carrying[name] != wanted[name]
    }


def start_gated(pods: Sequence[Pod], known: Mapping[str, Known]) -> Condition:
    """Return the condition `StartGated` of a Controller with standbys. A start past the gate comes
    before what is unknown.
    """
    reports = [(pod, report_of(pod, known)) for pod in pods]
    gates = [
        (pod.name, report.start_gate)
        for pod, report in reports
        if report is not None and report.start_gate
    ]
    for name, gate in gates:
        if gate.phase is StartGatePhase.NOT_ASKED:
            message = (
                f"slurmctld in {name} started without asking the start gate, perhaps on old state "
                "while a standby led: its container must end when slurmctld ends, so let "
                f"spec.slurmctld.command not restart slurmctld, and delete pod {name}"
            )
            return Condition(START_GATED, "False", StartGated.NOT_ASKED, message)
        if gate.phase is StartGatePhase.PASSED and gate.problem:
            message = (
                f"slurmctld in {name} started, perhaps on old state, although {gate.problem}: "
                "check that the slurmctld pods reach each other at port 6816, and compare "
                "`squeue` with the jobs that run"
            )
            return Condition(START_GATED, "False", StartGated.STANDBY_LED, message)
    for name, gate in gates:
        if gate.phase is StartGatePhase.ASKED:
            because = f": {gate.problem}" if gate.problem else ""
            message = f"slurmctld in {name} waits until no standby leads{because}"
            return Condition(START_GATED, "Unknown", StartGated.WAITING, message)
        if gate.phase is StartGatePhase.CLOSED:
            return Condition(
                START_GATED,
                "Unknown",
                StartGated.NOT_RUNNING,
                f"slurmctld in {name} does not run; see `kubectl logs {name} -c slurmctld`",
            )
    for pod, report in reports:
        if report is None:
            return Condition(
                START_GATED,
                "Unknown",
                StartGated.NO_ANSWER,
                f"reconfigure of {pod.name} has not answered",
            )
        if report.start_gate is None:
            message = (
                f"reconfigure of {pod.name} reports no start gate: another version of the "
                "operator created the pod; delete it"
            )
            return Condition(START_GATED, "Unknown", StartGated.NO_START_GATE, message)
    if not pods:
        return Condition(START_GATED, "Unknown", StartGated.NO_POD, "no slurmctld pod exists yet")
    return Condition(
        START_GATED,
        "True",
        StartGated.PASSED,
        "each slurmctld asked its start gate, and no standby led",
    )
