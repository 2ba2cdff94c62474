"""The configuration gate as the operator sees it: what was published, what the slurmctld pods
report, the conditions.

Pure. What a pod reports is the answer of its `reconfigure` sidecar to /status
(sidecars/contract/status.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sidecars.contract.status import Rejection, Stage, StartGatePhase, Status
from sidecars.policy.conditions import Condition, find
from sidecars.policy.reasons import ConfigurationAccepted, ConfigurationRunning, Ready
from sidecars.slurm.diagnosis import Culprit

SLURMCTLD = "slurmctld"
NO_QUOTES: Mapping[str, Culprit] = {}
ACCEPTED = "ConfigurationAccepted"
RUNNING = "ConfigurationRunning"

NUDGE_AGAIN = 0.7
"""Seconds after which a pod that hasn't got the files is nudged again; each further wait is twice
as long.
"""
NUDGES = 8
"""Nudges per change at most. Without them the kubelet updates the files about once a minute."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A slurmctld pod."""

    name: str
    life: str
    """Changes when the pod becomes ready or unready and when one of its containers is restarted."""

    address: str
    """Its IP address, "" while it has none."""

    askable: bool
    """Whether it has an address and its `reconfigure` runs."""

    nudge: str
    """Its annotation that nudges the kubelet, "" without one."""


@dataclass(frozen=True, slots=True)
class Known:
    """The result of the last request to a pod."""

    life: str
    """The pod's `life` at that time."""

    report: Status | None
    """Its answer, None if it gave none."""

    trouble: str
    """Why it gave no answer, "" if it did."""

    at: float
    """When that was, in monotonic seconds."""


@dataclass(frozen=True, slots=True)
class Published:
    """The configuration that the operator has published."""

    sha256: str
    """Its digest."""

    mark: str
    """Changes with the configuration and with the keys."""

    live: bool = True
    """Whether the running slurmctld reads it (`configUpdate: Reconfigure`). If not, the pods are
    replaced.
    """


_FAILED = {
    Stage.DRY_RUN: ConfigurationAccepted.DRY_RUN_FAILED,
    Stage.RECONFIGURE: ConfigurationAccepted.RECONFIGURE_FAILED,
    Stage.START: ConfigurationAccepted.START_FAILED,
    Stage.SLURMD: ConfigurationAccepted.SLURMD_ENDED,
}

_BEFORE_START = (StartGatePhase.CLOSED, StartGatePhase.ASKED)


def outstanding(published: Published, pod: Pod, known: Known | None) -> bool:
    """Return whether the pod is to be asked, because something about it is not known, or not
    done.
    """
    if not pod.askable:
        return False
    if known is None or known.life != pod.life or known.report is None:
        return True
    report = known.report
    if report.candidate != published.sha256:
        return True
    if report.start_gate is not None and report.start_gate.phase in _BEFORE_START:
        return True
    if report.rejected is not None and report.rejected.sha256 == published.sha256:
        return not report.rejected.final
    if report.watching:
        return True
    if not published.live and report.accepted == published.sha256:
        return False
    return report.running != published.sha256


WATCH_SECONDS = 10.0
"""Seconds between two questions to a pod with a start gate about which nothing else is outstanding.
"""


def watched(pod: Pod, known: Known | None) -> bool:
    """Return whether the pod is to be asked although nothing is outstanding.

    Kubernetes does not show when a slurmctld is started again within its container, past the start
    gate.
    """
    return (
        pod.askable
        and known is not None
        and known.report is not None
        and known.report.start_gate is not None
    )


def pause(since: float, trouble: bool) -> float:
    """Return the seconds until the next question, `since` so many seconds after what is asked about
    changed.
    """
    if since < 10 and not trouble:
        return 0.2
    return 1.0 if since < 60 else 10.0 if since < 600 else 30.0


def nudge(published: Published, pod: Pod, known: Known | None, since: float) -> str | None:
    """Return the annotation to set on the pod so that its kubelet updates the files at once, or
    None to leave it.
    """
    mark, _, count = pod.nudge.partition(".")
    if not pod.askable:
        return None
    if mark != published.mark:
        return published.mark
    times = int(count) if count.isdecimal() else 1
    behind = (
        known is not None
        and known.report is not None
        and known.report.candidate != published.sha256
    )
    if behind and times < NUDGES and since >= NUDGE_AGAIN * 2 ** (times - 1):
        return f"{mark}.{times + 1}"
    return None


