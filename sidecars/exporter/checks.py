"""Checks that run as Slurm jobs, from the files of their ConfigMaps in the exporter's pod: NAME has
the result of the last run of a check, and NAME.json the check as it is declared.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sidecars.exporter import families
from sidecars.exporter.samples import Samples
from sidecars.exporter.schedule import longest_interval
from sidecars.policy.checks.declared import Check, declared
from sidecars.policy.checks.results import Kind, Result, read, value_of

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Of a file: a ConfigMap is not larger."""


_DECLARED = ".json"
"""Ends the names of files of declared checks. No name of a check has a dot."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What is read, by the names of checks."""

    results: Mapping[str, Result] = field(default_factory=dict)
    declared: Mapping[str, Check] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    """From when on the next result of each declared check is awaited, in seconds since the epoch.

    The last result. Later than that, if the check has been enabled, resumed or given another
    schedule since then: when this was read. Without a result, when the check was first read.
    """


def read_checks(folder: Path, former: Checks | None, now: float) -> Checks:
    """Return the checks. A folder that doesn't exist has none, and a file that can't be used is
    left out.
    """
    try:
        # The kubelet's own files begin with two dots.
        files = sorted(it for it in folder.iterdir() if not it.name.startswith("."))
    except FileNotFoundError:
        files = []
    results: dict[str, Result] = {}
    found: dict[str, Check] = {}
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as content:
            text = content.read(MOST_BYTES)
        if file.name.endswith(_DECLARED):
            try:
                found[file.name.removesuffix(_DECLARED)] = declared(text)
            except ValueError as error:
                log.warning("%s is no check: %s", file, error)
        elif (result := read(text)) is not None:
            results[file.name] = result
        else:
            log.warning("%s is no result of a check", file)
    return Checks(
        results,
        found,
        {
            name: _since(name, check, results.get(name), former, now)
            for name, check in found.items()
        },
    )


def _since(
    name: str, check: Check, last: Result | None, former: Checks | None, now: float
) -> float:
    """`Checks.since` of a check."""
    known = former.declared.get(name) if former is not None else None
    if (
        former is not None
        and known is not None
        and (known.schedule, known.suspend) == (check.schedule, check.suspend)
    ):
        since = former.since[name]
    else:
        # At its start, the exporter can't know since when the check has been as it is.
        since = last.at if former is None and last is not None else now
    return since if last is None else max(since, last.at)


def add_checks(samples: Samples, checks: Checks) -> None:
    """Add the samples of all checks."""
    for check, declaration in checks.declared.items():
        interval = longest_interval(declaration.schedule)
        if interval is not None and not declaration.suspend:
            samples.add(families.CHECK_INTERVAL, interval, check)
            samples.add(
                families.CHECK_DUE, checks.since[check] + interval + declaration.longest_run, check
            )
    for check, result in checks.results.items():
        samples.add(families.CHECK_END, result.at, check)
        samples.add(families.CHECK_DURATION, result.seconds, check)
        for kind in Kind:
            samples.add(families.CHECK_NODES, result.counts.get(kind, 0), check, kind)
        for node, verdict in result.nodes.items():
            if verdict.kind is not Kind.PASSED:
                samples.add(families.CHECK_NOT_PASSED, 1, check, node, verdict.kind)
            for name, text in (verdict.measured or {}).items():
                value = value_of(text)
                if value is None:
                    samples.unreadable += 1
                else:
                    samples.add(families.CHECK_VALUE, value, check, node, name)
