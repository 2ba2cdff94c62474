"""The configuration gate as the operator sees it: what was published, what the slurmctld pods say, what to report.

Pure. The pods' word is the answer of their `reconfigure` to /status (sidecars/reconfigure/status.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecars.policy.conditions import Condition, find

ACCEPTED = "ConfigurationAccepted"
RUNNING = "ConfigurationRunning"

INVALID = "Invalid"
"""The reason of `ConfigurationAccepted` where the operator itself finds fault."""

NUDGE_AGAIN = 0.7
"""Seconds after which a pod that hasn't got the files is nudged once more; each further wait is twice as long."""
NUDGES = 8
"""So often at most; the kubelet looks by itself about once a minute."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A configuration that a pod keeps out. `final`: until it changes."""

    sha256: str
    stage: str
    file: str
    line: int | None
    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What a pod's `reconfigure` says. Digests are those of the manifests, None for none."""

    candidate: str | None = None
    accepted: str | None = None
    running: str | None = None
    refused: Refusal | None = None
    restart: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A slurmctld pod. `life` changes when it becomes ready or not and when a container of it starts anew.

    `askable`: it has an address and its `reconfigure` runs. `nudge` is its annotation.
    """

    name: str
    life: str
    address: str
    askable: bool
    nudge: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a pod: its last report, or why there is none; of which life, and when, in monotonic seconds."""

    life: str
    report: Report | None
    trouble: str
    at: float


@dataclass(frozen=True, slots=True)
class Published:
    """What the operator has published: the digest of the configuration; `mark` changes with it and with the keys.

    `live`: it is to be brought into the running slurmctld; otherwise the pods are replaced.
    """

    sha256: str
    mark: str
    live: bool = True


