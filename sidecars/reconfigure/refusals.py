"""The configuration that slurmds ended of, in a file beside the last good one: no other slurmctld
may try it again.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from sidecars.slurm.diagnosis import Culprit

FILE = "refused.json"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A configuration that is not tried again until it has changed."""

    config: str
    """Its digest."""

    culprit: Culprit
    nodes: tuple[str, ...]
    """Slurm nodes whose slurmd ended."""
    since: float
    """When it was refused, in seconds of this host's monotonic clock."""


def write(folder: Path, refusal: Refusal) -> None:
    """Store it, at once. Raises OSError."""
    culprit = refusal.culprit
    content = {
        "sha256": refusal.config,
        "reason": culprit.reason,
        "file": culprit.file,
        "line": culprit.line,
        "nodes": list(refusal.nodes),
        "at": refusal.since + _ahead(),
    }
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{FILE}"
    with draft.open("w") as stream:
        json.dump(content, stream)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(folder / FILE)


def read(folder: Path) -> Refusal | None:
    """Return the one that is stored, or None without one, or if it is damaged."""
    try:
        content = json.loads((folder / FILE).read_text())
        culprit = Culprit(content["reason"], content["file"], content["line"])
        return Refusal(
            content["sha256"], culprit, tuple(content["nodes"]), content["at"] - _ahead()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(folder: Path) -> None:
    """Store none. Raises OSError."""
    (folder / FILE).unlink(missing_ok=True)


def version(folder: Path) -> str:
    """Return a version that changes with what is stored. Cheap."""
    try:
        return str((folder / FILE).stat().st_mtime_ns)
    except OSError:
        return ""


def _ahead() -> float:
    """Return the seconds by which the wall clock, which all hosts share, is ahead of this host's
    monotonic one.
    """
    return time.time() - time.monotonic()