def conditions(
    published: Published | None,
    faults: Sequence[str],
    pods: Sequence[Pod],
    known: Mapping[str, Known],
    origin: Callable[[str, int | None], str],
    warnings: Sequence[str] = (),
    quotes: Mapping[str, Culprit] = NO_QUOTES,
) -> list[Condition]:
    """`ConfigurationAccepted` and `ConfigurationRunning`.

    `published`: None if nothing has been published yet. `faults`: why the newest configuration is
    not published. `origin`: returns the source of a file's line. `warnings`: reported when nothing
    worse is. `quotes`: what the daemon logged that ended, by the pod that reports it.
    """
    reports = {pod.name: report_of(pod, known) for pod in pods}
    return [
        _accepted(published, faults, pods, known, reports, origin, warnings, quotes),
        _running(published, faults, pods, known, reports),
    ]


def is_accepted(sha256: str, pods: Sequence[Pod], known: Mapping[str, Known]) -> bool:
    """Return whether slurmctld has taken the configuration of this digest: a pod runs with it, and
    none refused it. It has not while slurmds may still end on it, because slurmctld would read the
    former one again.
    """
    reports = [report for pod in pods if (report := report_of(pod, known)) is not None]
    refused = {report.rejected.sha256 for report in reports if report.rejected is not None}
    watched = {report.running for report in reports if report.watching}
    return sha256 not in refused | watched and sha256 in {report.running for report in reports}


def ready(rollout: Condition, found: Sequence[Condition]) -> Condition:
    """Return the condition `Ready` of a Controller: that of slurmctld's rollout, and why its
    configuration is refused.

    `found`: see `conditions`. The status is that of the rollout, because slurmctld continues with
    the former one.
    """
    refused = next((it for it in found if it.type == ACCEPTED and it.status == "False"), None)
    if refused is None:
        return rollout
    return replace(
        rollout,
        reason=Ready.CONFIGURATION_REFUSED,
        message=f"{rollout.message}; configuration refused: {refused.message}",
    )


def is_invalid(controller: Mapping[str, Any]) -> bool:
    """Return whether a Controller's newest configuration was not published, for its faults."""
    return bool(find(controller, ACCEPTED).get("reason") == ConfigurationAccepted.INVALID)


def _accepted(
    published: Published | None,
    faults: Sequence[str],
    pods: Sequence[Pod],
    known: Mapping[str, Known],
    reports: Mapping[str, Status | None],
    origin: Callable[[str, int | None], str],
    warnings: Sequence[str],
    quotes: Mapping[str, Culprit],
) -> Condition:
    if faults:
        return Condition(
            ACCEPTED,
            "False",
            ConfigurationAccepted.INVALID,
            f"{_first(faults)}; nothing was changed",
        )
    if published is None:
        return Condition(
            ACCEPTED,
            "Unknown",
            ConfigurationAccepted.NOT_PUBLISHED,
            "the operator has not composed the configuration yet",
        )
    short = published.sha256[:12]
    for pod in pods:
        report = reports[pod.name]
        rejected = report.rejected if report is not None else None
        if rejected is not None and rejected.sha256 == published.sha256:
            text = _refusal(rejected, pod, quotes.get(pod.name), origin)
            if not rejected.final:
                return Condition(
                    ACCEPTED,
                    "Unknown",
                    ConfigurationAccepted.NOT_CHECKED,
                    f"{text} ({pod.name}); the check is repeated",
                )
            keeps = (
                "; slurmctld continues with the former configuration"
                if report is not None and report.running
                else ""
            )
            return Condition(ACCEPTED, "False", _FAILED[rejected.stage], f"{text}{keeps}")
    for pod in pods:
        report = reports[pod.name]
        if report is None or published.sha256 not in (report.accepted, report.running):
            return Condition(ACCEPTED, "Unknown", *_waiting(published, pod, known, report))
    if not pods:
        return Condition(
            ACCEPTED, "Unknown", ConfigurationAccepted.NO_POD, "no slurmctld pod exists yet"
        )
    but = f"; warning: {_first(warnings)}" if warnings else ""
    return Condition(
        ACCEPTED,
        "True",
        ConfigurationAccepted.DRY_RUN_PASSED,
        f"configuration {short} passed slurmctld's dry run{but}",
    )