def read(document: Mapping[str, Any]) -> Report:
    """The answer to /status. Raises ValueError for one that isn't."""
    try:
        refused = document["rejected"]
        return Report(
            candidate=_text(document["candidate"]),
            accepted=_text(document["accepted"]),
            running=_text(document["running"]),
            refused=None
            if refused is None
            else Refusal(
                sha256=str(refused["sha256"]),
                stage=str(refused["stage"]),
                file=str(refused["file"]),
                line=None if refused["line"] is None else int(refused["line"]),
                reason=str(refused["reason"]),
                final=bool(refused["final"]),
            ),
            restart=_text(document["restart"]),
            problem=_text(document["problem"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not an answer of reconfigure: {error!r}") from error


def outstanding(published: Published, pod: Pod, known: Known | None) -> bool:
    """Whether the pod is to be asked: something about it is not known, or not done."""
    if not pod.askable:
        return False
    if known is None or known.life != pod.life or known.report is None:
        return True
    report = known.report
    if report.candidate != published.sha256:
        return True
    if report.refused is not None and report.refused.sha256 == published.sha256:
        return not report.refused.final
    if not published.live and report.accepted == published.sha256:
        return False
    return report.running != published.sha256


def pause(since: float, trouble: bool) -> float:
    """Seconds until the next question, `since` so many seconds after what is asked about changed."""
    if since < 10 and not trouble:
        return 0.2
    return 1.0 if since < 60 else 10.0 if since < 600 else 30.0


def nudge(published: Published, pod: Pod, known: Known | None, since: float) -> str | None:
    """The annotation to give to the pod so that its kubelet brings the files at once; None to leave it."""
    mark, _, count = pod.nudge.partition(".")
    if not pod.askable:
        return None
    if mark != published.mark:
        return published.mark
    times = int(count) if count.isdecimal() else 1
    behind = known is not None and known.report is not None and known.report.candidate != published.sha256
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
) -> list[Condition]:
    """`ConfigurationAccepted` and `ConfigurationRunning`.

    `published` None: nothing was published yet. `faults`: why the newest configuration was not published. `origin`
    tells where a file's line comes from. `warnings` are told where nothing worse is.
    """
    reports = {pod.name: _report(pod, known) for pod in pods}
    return [
        _accepted(published, faults, pods, known, reports, origin, warnings),
        _running(published, faults, pods, known, reports),
    ]


def is_invalid(controller: Mapping[str, Any]) -> bool:
    """Whether a Controller's newest configuration was not published, for its faults."""
    return bool(find(controller, ACCEPTED).get("reason") == INVALID)


def _accepted(
    published: Published | None,
    faults: Sequence[str],
    pods: Sequence[Pod],
    known: Mapping[str, Known],
    reports: Mapping[str, Report | None],
    origin: Callable[[str, int | None], str],
    warnings: Sequence[str],
) -> Condition:
    if faults:
        return Condition(ACCEPTED, "False", INVALID, f"{_first(faults)}; nothing was changed")
    if published is None:
        return Condition(ACCEPTED, "Unknown", "NotPublished", "the configuration is not composed yet")
    short = published.sha256[:12]
    for pod in pods:
        report = reports[pod.name]
        refused = report.refused if report is not None else None
        if refused is not None and refused.sha256 == published.sha256:
            said = f"{_place(refused, origin)}{refused.reason}"
            if not refused.final:
                return Condition(ACCEPTED, "Unknown", "NotChecked", f"{said} ({pod.name}); tried again")
            goes_on = "; slurmctld goes on with the one before" if report is not None and report.running else ""
            return Condition(ACCEPTED, "False", f"{refused.stage}Failed", f"{said}{goes_on}")
    for pod in pods:
        report = reports[pod.name]
        if report is None or published.sha256 not in (report.accepted, report.running):
            return Condition(ACCEPTED, "Unknown", *_waiting(published, pod, known, report))
    if not pods:
        return Condition(ACCEPTED, "Unknown", "NoPod", "there is no slurmctld pod yet")
    but = f"; but {_first(warnings)}" if warnings else ""
    return Condition(ACCEPTED, "True", "DryRunPassed", f"configuration {short} passed slurmctld's dry run{but}")


def _running(
    published: Published | None,
    faults: Sequence[str],
    pods: Sequence[Pod],
    known: Mapping[str, Known],
    reports: Mapping[str, Report | None],
) -> Condition:
    wanted = published.sha256 if published is not None else ""
    for pod in pods:
        report = reports[pod.name]
        if report is None:
            reason, said = _waiting(published, pod, known, report)
            return Condition(RUNNING, "Unknown", reason, said)
        if report.running is None:
            said = f"slurmctld in {pod.name} does not answer yet"
            return Condition(RUNNING, "False", "NotRunning", said)
        if report.running != wanted or faults:
            said = f"slurmctld in {pod.name} runs configuration {report.running[:12]}"
            wants = f", not {wanted[:12]}" if report.running != wanted else ", the newest is not published"
            return Condition(RUNNING, "False", "Another", f"{said}{wants}; see the condition {ACCEPTED}")
    if not pods:
        return Condition(RUNNING, "Unknown", "NoPod", "there is no slurmctld pod yet")
    restarts = {report.restart for report in reports.values() if report is not None and report.restart}
    because = f"; slurmctld was restarted for {'; '.join(sorted(restarts))}" if restarts else ""
    return Condition(RUNNING, "True", "Running", f"slurmctld runs configuration {wanted[:12]}{because}")


def _first(found: Sequence[str]) -> str:
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return "; ".join(found[:3]) + more


def _report(pod: Pod, known: Mapping[str, Known]) -> Report | None:
    found = known.get(pod.name)
    return found.report if found is not None and pod.askable else None


def _waiting(
    published: Published | None, pod: Pod, known: Mapping[str, Known], report: Report | None
) -> tuple[str, str]:
    found = known.get(pod.name)
    if not pod.askable:
        return "PodNotStarted", f"the sidecar reconfigure of {pod.name} is not running"
    if report is None:
        return "NoAnswer", f"reconfigure of {pod.name} can't be asked: {found.trouble if found else 'not asked yet'}"
    if published is not None and report.candidate != published.sha256:
        problem = f" ({report.problem})" if report.problem else ""
        return "Arriving", f"the kubelet has not brought configuration {published.sha256[:12]} to {pod.name}{problem}"
    return "Checking", f"{pod.name} is checking configuration {published.sha256[:12] if published else ''}"


def _place(refused: Refusal, origin: Callable[[str, int | None], str]) -> str:
    if not refused.file:
        return ""
    line = "" if refused.line is None else f" line {refused.line}"
    source = origin(refused.file, refused.line)
    return f"{refused.file}{line}{f' ({source})' if source else ''}: "


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is no text")
