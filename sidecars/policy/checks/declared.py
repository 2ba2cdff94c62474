"""A check as it is declared: one JSON object."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecars.policy.checks.measures import NAME as MEASURE
from sidecars.policy.checks.measures import Limit, quantity

NAME = re.compile(r"[a-z]([-a-z0-9]{0,28}[a-z0-9])?")
"""Names of checks. They are part of the names of CronJobs, Slurm jobs and reservations."""
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
MOST_SCRIPT = 65_536
"""Bytes of a script."""


class Strategy(StrEnum):
    """What a job of the check runs on."""

    NODES = "nodes"
    """One node."""
    PAIRS = "pairs"
    """Two nodes. A node is faulty if it fails with nodes that are known to be good."""


@dataclass(frozen=True, slots=True)
class Check:
    """A declared check."""

    name: str
    script: str
    strategy: Strategy = Strategy.NODES
    partition: str = ""
    """Only its nodes are tested; "": those of all partitions."""
    features: frozenset[str] = frozenset()
    """Active features that a node must have."""
    gpus: bool = False
    """Whether only nodes with GPUs are tested."""
    timeout: int = 60
    """Seconds after which the script is ended and has failed."""
    window: int = 600
    """Seconds after which a run ends, with nodes that were busy untested."""
    at_once: int = 4
    """The most nodes that are under test at a time."""
    most_drains: int = 3
    """The most nodes that a run drains: a script that fails everywhere must not take the cluster
    out of service.
    """
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the script, besides PATH and what Slurm sets."""
    limits: Mapping[str, Limit] = field(default_factory=dict)
    drain: bool = True
    """Whether a node that fails is drained."""
    undrain: bool = True
    """Whether a node that the check has drained is tested again, and undrained when it passes."""
    comment: bool = False
    """Whether the result becomes the comment of the node."""
    schedule: str = ""
    """Of its CronJob."""
    suspend: bool = False
    """Whether its CronJob is declared suspended, so that the check runs on request alone."""

    @property
    def longest_run(self) -> float:
        """Seconds after which Kubernetes ends a run: that of `activeDeadlineSeconds` in the chart's
        CronJob.
        """
        return self.window + self.timeout + 300.0


_KEYS = {
    *(
        "name",
        "script",
        "strategy",
        "partition",
        "features",
        "gpus",
        "timeoutSeconds",
        "windowSeconds",
        "maxNodes",
        "maxDrains",
    ),
    *("limits", "env", "drain", "undrain", "comment", "schedule", "suspend"),
}


def declared(text: str) -> Check:
    """Read a check. Raises ValueError, which names the key, the value and the remedy."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"the check is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("the check is no object: give a JSON object with name and script")
    unknown = sorted(value.keys() - _KEYS)
    if unknown:
        raise ValueError(f"{unknown[0]}: unknown key; use one of {', '.join(sorted(_KEYS))}")
    name = _text(value, "name")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"name is {name[:60]!r}: use a-z, 0-9 and -, 30 characters at most, beginning with a "
            "letter"
        )
    script = _text(value, "script")
    if not script.startswith("#!"):
        raise ValueError("script has no interpreter: begin it with a line such as #!/bin/sh")
    if len(script.encode()) > MOST_SCRIPT:
        raise ValueError(
            f"script has {len(script.encode())} bytes: {MOST_SCRIPT} are allowed; install the "
            "program instead"
        )
    strategy = _text(value, "strategy", "nodes")
    if strategy not in set(Strategy):
        raise ValueError(f"strategy is {strategy[:60]!r}: choose from {', '.join(Strategy)}")
    timeout, window = _number(value, "timeoutSeconds", 60), _number(value, "windowSeconds", 600)
    if window < timeout:
        raise ValueError(
            f"windowSeconds is {window}, less than timeoutSeconds ({timeout}): no test could end "
            "in time"
        )
    at_once = _number(value, "maxNodes", 4)
    if strategy == Strategy.PAIRS and at_once < 2:
        raise ValueError("maxNodes is 1: a pair has 2 nodes, so give at least 2")
    features = value.get("features") or []
    if not isinstance(features, list) or not all(isinstance(it, str) and it for it in features):
        raise ValueError("features is no list of texts: give the names of features of Slurm nodes")
    return Check(
        name,
        script,
        Strategy(strategy),
        _text(value, "partition", ""),
        frozenset(features),
        _flag(value, "gpus", False),
        timeout,
        window,
        at_once,
        _number(value, "maxDrains", 3),
        _env(value.get("env") or {}),
        _limits(value.get("limits") or {}),
        _flag(value, "drain", True),
        _flag(value, "undrain", True),
        _flag(value, "comment", False),
        _text(value, "schedule", ""),
        _flag(value, "suspend", False),
    )


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("env is no object: give a text for each variable")
    for name, text in value.items():
        if not VARIABLE.fullmatch(name) or name == "PATH":
            raise ValueError(
                f"env.{name[:40]}: use A-Z, 0-9 and _ in the name of a variable, and not PATH"
            )
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"env.{name[:40]} is no text: put it in quotes")
    return dict(value)


def _limits(value: Any) -> dict[str, Limit]:
    if not isinstance(value, dict):
        raise ValueError("limits is no object: give a name with min or max for each")
    found = {}
    for name, bounds in value.items():
        place = f"limits.{name[:40]}"
        if not MEASURE.fullmatch(name):
            raise ValueError(f"{place}: use a-z, 0-9 and _ in the name of a measured value")
        if not isinstance(bounds, dict) or not bounds or not bounds.keys() <= {"min", "max"}:
            raise ValueError(f"{place}: give min, max or both")
        found[name] = Limit(*(_bound(bounds.get(key), f"{place}.{key}") for key in ("min", "max")))
    return found


def _bound(value: Any, place: str) -> Any:
    if value is None:
        return None
    try:
        return quantity(value if isinstance(value, str) else json.dumps(value))
    except ValueError as error:
        raise ValueError(f"{place} is {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:60]} is given twice: give each key once")
    return found


def _text(value: dict[str, Any], key: str, default: str | None = None) -> str:
    found = value.get(key)
    if found is None and default is not None:
        return default
    if not isinstance(found, str) or (not found and default is None):
        raise ValueError(f"{key} is missing or no text: set it")
    return found


def _number(value: dict[str, Any], key: str, default: int) -> int:
    found = value.get(key, default)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"{key} is {found!r}: give a whole number of at least 1")
    return found


def _flag(value: dict[str, Any], key: str, default: bool) -> bool:
    found = value.get(key, default)
    if not isinstance(found, bool):
        raise ValueError(f"{key} is {found!r}: give true or false")
    return found