def _running(
    published: Published | None,
    faults: Sequence[str],
    pods: Sequence[Pod],
    known: Mapping[str, Known],
    reports: Mapping[str, Status | None],
) -> Condition:
    wanted = published.sha256 if published is not None else ""
    for pod in pods:
        report = reports[pod.name]
        if report is None:
            reason, text = _waiting(published, pod, known, report)
            return Condition(RUNNING, "Unknown", ConfigurationRunning[reason.name], text)
        if report.running is None:
            text = (
                f"slurmctld in {pod.name} does not answer; see `kubectl logs {pod.name} -c "
                "slurmctld`"
            )
            return Condition(RUNNING, "False", ConfigurationRunning.NOT_RUNNING, text)
        if report.running != wanted or faults:
            text = f"slurmctld in {pod.name} runs configuration {report.running[:12]}"
            wants = (
                f", not {wanted[:12]}"
                if report.running != wanted
                else ", the newest is not published"
            )
            return Condition(
                RUNNING,
                "False",
                ConfigurationRunning.DIFFERENT_CONFIGURATION,
                f"{text}{wants}; see the condition {ACCEPTED}",
            )
    if not pods:
        return Condition(
            RUNNING, "Unknown", ConfigurationRunning.NO_POD, "no slurmctld pod exists yet"
        )
    restarts = {
        report.restart for report in reports.values() if report is not None and report.restart
    }
    because = f"; slurmctld was restarted for {'; '.join(sorted(restarts))}" if restarts else ""
    return Condition(
        RUNNING,
        "True",
        ConfigurationRunning.RUNNING,
        f"slurmctld runs configuration {wanted[:12]}{because}",
    )


def _first(found: Sequence[str]) -> str:
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return "; ".join(found[:3]) + more


def report_of(pod: Pod, known: Mapping[str, Known]) -> Status | None:
    """Return the pod's last answer, or None without one, and for a pod that can't be asked."""
    found = known.get(pod.name)
    return found.report if found is not None and pod.askable else None


def _waiting(
    published: Published | None, pod: Pod, known: Mapping[str, Known], report: Status | None
) -> tuple[ConfigurationAccepted, str]:
    found = known.get(pod.name)
    if not pod.askable:
        return (
            ConfigurationAccepted.POD_NOT_STARTED,
            (
                f"the sidecar reconfigure of {pod.name} is not running; see `kubectl describe pod "
                f"{pod.name}`"
            ),
        )
    if report is None:
        return (
            ConfigurationAccepted.NO_ANSWER,
            (
                f"reconfigure of {pod.name} does not answer: "
                f"{found.trouble if found else 'no request sent yet'}"
            ),
        )
    if published is not None and report.candidate != published.sha256:
        problem = f" ({report.problem})" if report.problem else ""
        return (
            ConfigurationAccepted.ARRIVING,
            (
                f"the kubelet has not updated {pod.name} to configuration {published.sha256[:12]} "
                f"yet{problem}"
            ),
        )
    return (
        ConfigurationAccepted.CHECKING,
        f"{pod.name} is checking configuration {published.sha256[:12] if published else ''}",
    )


def _refusal(
    rejected: Rejection, pod: Pod, quote: Culprit | None, origin: Callable[[str, int | None], str]
) -> str:
    """Place and reason, with what the daemon logged that ended, or where it has."""
    place = _place(rejected.file, rejected.line, origin)
    if not rejected.daemon:
        return f"{place}{rejected.reason}"
    if quote is not None:
        place = place or _place(quote.file, quote.line, origin)
        return f'{place}{rejected.reason}; {rejected.daemon} logged "{quote.reason}"'
    if rejected.daemon == SLURMCTLD:
        return f"{place}{rejected.reason}: see `kubectl logs {pod.name} -c {SLURMCTLD} --previous`"
    return f"{place}{rejected.reason}: see the log of its container {rejected.daemon}"


def _place(file: str, line: int | None, origin: Callable[[str, int | None], str]) -> str:
    if not file:
        return ""
    numbered = "" if line is None else f" line {line}"
    source = origin(file, line)
    return f"{file}{numbered}{f' ({source})' if source else ''}: "
