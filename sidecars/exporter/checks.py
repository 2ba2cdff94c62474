"""Results of the checks that run as Slurm jobs, from the files of their ConfigMap in the exporter's pod."""

import logging
from collections.abc import Mapping
from pathlib import Path

from sidecars.exporter import families
from sidecars.exporter.samples import Samples
from sidecars.policy.checks.outcome import Kind
from sidecars.policy.checks.results import Result, read, value_of

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Of a file: a ConfigMap is not larger."""


def read_results(folder: Path) -> Mapping[str, Result]:
    """The results by check. A folder that doesn't exist has none, and a file that is no result is left out."""
    found = {}
    try:
        # The kubelet's own files begin with two dots.
        files = sorted(it for it in folder.iterdir() if not it.name.startswith("."))
    except FileNotFoundError:
        return {}
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as content:
            result = read(content.read(MOST_BYTES))
        if result is None:
            log.warning("%s is no result of a check", file)
        else:
            found[file.name] = result
    return found


def add_checks(samples: Samples, results: Mapping[str, Result]) -> None:
    """Add the samples of all checks."""
    for check, result in results.items():
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
