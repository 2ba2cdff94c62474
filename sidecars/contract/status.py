"""What the `reconfigure` sidecar of a slurmctld pod serves by HTTP, and to whom.

| request | asked by | answer |
|---|---|---|
| GET /status | the operator, signed | 200 and the document of a Status |
| GET /started | the kubelet, unsigned | 200 when slurmctld's /etc/slurm is filled |
| POST /yield | the primary slurmctld's sidecar, signed | 200 when slurmctld ends or does not lead |

The answer to the last two is 503 otherwise. `sidecars.contract.signature` describes how
requests are signed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sidecars.contract.text import printable

PORT = 6816
STATUS_PATH = "/status"
STARTED_PATH = "/started"
YIELD_PATH = "/yield"

_LAST_TIME = 253_402_300_799.0
"""The end of the year 9999, in seconds since the epoch."""


class Stage(Enum):
    """A step of a configuration's life that can fail."""

    DRY_RUN = "DryRun"
    """slurmctld reads it in a dry run."""

    RECONFIGURE = "Reconfigure"
    """The running slurmctld reads it."""

    START = "Start"
    """slurmctld starts with it."""

    SLURMD = "Slurmd"
    """The slurmds that run take it."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A configuration that the pod does not use."""

    sha256: str
    """Its digest: see `sidecars.contract.manifest.Manifest`."""

    stage: Stage
    """What it failed."""

    file: str
    """The file at fault, "" if unknown."""

    line: int | None
    """Line of that file, from 1; None if unknown."""

    reason: str
    """What is wrong, in slurmctld's words or ours."""

    final: bool
    """True: the pod does not try it again. False: it does."""

    since: float = field(default=0.0, compare=False)
    """When it was rejected, in seconds since the epoch."""

    daemon: str = ""
    """The daemon that ended, whose log contains the reason: `slurmctld`, `slurmd`, or "" if none
    ended.
    """

    nodes: tuple[str, ...] = ()
    """Some of the Slurm nodes whose slurmd ended."""


class StartGatePhase(Enum):
    """How the slurmctld of a pod stands to the pod's start gate
    (charts/slurm-operator/workloads/slurmctld-ha.yaml).
    """

    CLOSED = "Closed"
    """No slurmctld runs, and none has asked."""

    ASKED = "Asked"
    """slurmctld waits for its start."""

    PASSED = "Passed"
    """slurmctld asked, and may start or has started."""

    NOT_ASKED = "NotAsked"
    """slurmctld runs, and has not asked."""


@dataclass(frozen=True, slots=True)
class StartGate:
    """The start gate of a slurmctld pod with standbys."""

    phase: StartGatePhase

    problem: str | None = None
    """ASKED: why slurmctld can't start yet. PASSED: why a standby may still lead. None without a
    problem.
    """


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one pod's configuration. Configurations are named by their digests.

    Fields that matter to no condition are not compared.
    """

    candidate: str | None = None
    """The complete configuration in the pod's volume; None while none is complete."""

    problem: str | None = None
    """Why no configuration in the volume is complete."""

    accepted: str | None = None
    """The last one that passed the dry run."""

    running: str | None = None
    """The one that slurmctld is known to have read; None while it is not known."""

    rejected: Rejection | None = None
    """The last one that failed; None when none did since the last that succeeded."""

    restart: str | None = None
    """Why slurmctld was restarted last; None if it never was."""

    start_gate: StartGate | None = None
    """None for a pod without a start gate."""

    watching: bool = False
    """Whether slurmds may still end on the one that runs. slurmctld reads the former one again
    then.
    """

    installed: str | None = field(default=None, compare=False)
    """The one in slurmctld's /etc/slurm; None until one exists."""

    phase: str = field(default="", compare=False)
    """What the sidecar is doing: see `sidecars.reconfigure.states.Phase`."""

    since: float = field(default=0.0, compare=False)
    """When the phase began, in seconds since the epoch."""


def encode(status: Status) -> dict[str, Any]:
    """Return the document, for JSON."""
    rejected, gate = status.rejected, status.start_gate
    return {
        "phase": status.phase,
        "since": status.since,
        "candidate": status.candidate,
        "problem": status.problem,
        "accepted": status.accepted,
        "installed": status.installed,
        "running": status.running,
        "rejected": None
        if rejected is None
        else {
            "sha256": rejected.sha256,
            "stage": rejected.stage.value,
            "file": rejected.file,
            "line": rejected.line,
            "reason": rejected.reason,
            "final": rejected.final,
            "since": rejected.since,
            "daemon": rejected.daemon,
            "nodes": list(rejected.nodes),
        },
        "restart": status.restart,
        "startGate": None if gate is None else {"phase": gate.phase.value, "problem": gate.problem},
        "watching": status.watching,
    }


def decode(document: Mapping[str, Any]) -> Status:
    """Return the status of a document, with texts that are bounded and printable. Raises ValueError
    for another document.
    """
    try:
        rejected, gate = document["rejected"], document.get("startGate")
        return Status(
            candidate=_text(document["candidate"]),
            problem=_quoted(document["problem"]),
            accepted=_text(document["accepted"]),
            running=_text(document["running"]),
            rejected=None if rejected is None else _rejection(rejected),
            restart=_quoted(document["restart"]),
            start_gate=None
            if gate is None
            else StartGate(StartGatePhase(gate["phase"]), _quoted(gate["problem"])),
            watching=bool(document.get("watching", False)),
            installed=_text(document.get("installed")),
            phase=str(document.get("phase", "")),
            since=_time(document.get("since", 0.0)),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(printable(f"not an answer of reconfigure: {error!r}")) from error


def _rejection(rejected: Mapping[str, Any]) -> Rejection:
    return Rejection(
        sha256=str(rejected["sha256"]),
        stage=Stage(rejected["stage"]),
        file=printable(str(rejected["file"])),
        line=None if rejected["line"] is None else int(rejected["line"]),
        reason=printable(str(rejected["reason"]), 2000),
        final=bool(rejected["final"]),
        since=_time(rejected.get("since", 0.0)),
        daemon=printable(str(rejected.get("daemon", ""))),
        nodes=tuple(printable(str(name)) for name in rejected.get("nodes", ())),
    )


def _time(value: Any) -> float:
    found = float(value)
    if not 0.0 <= found <= _LAST_TIME:
        raise ValueError(f"{found} is no time")
    return found


def _quoted(value: object) -> str | None:
    text = _text(value)
    return None if text is None else printable(text, 2000)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is no text")
