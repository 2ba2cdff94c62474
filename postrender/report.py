"""What a run has to say: findings, each with its rule, severity and place."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from postrender.errors import PostrenderError
from postrender.stream import Object
from sidecars.contract.text import LONGEST_LINE, printable

Severity = Literal["error", "warning", "info", "ignore"]
"""An `error` ends the run, and nothing is written to stdout. `ignore` is not reported."""


_COMMANDS = re.compile(r"^\s*::|##(?=\[|vso\[)")
"""What GitHub and Azure take for a command in a line of a job's output."""


def shown(text: str) -> str:
    """Return a text that quotes a stream, as one line that neither a terminal nor a CI system takes
    for a command.
    """
    text = text.encode(errors="backslashreplace").decode()  # file names may be no UTF-8
    return _COMMANDS.sub(lambda it: " ".join(it[0].strip()), printable(text, LONGEST_LINE))


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
        return shown(f"{self.severity}: {place}{self.message} [{self.rule}]")


def finding(
    rule: str, severity: Severity, it: Object, path: Sequence[str | int], message: str
) -> Finding:
    """Return a finding about an object's value at `path`."""
    place, line = it.located(*path)
    source = it.document.source
    return Finding(
        rule=rule, severity=severity, message=message, place=place, source=source, line=line
    )


@dataclass(slots=True)
class Run:
    """What steps get beside their settings, and where they leave their findings."""

    folder: Path = field(default_factory=Path)
    """Relative paths of the configuration begin here."""

    release: str = ""
    """Name of the Helm release, "" if not given."""

    namespace: str = ""
    """Namespace of the release, "" if not given."""

    of_stream: bool = False
    """Whether the steps come from the stream, as those of a KRM function do."""

    environment: Mapping[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def file(self, named: str, place: str) -> Path:
        """Return a file or folder that the configuration names. Raises PostrenderError unless it is
        below its folder.
        """
        found = self.folder / named
        if not found.resolve().is_relative_to(self.folder.resolve()):
            where = f"the folder of the configuration, {self.folder.resolve()}"
            raise PostrenderError(f"{place}: {named!r} is not below {where}: move it there")
        return found

    def add(self, finding: Finding) -> None:
        """Add a finding, unless its rule is ignored."""
        if finding.severity != "ignore":
            self.findings.append(finding)


Format = Literal["text", "json", "sarif"]
FORMATS: Sequence[Format] = ("text", "json", "sarif")
PROGRAM = "slurm-postrender"


def rendered(findings: Sequence[Finding], error: str, form: Format, file: str) -> str:
    """Return a report. `error`: why the run has ended, "" if it hasn't. `file`: what lines are
    counted in.
    """
    if form == "text":
        lines = [*map(str, findings), *([error] if error else [])]
        return "".join(f"{PROGRAM}: {line}\n" for line in lines)
    if form == "json":
        value: dict[str, Any] = {
            "error": error or None,
            "findings": [_plain(it) for it in findings],
        }
    else:
        value = _sarif(findings, error, file)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _plain(it: Finding) -> dict[str, Any]:
    fields: Sequence[str] = ("rule", "severity", "message", "place", "source", "line")
    return {name: getattr(it, name) for name in fields}


def _sarif(findings: Sequence[Finding], error: str, file: str) -> dict[str, Any]:
    """SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/). An error that is no finding is
    a notification.
    """
    results = [
        {
            "ruleId": it.rule,
            "level": {"error": "error", "warning": "warning"}.get(it.severity, "note"),
            "message": {"text": f"{it.place}: {it.message}" if it.place else it.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": file},
                        "region": {"startLine": max(it.line, 1)},
                    }
                }
            ],
        }
        for it in findings
    ]
    rules = [{"id": rule} for rule in sorted({it.rule for it in findings})]
    failed = bool(error) and not any(it.severity == "error" for it in findings)
    notifications = [{"level": "error", "message": {"text": error}}] if failed else []
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": PROGRAM, "rules": rules}},
                "results": results,
                "invocations": [
                    {"executionSuccessful": not failed, "toolExecutionNotifications": notifications}
                ],
            }
        ],
    }
