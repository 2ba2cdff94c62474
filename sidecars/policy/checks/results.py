"""The result of a check's last run, as JSON for a ConfigMap: one key for each check."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecars.policy.checks.measures import quantity

MOST_NODES = 2000
"""Nodes in a result, those that didn't pass first."""
MOST_BYTES = 900_000
"""Of the nodes in the results of all checks: a ConfigMap has at most one MiB."""


class Kind(StrEnum):
    """How a test of a node ended."""

    PASSED = "passed"
    FAILED = "failed"
    HUNG = "hung"
    """It did not end in time, which counts as failed."""
    SKIPPED = "skipped"
    """The node lacks what the check tests: neither passed nor failed."""
    INTERRUPTED = "interrupted"
    """The job was cancelled, preempted or requeued: nothing follows for the node."""


BAD = frozenset({Kind.FAILED, Kind.HUNG})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run found out about a node."""

    kind: Kind
    text: str = ""
    measured: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What is read back."""

    at: float
    """When the run ended, in seconds since the epoch."""
    seconds: float
    nodes: Mapping[str, Verdict] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """Nodes by kind of verdict, those that `nodes` omits included."""


def written(verdicts: Mapping[str, Verdict], at: float, seconds: float, checks: int = 1) -> str:
    """Return the text to store, in a ConfigMap with the results of so many checks."""
    left = MOST_BYTES // max(1, checks)
    order = sorted(verdicts, key=lambda name: (verdicts[name].kind is Kind.PASSED, name))
    nodes = {}
    for name in order[:MOST_NODES]:
        verdict = verdicts[name]
        one: dict[str, Any] = {"result": str(verdict.kind)}
        if verdict.text:
            one["text"] = verdict.text
        if verdict.measured:
            one["measured"] = dict(verdict.measured)
        left -= len(json.dumps({name: one}))
        if left < 0:
            break
        nodes[name] = one
    counts = {str(kind): sum(it.kind is kind for it in verdicts.values()) for kind in Kind}
    return json.dumps(
        {"at": round(at), "seconds": round(seconds, 1), "counts": counts, "nodes": nodes}
    )


def read(text: str) -> Result | None:
    """Read it back; None for anything else."""
    try:
        value = json.loads(text)
        nodes = {
            str(name): Verdict(
                Kind(one["result"]),
                str(one.get("text", "")),
                {
                    str(key): str(measured)
                    for key, measured in dict(one.get("measured") or {}).items()
                },
            )
            for name, one in value["nodes"].items()
        }
        counts = {str(Kind(kind)): int(count) for kind, count in value["counts"].items()}
        return Result(float(value["at"]), float(value["seconds"]), nodes, counts)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def value_of(text: str) -> float | None:
    """Return a measured value in its basic unit (bit/s, bytes, seconds, a fraction), or None for
    one without a unit.
    """
    try:
        return quantity(text).value
    except ValueError:
        return None
