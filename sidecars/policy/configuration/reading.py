"""The lines of a configuration as Slurm reads them, and the findings about them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from sidecars.contract import paths
from sidecars.slurm import conf
from sidecars.workloads import config
from sidecars.workloads.config import ConfigSet

_NUMBER = re.compile(r"[0-9]{1,19}")

Severity = Literal["error", "warning"]

FOLDER = f"{paths.SLURM_CONF_FOLDER}/"
"""Where Slurm's daemons have the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    file: str
    line: int | None
    """Line of the file, from 1; None for the file as a whole."""

    origin: str
    """Where the line comes from, such as `spec.extraConf line 3`; "" if unknown."""

    severity: Severity
    """An error keeps the files from being published. A warning is only reported."""

    message: str
    """The value and the remedy."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file} line {self.line}"
        return (
            f"{place} ({self.origin}): {self.message}"
            if self.origin
            else f"{place}: {self.message}"
        )


def error(file: str, line: int | None, origin: str, message: str) -> Finding:
    """Return an error."""
    return Finding(file=file, line=line, origin=origin, severity="error", message=message)


@dataclass(frozen=True, slots=True)
class Placed:
    """A line of slurm.conf or of a file that it includes."""

    file: str
    line: conf.Line
    ours: bool
    """Whether the operator wrote it."""

    @property
    def key(self) -> str:
        """The key that the line begins with, in lower case."""
        return self.line.pairs[0].key.lower()

    @property
    def value(self) -> str:
        """The value of that key."""
        return self.line.pairs[0].value


@dataclass(slots=True)
class Reading:
    """Reads a set of files. Whatever is wrong with it is added to `findings`."""

    config_set: ConfigSet
    findings: list[Finding] = field(default_factory=list)

    def report(self, severity: Severity, at: Placed, message: str) -> None:
        """Add a finding about a line."""
        origin = self.config_set.origin(at.file, at.line.number)
        finding = Finding(
            file=at.file, line=at.line.number, origin=origin, severity=severity, message=message
        )
        self.findings.append(finding)

    def parse(self, name: str) -> conf.Conf | None:
        """Return a file, or None, with an error, for one that can't be parsed."""
        try:
            return conf.parse(self.config_set.files[name])
        except conf.ConfError as fault:
            origin = self.config_set.origin(name, fault.line)
            self.findings.append(error(name, fault.line, origin, fault.reason))
            return None

    def lines(self, name: str, including: tuple[str, ...] = ()) -> Iterator[Placed]:
        """Yield the lines of a file with those that it includes, in the order in which Slurm reads
        them.
        """
        parsed = self.parse(name)
        for line in parsed.lines if parsed is not None else ():
            origin = self.config_set.origin(name, line.number)
            ours = origin == config.OPERATOR or origin.startswith(config.MERGED)
            placed = Placed(name, line, ours)
            if line.include is not None:
                yield from self._included(placed, line.include, (*including, name))
            elif line.pairs:
                yield placed

    def _included(self, at: Placed, path: str, including: tuple[str, ...]) -> Iterator[Placed]:
        cluster = conf.parse_readable(self.config_set.files["slurm.conf"]).get("ClusterName") or ""
        name = path.replace("%c", cluster)
        if name.startswith("/") and not name.startswith(FOLDER):
            text = (
                f"Include {path}: the operator doesn't know files outside of /etc/slurm, and "
                "workers don't get them"
            )
            self.report("warning", at, f"{text}: bring the file by spec.configFileRefs")
            return
        name = name.removeprefix(FOLDER)
        if name in including:
            self.report("error", at, f"Include {path}: the file includes itself: remove the line")
        elif name not in self.config_set.files:
            text = (
                f"Include {path}: the file doesn't exist: add it to a ConfigMap of "
                "spec.configFileRefs"
            )
            self.report("error", at, text)
        else:
            yield from self.lines(name, including)


def is_less(text: str, limit: int) -> bool:
    """Return whether a value is a number below the limit. Anyone may have written it: other digits
    than ASCII's, and a number of any length.
    """
    return _NUMBER.fullmatch(text) is not None and int(text) < limit
