"""What a run has to say: findings, each with its rule, severity and place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning", "info", "off"]
"""An `error` ends the run, and nothing is written to stdout. `off` is not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a step has found."""

    rule: str
    severity: Severity
    message: str
    """The value and the remedy."""

    place: str = ""
    """Document, source path, line, kind and name."""

    source: str = ""
    """Path of the template in the chart, "" if unknown."""

    line: int = 0
    """Line of the stream, from 1; 0 if unknown."""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        return f"{self.severity}: {place}{self.message} [{self.rule}]"


@dataclass(slots=True)
class Run:
    """What steps get beside their settings, and where they leave their findings."""

    folder: Path = field(default_factory=Path)
    """Relative paths of the configuration begin here."""

    release: str = ""
    """Name of the Helm release, "" if not given."""

    namespace: str = ""
    """Namespace of the release, "" if not given."""

    environment: Mapping[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Add a finding, unless its rule is off."""
        if finding.severity != "off":
            self.findings.append(finding)
